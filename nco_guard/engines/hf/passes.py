"""Passes of a model over texts that may go back: asked for the logits after some ids, whatever was asked for before.

What the cache holds of a text is used as far as the text still begins with it; the rest is cut off it. Caches that
cannot be cut (of sliding windows once they are full, of recurrent layers, of fixed size) are filled anew.
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

__all__ = ["Passes", "passes_of"]

_SPARE = 64  # dead columns that are always tolerated


class Passes(Protocol):
    """A model's answers for the rows of one call."""

    def logits(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """float32 [width], the logits after the prompt and these ids, for each row that is asked for."""


def passes_of(
    model: Any, prompts: torch.Tensor, config: GenerationConfig, options: Mapping[str, Any]
) -> Passes:
    """What runs a model over prompts, int64 [rows, length], with the further inputs that `generate` prepares."""
    rows = len(prompts)
    if rows > 1 and _can_share(model, options):
        return _Together(model, prompts, config, dict(options))
    fresh = [_of_row(options, row, rows) for row in range(rows)] if rows > 1 else [dict(options)]
    return _RowByRow([_Alone(model, prompts[row : row + 1], config, fresh[row]) for row in range(rows)])


# Inputs that `generate` prepares of which it is known how rows lie in them.
_BY_ROW = {
    *("attention_mask", "decoder_attention_mask", "token_type_ids", "encoder_outputs", "position_ids"),
    *("past_key_values", "use_cache", "logits_to_keep", "output_attentions", "output_hidden_states"),
    *("decoder_position_ids", "return_dict", "cache_params"),
}


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

    unknown = sorted(name for name, value in options.items() if value is not None and name not in _BY_ROW)
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


class _Alone:
    """One row, which is the whole batch."""

    def __init__(
        self, model: Any, prompt: torch.Tensor, config: GenerationConfig, options: dict[str, Any]
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._config = config
        self._options = options
        self._cache, fresh = _cache_of(options)
        self._fresh = copy.deepcopy(fresh)  # still empty
        self._held: list[int] | None = None

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """See `Passes`."""
        if self._held is None:
            return self._first(ids)
        kept = min(_shared(self._held, ids), len(ids) - 1)
        drop = len(self._held) - kept
        cache = self._options.get(self._cache)
        if cache is not None and (drop or len(ids) - kept > 1):
            if not _can_crop(cache):
                # Recurrent layers take up a text one token at a time, or all of it at once.
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


def _can_share(model: Any, options: Mapping[str, Any]) -> bool:
    """Whether rows that go back independently can share a cache: dead places hidden, positions given."""
    cache = options.get("past_key_values")
    positions = options.get("position_ids")
    return (
        not model.config.is_encoder_decoder
        and isinstance(cache, DynamicCache)
        and all(type(layer) is DynamicLayer for layer in cache.layers)
        and cache.get_seq_length() == 0
        and positions is not None
        and positions.dim() == 2
        and options.get("token_type_ids") is None
        and bool(options.get("use_cache"))
        and getattr(model.config, "_attn_implementation", None) in ("eager", "sdpa")
        and {"attention_mask", "position_ids"} <= set(inspect.signature(model.forward).parameters)
    )


class _Together:
    """Rows with one cache, in which each has places of its own: what a row no longer holds has attention 0."""

    def __init__(
        self, model: Any, prompts: torch.Tensor, config: GenerationConfig, options: dict[str, Any]
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._config = config
        self._options = options
        rows, length = prompts.shape
        mask = options.get("attention_mask")
        self._mask = prompts.new_ones(rows, length) if mask is None else mask.clone()
        self._last = options["position_ids"][:, -1].tolist()  # the position of the prompt's last token
        self._ends = [length - 1] * rows  # and its column
        self._held: list[list[int]] = [[] for _ in range(rows)]
        self._columns: list[list[int]] = [[] for _ in range(rows)]
        self._is_begun = False

    def logits(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """See `Passes`."""
        if not self._is_begun:
            self._is_begun = True
            outputs = self._model._prefill(self._prompts, self._config, self._options)
            self._cache = outputs.past_key_values
            first = _last(outputs)
            ready = {row: first[row] for row, ids in wanted.items() if not ids}
            rest = {row: ids for row, ids in wanted.items() if ids}
            return ready | (self._run(rest) if rest else {})
        return self._run(wanted)

    def _run(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        lacking = {row: self._cut(row, ids) for row, ids in wanted.items()}
        self._compact(max(map(len, lacking.values())))
        size = max(len(tokens) for tokens in lacking.values())
        rows, done = self._mask.shape
        chunk = [[0] * size for _ in range(rows)]
        places = [[0] * size for _ in range(rows)]
        alive = [[0] * size for _ in range(rows)]
        for row, tokens in lacking.items():
            gap = size - len(tokens)
            begin = self._last[row] + 1 + len(self._held[row]) - len(tokens)
            chunk[row][gap:] = tokens
            places[row][gap:] = range(begin, begin + len(tokens))
            alive[row][gap:] = [1] * len(tokens)
            columns = range(done + gap, done + size)
            if self._ends[row] < 0:
                self._ends[row], columns = columns[0], columns[1:]
            self._columns[row] += columns
        new = self._prompts.new_tensor
        self._mask = torch.cat([self._mask, self._mask.new_tensor(alive)], dim=1)
        keep = {"logits_to_keep": 1} if "logits_to_keep" in self._options else {}
        outputs = self._model(
            input_ids=new(chunk),
            attention_mask=self._mask,
            position_ids=new(places),
            past_key_values=self._cache,
            use_cache=True,
            return_dict=True,
            **keep,
        )
        last = _last(outputs)
        return {row: last[row] for row in wanted}

    def _cut(self, row: int, ids: Sequence[int]) -> list[int]:
        """Hide what a row no longer holds; the tokens that are to be read, the prompt's last one perhaps."""
        held, columns = self._held[row], self._columns[row]
        kept = min(_shared(held, ids), len(ids) - 1)
        first = max(kept, 0)
        self._mask[row, columns[first:]] = 0
        del columns[first:]
        self._held[row] = list(ids)
        if kept >= 0:
            return list(ids[kept:])
        self._mask[row, self._ends[row]] = 0
        self._ends[row] = -1
        return [int(self._prompts[row, -1])]

    def _compact(self, coming: int) -> None:
        """Leave out the places that no row holds, where they have become many."""
        alive = self._mask.sum(dim=1)
        most = int(alive.max())
        if self._mask.shape[1] + coming <= 2 * most + _SPARE:
            return
        # Those that are alive to the right, in their order, the others before them.
        order = torch.argsort(self._mask, dim=1, stable=True)[:, -most:]
        for layer in self._cache.layers:
            index = order[:, None, :, None].to(layer.keys.device)
            layer.keys = layer.keys.gather(2, index.expand(-1, layer.keys.shape[1], -1, layer.keys.shape[3]))
            layer.values = layer.values.gather(
                2, index.expand(-1, layer.values.shape[1], -1, layer.values.shape[3])
            )
        moved = [dict(zip(row, range(most), strict=True)) for row in order.tolist()]
        self._mask = self._mask.gather(1, order)
        self._columns = [
            [places[column] for column in own] for own, places in zip(self._columns, moved, strict=True)
        ]
        self._ends = [
            places[column] if column >= 0 else column
            for column, places in zip(self._ends, moved, strict=True)
        ]


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
