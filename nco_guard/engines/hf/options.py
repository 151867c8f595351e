"""Which options of `model.generate` the guarantee does not survive: they are refused beforehand."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from transformers import GenerationMixin

from nco_guard.arguments import as_whole, token_ids
from nco_guard.engines.hf.kinds import check_kinds, count
from nco_guard.engines.hf.words import call_options, config_options, unknown_option
from nco_guard.errors import UnsupportedError

__all__ = ["Settings", "in_one_place", "refuse_continuous"]

_OTHER_LOOP = "it replaces the decoding loop, where processors may not be asked"
_FORCES = "it forces a token whatever the guard forbids"
_DRAFTS = "tokens are taken from a draft that the guard has not seen"

# What is refused where it is given, and why.
_REFUSED = {
    "custom_generate": _OTHER_LOOP,
    "penalty_alpha": _OTHER_LOOP,
    "dola_layers": _OTHER_LOOP,
    "constraints": _OTHER_LOOP,
    "force_words_ids": _OTHER_LOOP,
    "forced_bos_token_id": _FORCES,
    "forced_eos_token_id": _FORCES,
    "token_healing": "it rewrites the end of the prompt",
    "use_mtp": _DRAFTS,
    "speculation_type": _DRAFTS,
    "assistant_early_exit": _DRAFTS,
    "assistant_ensemble_weight": _DRAFTS,
    "assistant_tokenizer": "the guard is bound to one tokenizer and the assistant writes with another",
    "inputs_embeds": "without input ids it cannot be told what is the prompt",
    "past_key_values": "a prompt that begins in the cache is not among the input ids",
}


# What is refused besides for encoder-decoder models.
_REFUSED_SEQ2SEQ = {
    "decoder_input_ids": "it begins the answer, and the guard's text begins after the start token",
    "decoder_inputs_embeds": "it begins the answer, and the guard's text begins after the start token",
    "encoder_outputs": "without input ids it cannot be told how many texts there will be",
    "forced_decoder_ids": _FORCES,
}

_UNHEARD = "continuous batching does not do it"
_MISLED = "continuous batching drops it, or does not show it the text"
# What is refused besides under continuous batching, which would not say so.
_REFUSED_CONTINUOUS = {
    **dict.fromkeys(("prompt_lookup_num_tokens", "stop_strings", "max_time", "output_scores"), _UNHEARD),
    **dict.fromkeys(("output_logits", "output_attentions", "output_hidden_states"), _UNHEARD),
    **dict.fromkeys(("min_length", "min_new_tokens", "repetition_penalty", "no_repeat_ngram_size"), _MISLED),
    **dict.fromkeys(("bad_words_ids", "sequence_bias", "exponential_decay_length_penalty"), _MISLED),
    **dict.fromkeys(("begin_suppress_tokens", "guidance_scale", "watermarking_config"), _MISLED),
}
_HOST = "masks are made by the host once the last token is known"


# What is an argument elsewhere.
_ARGUMENTS = {
    "guard": "the guard is the one that is called; call another, or give each prompt its own by guards=[...]",
    "guards": "not through a pipeline; use guard.generate",
}
# Of these the model's own configuration is looked at as well.
_OF_THE_MODEL = (
    "max_new_tokens",
    "max_length",
    "num_beams",
    "num_return_sequences",
    "pad_token_id",
    "stop_strings",
)


def _unknown(name: str, known: frozenset[str]) -> str:
    """The message about an option that nobody knows."""
    otherwise = "leave it out (transformers.GenerationConfig says which there are)"
    return f"{name}: generation has no such option{unknown_option(name, known, _ARGUMENTS, otherwise)}"


class Settings:
    """The options of one call: keywords first, then its `generation_config`, then the model's own."""

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        self._sources = [options.get("generation_config"), getattr(model, "generation_config", None)]
        self._options = options
        self.model = model

    def get(self, name: str) -> Any:
        """The value that `model.generate` will use for `name`; None where nobody sets it."""
        value = self._options.get(name)
        for source in self._sources:
            if value is None and source is not None:
                value = getattr(source, name, None)
        return value

    @property
    def eos_token_ids(self) -> set[int]:
        """The ids at which `model.generate` would stop."""
        value = self.get("eos_token_id")
        if value is None:
            return set()
        if isinstance(value, torch.Tensor):
            value = value.ravel().tolist()
        return set(token_ids("eos_token_id", value if isinstance(value, list | tuple) else [value]))

    @property
    def encoder_decoder(self) -> bool:
        """Whether the prompt goes to an encoder, and the generated rows hold the answer alone."""
        return bool(getattr(self.model.config, "is_encoder_decoder", False))

    @property
    def beams(self) -> int:
        """Number of beams; 1 without beam search."""
        return as_whole(self.get("num_beams")) or 1

    @property
    def sequences(self) -> int:
        """Number of rows for each prompt: beams, or several texts."""
        return max(self.beams, self.answers)

    def refuse_several(self) -> None:
        """`UnsupportedError` for what has several rows for a prompt, where text is to be read as it is written."""
        if self.sequences > 1:
            raise UnsupportedError("num_beams, num_return_sequences: a stream is one sequence; use generate")

    @property
    def answers(self) -> int:
        """Number of texts for each prompt."""
        return count("num_return_sequences", self.get("num_return_sequences")) or 1

    @property
    def drafts(self) -> bool:
        """Whether positions are scored that may be discarded: assisted decoding, prompt lookup."""
        return any(self.get(name) is not None for name in ("assistant_model", "prompt_lookup_num_tokens"))

    def max_length(self, prompt_length: int) -> int:
        """Where generation stops, prompt included, as transformers counts."""
        new, total = (as_whole(self.get(name)) for name in ("max_new_tokens", "max_length"))
        if new is not None:
            return prompt_length + new
        if total is not None:
            if total <= prompt_length:
                raise UnsupportedError(
                    f"max_length: {total} counts the prompt too, which has {prompt_length} tokens; give max_new_tokens"
                )
            return total
        # transformers: 20 new tokens where nothing is said, but not past the positions the model has.
        positions = getattr(self.model.config, "max_position_embeddings", None)
        return prompt_length + 20 if positions is None else min(prompt_length + 20, int(positions))

    def _refuse_mistyped(self) -> None:
        """Options that cannot have the value that they are given, alone or together."""
        check_kinds(self._options)
        if (config := self._options.get("generation_config")) is not None:
            check_kinds(vars(config), "generation_config.")
        check_kinds({name: self.get(name) for name in _OF_THE_MODEL})
        if self.get("do_sample") and self.get("temperature") == 0:
            raise UnsupportedError("temperature: 0 is no sampling; leave do_sample out")
        answers, beams = self.answers, self.beams
        if answers > max(beams, 1) and (beams > 1 or not self.get("do_sample")):
            reason = (
                f"num_beams={beams} finds no more texts than that"
                if beams > 1
                else "greedy decoding has one text"
            )
            raise UnsupportedError(
                f"num_return_sequences: {reason}; set do_sample=True, or num_beams={answers}"
            )

    def refuse_unknown(self) -> None:
        """Raise `UnsupportedError` for an option that neither transformers nor the model knows: a slip, mostly.

        transformers refuses it too, but by another kind of error, without a mend, and not before all else is prepared.
        """
        for name, mend in _ARGUMENTS.items():
            if self._options.get(name) is not None:
                raise UnsupportedError(f"{name}: {mend}")
        validate = getattr(self.model, "_validate_model_kwargs", None)
        if validate is None or type(self.model).generate is not GenerationMixin.generate:
            return  # a `generate` of its own takes what it likes
        known = call_options()
        given = self._options.get("generation_config")
        for name, value in self._options.items():
            if value is None or name in known or hasattr(given, name):
                continue
            try:
                validate({name: value})
            except ValueError:
                raise UnsupportedError(_unknown(name, known)) from None

    def refuse_unsupported(self) -> None:
        """Raise `UnsupportedError`, naming the option, the reason and a way out."""
        self._refuse_mistyped()
        if self.encoder_decoder:
            for name, reason in _REFUSED_SEQ2SEQ.items():
                if self.get(name) is not None:
                    raise UnsupportedError(f"{name}: {reason}; leave it out")
            if type(self.model).generate is not GenerationMixin.generate:
                raise UnsupportedError(
                    f"{type(self.model).__name__}.generate: {_OTHER_LOOP}; use another model"
                )
        for name, reason in _REFUSED.items():
            value = self.get(name)
            if value is not None and value is not False and not (name == "penalty_alpha" and value == 0):
                raise UnsupportedError(f"{name}: {reason}; leave it out")
        if (self.get("num_beam_groups") or 1) > 1:
            raise UnsupportedError(f"num_beam_groups: {_OTHER_LOOP}; leave it out")
        if self.get("cache_implementation") == "paged":
            raise UnsupportedError(
                "cache_implementation='paged': continuous batching is another decoding loop; use generate_batch or "
                "ContinuousBatch of nco_guard.engines.hf.continuous"
            )
        watermark = self.get("watermarking_config")
        if watermark is not None and type(watermark).__name__ == "SynthIDTextWatermarkingConfig":
            raise UnsupportedError(
                "watermarking_config: SynthID rewrites the scores after the guard; leave it out"
            )
        assistant = self.get("assistant_model")
        if assistant is not None and (
            assistant.config.get_text_config().vocab_size != self.model.config.get_text_config().vocab_size
        ):
            raise UnsupportedError("assistant_model: it needs the same vocabulary as the model")


