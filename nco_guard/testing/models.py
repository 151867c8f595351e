"""Tiny real models: random ones, and some that long for forbidden text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from nco_guard.automata.combine.rewriting import CONTINUATION
from nco_guard.errors import MissingExtraError
from nco_guard.tokens import Binding, Vocabulary, read_vocabulary

__all__ = ["biased_model", "random_model"]


def random_model(
    tokenizer: Any,
    seed: int = 0,
    *,
    hidden: int = 32,
    spread: float = 3.0,
    vocab_width: int | None = None,
    seq2seq: bool = False,
) -> Any:
    """A real `LlamaForCausalLM` (one layer, CPU, float32, eval mode) with random weights.

    Args:
        seq2seq: a `T5ForConditionalGeneration` instead, an encoder-decoder model that starts with the pad token.
        spread: standard deviation of its logits, so that its choices are far from uniform and change with `seed`.
        vocab_width: columns of its logits, by default `len(tokenizer)`.

    Examples:
        >>> small = tiny_tokenizer("byte-level")
        >>> guard = Guard.from_presets("pii")
        >>> guard.generate(random_model(small, seed=1), small, "a", max_new_tokens=4).reports[0].ok
        True
    """
    return biased_model(
        tokenizer, (), seed, hidden=hidden, spread=spread, vocab_width=vocab_width, seq2seq=seq2seq
    )


def biased_model(
    tokenizer: Any,
    wants: Iterable[str],
    seed: int = 0,
    *,
    bonus: float = 14.0,
    hidden: int = 32,
    spread: float = 3.0,
    vocab_width: int | None = None,
    seq2seq: bool = False,
) -> Any:
    """Like `random_model`, with a longing for the strings of `wants`: left alone, it writes them all the
    time.

    The logits of tokens that continue one of the strings after the last token get `bonus` (half of it for
    tokens that begin one). This depends on the last token alone, so caching, beams, assisted decoding and
    batching see one and the same model. Meant for vocabularies of at most a few thousand tokens (memory:
    width squared floats).

    Examples:
        >>> small = tiny_tokenizer("byte-level")
        >>> guard = Guard(Policy(name="p", rules=[StringRule(id="ass", strings=["ass"])]))
        >>> "ass" in guard.generate(biased_model(small, ["ass"]), small, "a cl", max_new_tokens=8).texts[0]
        False
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("nco_guard.testing.biased_model", "hf") from error
    width = vocab_width if vocab_width is not None else len(tokenizer)
    model_class, config = _seq2seq(tokenizer, width, hidden) if seq2seq else _causal(tokenizer, width, hidden)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
        # T5 ties it to the embeddings, and then wants its last token again and again.
        model.lm_head.weight = torch.nn.Parameter(torch.empty(width, hidden))
        # The last hidden state has unit variance (RMS norm), so this is the standard deviation of the logits.
        torch.nn.init.normal_(model.lm_head.weight, std=spread / hidden**0.5)
        torch.nn.init.normal_(model.get_input_embeddings().weight, std=1.0)
    strings = [want.encode() for want in wants]
    if strings:
        table = _longing(read_vocabulary(tokenizer, Binding(vocab_width=width)), strings, bonus)
        model.bonus = torch.from_numpy(table)
    return model.eval()


def _longing(vocabulary: Vocabulary, wants: Sequence[bytes], bonus: float) -> np.ndarray:
    """float32 [width, width]: what the logits of the columns gain after the token of the row."""
    tokens = list(vocabulary.tokens)
    if vocabulary.rewriting is not None and vocabulary.rewriting.prefix is not None:
        tokens = [token.removeprefix(bytes([CONTINUATION])) for token in tokens]
    table = np.zeros((vocabulary.width, vocabulary.width), dtype=np.float32)
    for want in wants:
        for written in range(len(want)):
            done, rest = want[:written], want[written:]
            following = [
                index
                for index, token in enumerate(tokens)
                if token and (rest.startswith(token) or token.startswith(rest))
            ]
            if not done:
                table[:, following] += bonus / 2
                continue
            last = [
                index
                for index, token in enumerate(tokens)
                if token and (done.endswith(token) or token.endswith(done))
            ]
            table[np.ix_(last, following)] += bonus
    return table


def _causal(tokenizer: Any, width: int, hidden: int) -> tuple[Any, Any]:
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=width,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    return _biased_classes()[0], config


def _seq2seq(tokenizer: Any, width: int, hidden: int) -> tuple[Any, Any]:
    from transformers import T5Config

    config = T5Config(
        vocab_size=width,
        d_model=hidden,
        d_kv=hidden // 2,
        d_ff=2 * hidden,
        num_layers=1,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    return _biased_classes()[1], config


@cache
def _biased_classes() -> tuple[Any, Any]:
    from transformers import LlamaForCausalLM, T5ForConditionalGeneration

    class BiasedLM(LlamaForCausalLM):  # type: ignore[misc]
        """A Llama whose logits gain `bonus[last token]`."""

        # transformers evaluates the annotations of a model class, where torch is not a global name here.
        bonus: Any = None

        # transformers prepares the inputs that it finds by name.
        def forward(
            self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None, **kwargs: Any
        ) -> Any:
            output = super().forward(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, **kwargs
            )
            if self.bonus is not None and input_ids is not None:
                kept = output.logits.shape[1]
                output.logits = output.logits + self.bonus[input_ids[:, -kept:]]
            return output

    class BiasedSeq2SeqLM(T5ForConditionalGeneration):  # type: ignore[misc]
        """A T5 whose logits gain `bonus[last token of the decoder]`."""

        bonus: Any = None

        def forward(self, input_ids: Any = None, decoder_input_ids: Any = None, **kwargs: Any) -> Any:
            output = super().forward(input_ids=input_ids, decoder_input_ids=decoder_input_ids, **kwargs)
            if self.bonus is not None and decoder_input_ids is not None:
                kept = output.logits.shape[1]
                output.logits = output.logits + self.bonus[decoder_input_ids[:, -kept:]]
            return output

    # Pipelines look a model up by the name of its class.
    BiasedLM.__name__ = LlamaForCausalLM.__name__
    BiasedSeq2SeqLM.__name__ = T5ForConditionalGeneration.__name__
    return BiasedLM, BiasedSeq2SeqLM
