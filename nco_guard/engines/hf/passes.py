"""Passes of a model over texts that may go back: asked for the logits after some ids, whatever was asked for before.

What the cache holds of a text is used as far as the text still begins with it; the rest is cut off it. Caches that
cannot be cut (of sliding windows once they are full, of recurrent layers, of fixed size) are filled anew; so are
all where a text crosses a length beyond which the model has other rotary factors.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from transformers import EncoderDecoderCache, GenerationConfig
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation.utils import ALL_CACHE_NAMES

from nco_guard.errors import UnsupportedError

__all__ = ["passes_of"]


class Passes(Protocol):
    """A model's answers for the rows of one call."""

    def logits(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """float32 [width], the logits after the prompt and these ids, for each row that is asked for.

        A row that is left out is over: it cannot be asked for again.
        """


def passes_of(
    model: Any, prompts: torch.Tensor, config: GenerationConfig, options: Mapping[str, Any]
) -> Passes:
    """What runs a model over prompts, int64 [rows, length], with the further inputs that `generate` prepares.

    Errors: `UnsupportedError` for inputs and models of which it is not known how to run them over texts that go back.
    """
    rows = len(prompts)
    mask = options.get("attention_mask")
    sizes = [prompts.shape[1]] * rows
    if mask is not None and mask.shape == prompts.shape and not model.config.is_encoder_decoder:
        sizes = mask.bool().sum(dim=1).tolist()
    bounds = _bounds(model, min(sizes), config.max_length)
    if rows > 1 and not bounds and _can_share(model, prompts, options):
        return _Together(model, prompts, config, dict(options), sizes)
    fresh = [_of_row(options, row, rows) for row in range(rows)] if rows > 1 else [dict(options)]
    return _RowByRow(
        [
            _Alone(
                model, prompts[row : row + 1], config, fresh[row], [bound - sizes[row] for bound in bounds]
            )
            for row in range(rows)
        ]
    )


# Inputs that `generate` prepares which rows that share a cache can have.
_SHARED = {
    *("attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep", "return_dict"),
    *("output_attentions", "output_hidden_states"),
}
# And those of which it is known how rows lie in them.
_BY_ROW = _SHARED | {
    *("decoder_attention_mask", "token_type_ids", "encoder_outputs", "decoder_position_ids", "cache_params"),
}


def _bounds(model: Any, shortest: int, longest: int) -> list[int]:
    """The lengths beyond which a model reads all of a text with other rotary factors, where a text may cross them.

    shortest, longest: of the texts. Errors: `UnsupportedError` where the factors depend on what was read before.
    """
    found: set[int] = set()
    for module in model.modules():
        types = getattr(module, "rope_type", None)
        for kind, type_ in types.items() if isinstance(types, dict) else [(None, types)]:
            if not isinstance(type_, str):
                continue
            parameters = module.config.rope_parameters
            if type_ == "longrope":
                own = parameters if kind is None else parameters[kind]
                found.add(int(own["original_max_position_embeddings"]))
            elif "dynamic" in type_ and longest > module.original_max_seq_len:
                raise UnsupportedError(
                    f"max_new_tokens: beyond {module.original_max_seq_len} tokens this model's rotary factors "
                    f"({type_}) depend on the longest text that it has read, be it thrown away or not; "
                    f"stay within them, prompt included, or say when_blocked='mask'"
                )
    return sorted(bound for bound in found if shortest <= bound < longest)


def _of_row(options: Mapping[str, Any], row: int, rows: int) -> dict[str, Any]:
    """A row's part of the inputs of a batch, with a cache of its own. Errors: `UnsupportedError`."""

    def part(name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if name == "position_ids" and value.dim() == 3:  # [kinds of position, rows, length]
                return value[:, row : row + 1]
            return value[row : row + 1] if value.dim() and len(value) == rows else value
        if isinstance(value, Cache):
            return copy.deepcopy(value)
        if isinstance(value, dict):  # a model's output, too
            return type(value)(**{key: part(key, each) for key, each in value.items()})
        return value

    unknown = sorted(
        name
        for name, value in options.items()
        if name not in _BY_ROW and not isinstance(value, bool | int | float | str | None)
    )
    if unknown:
        raise UnsupportedError(
            f"{', '.join(unknown)}: texts of a batch that go back are run one by one with this model, and which part "
            f"of these inputs belongs to which is not known; generate them one by one, or say when_blocked='mask'"
        )
    return {name: part(name, value) for name, value in options.items()}


def _cache_of(options: Mapping[str, Any]) -> tuple[str, Any]:
    name = next((name for name in ALL_CACHE_NAMES if options.get(name) is not None), "past_key_values")
    return name, options.get(name)


def _layers(cache: Any) -> list[Any]:
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    return list(getattr(cache, "layers", ()))


def _can_crop(cache: Any) -> bool:
    """Whether the cache can lose its last columns and be what it was before these."""
    if not isinstance(cache, (DynamicCache, EncoderDecoderCache)):
        return False
    return all(
        type(layer) is DynamicLayer
        # Beyond its window such a layer no longer holds what would be seen again.
        or (type(layer) is DynamicSlidingWindowLayer and layer.get_seq_length() < layer.sliding_window)
        for layer in _layers(cache)
    )


def _is_elsewhere(cache: Any) -> bool:
    """Whether recurrent layers, having read a text, have put nothing of it into the cache."""
    recurrent = [layer for layer in _layers(cache) if hasattr(layer, "recurrent_states")]
    states = [
        state
        for layer in recurrent
        for kind in (layer.conv_states, layer.recurrent_states)
        for state in (kind.values() if isinstance(kind, dict) else [kind])
    ]
    return bool(recurrent) and all(state is None for state in states)


class _Alone:
    """One row, which is the whole batch."""

    def __init__(
        self,
        model: Any,
        prompt: torch.Tensor,
        config: GenerationConfig,
        options: dict[str, Any],
        bounds: Sequence[int],  # counted in tokens after the prompt
    ) -> None:
        self._model = model
        self._bounds = bounds
        self._prompt = prompt
        self._config = config
        self._options = options
        self._cache, fresh = _cache_of(options)
        self._fresh = copy.deepcopy(fresh)  # still empty
        self._held: list[int] | None = None

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """See `Passes`."""
        if self._held is None:
            first = self._first(ids)
            if not _is_elsewhere(self._options.get(self._cache)):
                return first
            # The model keeps what it read in itself, where rows would overwrite each other's and nothing can be cut.
            self._options |= {"use_cache": False, self._cache: None}
            self._fresh = None
            return self._first(ids)
        kept = min(_shared(self._held, ids), len(ids) - 1)
        drop = len(self._held) - kept
        cache = self._options.get(self._cache)
        crosses = any((len(self._held) > bound) != (len(ids) > bound) for bound in self._bounds)
        if cache is not None and (drop or crosses or len(ids) - kept > 1):
            # Recurrent layers take up a text one token at a time, or all of it at once.
            if crosses or not _can_crop(cache):
                self._options[self._cache] = copy.deepcopy(self._fresh)
                return self._first(ids)
            if drop:
                cache.crop(-drop)
        return self._run(ids, len(ids) - kept if self._options.get("use_cache") else None)

    def _first(self, ids: Sequence[int]) -> torch.Tensor:
        if not ids:
            outputs = self._model._prefill(self._prompt, self._config, self._options)
            self._take(outputs)
            self._held = []
            return _last(outputs)[0]
        return self._run(ids, None, is_first_iteration=True)

    def _run(self, ids: Sequence[int], new: int | None, **options: Any) -> torch.Tensor:
        whole = torch.cat([self._prompt, self._prompt.new_tensor([list(ids)])], dim=1)
        longer = dict(self._options)
        if ids:
            longer = self._model._update_model_kwargs_for_generation(
                {}, longer, is_encoder_decoder=self._model.config.is_encoder_decoder, num_new_tokens=len(ids)
            )
        inputs = self._model.prepare_inputs_for_generation(
            whole, next_sequence_length=new, **options, **longer
        )
        outputs = self._model(**inputs, return_dict=True)
        self._take(outputs)
        self._held = list(ids)
        return _last(outputs)[0]

    def _take(self, outputs: Any) -> None:
        for name in ALL_CACHE_NAMES:
            if name in outputs:
                self._cache = name
                self._options[name] = outputs[name]


class _RowByRow:
    """Rows that are run one after another, each as if it were alone."""

    def __init__(self, rows: list[_Alone]) -> None:
        self._rows = rows

    def logits(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """See `Passes`."""
        return {row: self._rows[row].logits(ids) for row, ids in wanted.items()}


def _can_share(model: Any, prompts: torch.Tensor, options: Mapping[str, Any]) -> bool:
    """Whether rows can share a cache: all it holds is keys and values by column, and all that is given is known."""
    cache: Any = options.get("past_key_values")
    positions = options.get("position_ids")
    given = {name for name, value in options.items() if value is not None}
    mask = options.get("attention_mask")
    if type(cache) is not DynamicCache or model.config.is_encoder_decoder:
        return False
    return (
        all(type(layer) is DynamicLayer for layer in cache.layers)
        and cache.get_seq_length() == 0
        and positions is not None
        and positions.shape == prompts.shape
        and given <= _SHARED
        and bool(options.get("use_cache"))
        # Prompts are padded on the left, and nowhere else.
        and (mask is None or (mask.shape == prompts.shape and bool((mask.int().diff(dim=1) >= 0).all())))
        and getattr(model.config, "_attn_implementation", None) in ("eager", "sdpa")
        and {"attention_mask", "position_ids"} <= set(inspect.signature(model.forward).parameters)
    )


class _Together:
    """Rows with one cache, which always is as if their texts were prompts, padded on the left.

    Between the tokens of a row there is never a dead column, since there are models whose attention counts columns
    (local windows, ALiBi). So rows are moved to the right where one goes back, and in each pass all rows read as many
    tokens as the row that lacks the most; the others read some of theirs once more.
    """

    def __init__(
        self,
        model: Any,
        prompts: torch.Tensor,
        config: GenerationConfig,
        options: dict[str, Any],
        sizes: Sequence[int],  # of the prompts, without padding
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._config = config
        self._options = options
        rows = list(zip(prompts.tolist(), options["position_ids"].tolist(), sizes, strict=True))
        self._own = [ids[-size:] for ids, _, size in rows]  # prompts without padding
        self._places = [places[-size:] for _, places, size in rows]  # and their positions
        self._held: dict[int, list[int]] = {}  # what the cache holds, by row, in its order
        self._cache: Any = None

    def logits(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """See `Passes`."""
        if self._cache is None:
            outputs = self._model._prefill(self._prompts, self._config, self._options)
            self._cache = outputs.past_key_values
            self._held = dict(enumerate(self._own))
            if not any(wanted.values()):
                first = _last(outputs)
                return {row: first[row] for row in wanted}
        texts = {row: [*self._own[row], *ids] for row, ids in wanted.items()}
        size = max(
            len(text) - min(_shared(self._held[row], text), len(text) - 1) for row, text in texts.items()
        )
        self._align({row: max(0, len(text) - size) for row, text in texts.items()})
        outputs = self._run(texts, size)
        self._held = texts
        return dict(zip(texts, _last(outputs), strict=True))

    def _run(self, texts: Mapping[int, Sequence[int]], size: int) -> Any:
        """Have the last tokens of each text read, so many."""
        width = self._cache.get_seq_length() + size
        chunk, places, mask = [], [], []
        for row, text in texts.items():
            end = self._places[row][-1] + 1
            all_places = [*self._places[row], *range(end, end + len(text) - len(self._own[row]))]
            padding = [0] * (size - len(text))
            chunk.append([*padding, *text[-size:]])
            places.append([*padding, *all_places[-size:]])
            mask.append([0] * (width - len(text)) + [1] * len(text))
        new = self._prompts.new_tensor
        keep = {"logits_to_keep": 1} if "logits_to_keep" in self._options else {}
        return self._model(
            input_ids=new(chunk),
            attention_mask=new(mask),
            position_ids=new(places),
            past_key_values=self._cache,
            use_cache=True,
            return_dict=True,
            **keep,
        )

    def _align(self, stays: Mapping[int, int]) -> None:
        """Leave, of these rows alone, so many of the first tokens in the cache, up to its last column."""
        if {row: len(held) for row, held in self._held.items()} == stays:
            return
        width, most = self._cache.get_seq_length(), max(stays.values())
        at = {row: place for place, row in enumerate(self._held)}
        ends = [width - len(self._held[row]) + stay for row, stay in stays.items()]
        index = torch.tensor(ends)[:, None] - most + torch.arange(most)
        index = index.clamp(min=0)[:, None, :, None]  # what is left of a row's first token is hidden
        rows = torch.tensor([at[row] for row in stays])

        def moved(states: torch.Tensor) -> torch.Tensor:
            shape = (len(stays), states.shape[1], most, states.shape[3])
            return states[rows.to(states.device)].gather(2, index.to(states.device).expand(shape))

        for layer in self._cache.layers:
            layer.keys, layer.values = moved(layer.keys), moved(layer.values)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    return next(place for place in range(size) if one[place] != other[place])


def _last(outputs: Any) -> torch.Tensor:
    """Logits after the last place, a copy, as `generate` reads them."""
    logits: torch.Tensor = outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
    return logits