def in_one_place(model: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `model.generate` of which its `generation_config`, where there is one, says all that it can say.

    transformers does the same with the rest, and warns that it will not for ever.
    """
    given = arguments.get("generation_config")
    if given is None or type(model).generate is not GenerationMixin.generate:
        return dict(arguments)
    config = copy.deepcopy(given)
    said = {name for name, value in arguments.items() if value is not None and hasattr(config, name)}
    config.update(**{name: arguments[name] for name in said})
    return {
        **{name: value for name, value in arguments.items() if name not in said},
        "generation_config": config,
    }


def refuse_continuous(model: Any, options: Mapping[str, Any], batching: Any) -> None:
    """Raise `UnsupportedError` for what continuous batching cannot do under a guard, or would silently ignore.

    options: those of the call. What a model's own generation configuration asks for in vain is left to transformers,
    which warns. batching: its continuous batching configuration, or None.
    """
    settings = Settings(model, options)
    settings.refuse_unsupported()
    if settings.encoder_decoder or not hasattr(model, "init_continuous_batching"):
        raise UnsupportedError(f"{type(model).__name__}: continuous batching is for decoder-only models")
    if getattr(model, "_cached_continuous_batching_manager", None) is not None:
        raise UnsupportedError(
            "this model keeps an unguarded continuous batching manager: call its "
            "destroy_cached_continuous_batching_manager() first"
        )
    given = options.get("generation_config")
    for name in options:
        if name != "generation_config" and name not in config_options():
            raise UnsupportedError(_unknown(name, config_options()))
    if settings.beams > 1:
        raise UnsupportedError(f"num_beams: {_UNHEARD}; leave it out")
    if settings.answers > 1:
        raise UnsupportedError("num_return_sequences: submit the prompt several times, or use generate_batch")
    for name, reason in _REFUSED_CONTINUOUS.items():
        value = options.get(name, getattr(given, name, None))
        neutral = 1 if name in ("repetition_penalty", "guidance_scale") else 0
        if value is not None and value is not False and value != neutral:
            raise UnsupportedError(f"{name}: {reason}; leave it out")
    if batching is None:
        return
    from transformers import ContinuousBatchingConfig  # the rest of this module does without

    if not isinstance(batching, ContinuousBatchingConfig):
        raise UnsupportedError("continuous_batching_config: give a transformers ContinuousBatchingConfig")
    graphs = batching.use_cuda_graph
    if batching.use_async_batching:
        raise UnsupportedError(f"use_async_batching: {_HOST}; leave it out")
    if any(graphs) if isinstance(graphs, tuple) else graphs:
        raise UnsupportedError(f"use_cuda_graph: {_HOST}; leave it out")
    for name in ("varlen_compile_config", "decode_compile_config", "default_compile_level"):
        if getattr(batching, name):
            raise UnsupportedError(f"{name}: {_HOST}; leave it out")
