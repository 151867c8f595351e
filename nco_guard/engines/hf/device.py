"""The logits processor of accelerators: like `GuardLogitsProcessor`, but the host never waits for the device.

transformers lets the host run ahead of the device; a processor that reads ids back each step makes it wait. Here ids,
states and masks stay where the model is. What needs a decision of the host (a dead end that is an error, a row of
unknown origin) is noted on the device, masked safely, and raised by `check` once generation is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from transformers import LogitsProcessor

from nco_guard.copies import Begun
from nco_guard.engines.dead_ends import no_token_left
from nco_guard.engines.hf.device_rows import DeviceRows
from nco_guard.engines.hf.kinds import count
from nco_guard.engines.hf.processor import check_step
from nco_guard.engines.rows import tokens_left
from nco_guard.engines.scores import undefined_scores
from nco_guard.errors import (
    DeadEndError,
    GenerationError,
    StateLimitError,
    UnsupportedError,
)
from nco_guard.masking.device import DEVICE_ENDED, DEVICE_LOST, DEVICE_VIOLATED, DeviceTables
from nco_guard.session import BoundGuard

__all__ = ["DeviceLogitsProcessor", "TablesChoice", "chosen_tables"]

TablesChoice = Literal["auto", "host", "device"]

_NONE = -1  # in place of a row number
# Nobody asked for tables on the device: they are not worth more than a second or two.
_AUTO_STATES = 8192


def chosen_tables(
    bounds: Sequence[BoundGuard], device: torch.device, choice: TablesChoice, *, reports: bool, streams: bool
) -> DeviceTables | None:
    """The tables to generate with on this device; None: those of the host.

    bounds: the guard, or those of the single prompts. reports: somebody listens to every step. streams: a streamer
    reads every token anyway. "auto" takes the device's on CUDA where nothing speaks against it; `bound.stats` says
    where they did not fit.

    Errors: `UnsupportedError`, and those of `BoundGuard.device_tables`, only for "device".
    """
    bound = bounds[0]
    several = any(other is not bound for other in bounds)
    if choice == "device":
        if several:
            raise UnsupportedError("tables='device': guards of single prompts need tables='host'")
        if reports:
            raise UnsupportedError(
                "tables='device': step reports and audits need the host in every step; use tables='host'"
            )
        return bound.device_tables(device)
    if choice == "host" or device.type != "cuda" or several or reports or streams or bound.needs_context:
        return None
    if bound.shape is not None:
        return None
    try:
        return bound.device_tables(device, max_states=_AUTO_STATES)
    except StateLimitError:
        return None


class DeviceLogitsProcessor(Begun, LogitsProcessor):  # type: ignore[misc]
    """Makes `model.generate` unable to select a token after which the text could not end well, on the device.

    Guarantee: that of `GuardLogitsProcessor`, for one generation: the same scores, bit by bit. What goes wrong is told
    later, by `check` when the generation is over: a `DeadEndError` where no token was left and the policy had none
    either, and a `GenerationError` for a row that continued no row of the call before, or into which something else
    forced a token that is forbidden (there is no state for such a text). Such rows are ended meanwhile.
    Use `guard.generate(..., tables="device")`, which calls `check`.

    When not to use it: for step reports and audits, and for rules that read the prompt.

    bound, max_length, max_new_tokens, in_place, beams, engine_ends: as for `GuardLogitsProcessor`.
    tables: `bound.device_tables(device)`, on the device of the scores.
    prompt_length: columns of the ids that are prompts; by default all of the first call.
    drafts: positions are scored that may be discarded (assisted decoding, prompt lookup); a forbidden token in them is
    no error.

    Cost: one read of the ids, one gather of a mask and one pass over the scores; nothing is copied to the host.

    Examples:
        >>> policy = Policy(name="p", rules=[StringRule(id="rival", strings=["Acme Corp"])])
        >>> bound = Guard(policy).bind(tokenizer, vocab_width=model.config.vocab_size)
        >>> processor = DeviceLogitsProcessor(bound, bound.device_tables("cpu"), max_new_tokens=8)
        >>> ids = tokenizer("Write to", return_tensors="pt").input_ids
        >>> model.generate(ids, logits_processor=[processor], max_new_tokens=8).shape[0]
        1
    """

    def __init__(
        self,
        bound: BoundGuard,
        tables: DeviceTables,
        *,
        prompt_length: int | None = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        in_place: bool = False,
        beams: int = 1,
        engine_ends: bool = False,
        drafts: bool = False,
    ) -> None:
        vocabulary, device = bound.vocabulary, tables.device
        self._tables = tables
        self._prompt_length = prompt_length
        self._limits = (
            count("max_length", max_length, like="min_length"),
            count("max_new_tokens", max_new_tokens, like="min_length"),
        )
        self._in_place = in_place
        self._beams = beams
        self._engine_ends = engine_ends
        # Beam search fills up with impossible candidates where too few possible ones are left.
        self._may_break = drafts or beams > 1
        self._on_dead_end = bound.policy.on_dead_end
        self._fallback = bound.fallback_id if self._on_dead_end == "fallback" else None
        self._ends = vocabulary.eos_ids
        self._rows: DeviceRows | None = None

        self._pads = torch.zeros(vocabulary.width, dtype=torch.bool)
        silent = vocabulary.silent_ids
        pads = sorted(silent.intersection(vocabulary.special_ids).difference(self._ends))
        self._pads[pads] = True
        self._pads = self._pads.to(device)
        quiet = sorted(silent) or list(self._ends)
        self._quiet = torch.tensor(quiet, dtype=torch.int64).to(device)
        loud = torch.ones(vocabulary.width, dtype=torch.bool)
        loud[quiet] = False
        self._loud = loud.to(device)
        # The first row for which there was no token left; of unknown origin; that breaks the policy; with scores that
        # are no numbers.
        self._dead = torch.full((), _NONE, dtype=torch.int64, device=device)
        self._lost = torch.full((), _NONE, dtype=torch.int64, device=device)
        self._broken = torch.full((), _NONE, dtype=torch.int64, device=device)
        self._undefined = torch.full((), _NONE, dtype=torch.int64, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask one step: int64 [rows, length] and float [rows, width] -> float [rows, width]."""
        tables = self._tables
        check_step(input_ids, scores, tables.width)
        length = input_ids.shape[1]
        if self._rows is None:
            self._prompt_length = length if self._prompt_length is None else self._prompt_length
            self._rows = DeviceRows(tables, self._prompt_length)
        states = self._rows.advance(input_ids)
        self._note(self._lost, states == DEVICE_LOST)
        broken = states == DEVICE_VIOLATED
        if not self._may_break:
            self._note(self._broken, broken)

        live = (states != DEVICE_ENDED) & ~broken & (states != DEVICE_LOST)
        undefined = live & scores.amax(-1).isnan()
        self._note(self._undefined, undefined)

        ended = (states == DEVICE_ENDED)[:, None]
        forbidden = tables.forbidden(states, tokens_left(self._prompt_length or 0, length, *self._limits))
        # After the end of the text only tokens that add nothing; engines that stopped ignore the row.
        if not self._engine_ends:
            forbidden = torch.where(ended, self._loud[None, :], forbidden)
        result = scores if self._in_place else scores.clone(memory_format=torch.contiguous_format)
        if tables.soft:
            result -= tables.penalties(states).to(result.dtype)
        result.masked_fill_(forbidden | undefined[:, None], -math.inf)

        empty = result.amax(-1) == -math.inf
        if not self._engine_ends:
            # Somebody else masked what is silent; nothing but that may follow.
            quiet = result.index_select(1, self._quiet)
            allowed = torch.zeros_like(quiet).masked_fill(forbidden.index_select(1, self._quiet), -math.inf)
            result.index_copy_(1, self._quiet, torch.where(ended & empty[:, None], allowed, quiet))
        if self._beams == 1:  # something has to be left, or sampling would fail
            self._write(result, broken, torch.full_like(states, self._ends[0] if self._ends else 0))
        self._settle_dead(
            result,
            forbidden,
            empty & (states != DEVICE_ENDED) & ~broken,
            input_ids[:, -1],
            length > (self._prompt_length or 0),
        )
        return result

    @staticmethod
    def _note(where: torch.Tensor, rows: torch.Tensor) -> None:
        """Keep the first row for which something was so."""
        first = torch.where(rows.any(), rows.to(torch.int8).argmax(), _NONE)
        where.copy_(torch.where(where == _NONE, first, where))

    def _settle_dead(
        self,
        result: torch.Tensor,
        forbidden: torch.Tensor,
        dead: torch.Tensor,
        last: torch.Tensor,
        generated: bool,
    ) -> None:
        """Write a token where none is left: the policy's, else an end, which `check` reports.

        generated: the last tokens are no longer those of the prompts.
        """
        # A row that was stopped from outside where its text may not end gets pads, which use up what was left to bring
        # it to an end. One more pad adds no text either; whoever stopped it has to trim it.
        padded = dead & self._pads.index_select(0, last) & generated
        self._write(result, padded, last)
        dead = self._whole_groups(dead & ~padded)
        none = torch.full_like(last, _NONE)
        token = none
        if self._fallback is not None:
            token = torch.where(forbidden[:, self._fallback], none, self._fallback)
        elif self._on_dead_end == "end":
            for end in reversed(self._ends):
                # `generate` cuts a text back to where it may end; nobody else does.
                token = (
                    token.clamp(min=end, max=end)
                    if self._engine_ends
                    else torch.where(forbidden[:, end], token, end)
                )
        unresolved = dead & (token == _NONE)
        self._note(self._dead, unresolved)
        # Something has to be left, or sampling would fail on the device.
        token = torch.where(unresolved, self._ends[0] if self._ends else 0, token)
        self._write(result, dead, token)

    def _whole_groups(self, dead: torch.Tensor) -> torch.Tensor:
        """The dead rows that no live beam of the same sequence stands in for."""
        rows, beams = len(dead), self._beams
        if beams == 1:
            return dead
        missing = -rows % beams
        padded = torch.cat([dead, dead.new_ones(missing)]).view(-1, beams)
        return padded.all(1, keepdim=True).expand(-1, beams).reshape(-1)[:rows]

    @staticmethod
    def _write(result: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor) -> None:
        """A score of 0 for one token of each of the rows."""
        at = tokens.clamp(min=0)[:, None]
        result.scatter_(1, at, result.gather(1, at).masked_fill(rows[:, None], 0.0))

    def check(self) -> None:
        """Wait for the device, and raise what went wrong since the beginning: `DeadEndError`, `GenerationError`.

        To be called once the generation is over, before its texts are used.
        """
        notes = (self._lost, self._dead, self._broken, self._undefined)
        lost, dead, broken, undefined = (int(row.item()) for row in notes)
        if broken != _NONE:
            raise GenerationError(
                f"row {broken}: a token was written that the guard forbids, so there is no state for this text on the "
                f"device; put the guard last among the processors, or use tables='host'"
            )
        if undefined != _NONE:
            raise GenerationError(undefined_scores(undefined))
        if lost != _NONE:
            raise GenerationError(
                f"row {lost}: it continues no row of the call before, so what it says is not known on the device; use "
                f"tables='host' with this decoding loop"
            )
        if dead != _NONE:
            why = (
                "no token is left: what runs before the guard took all that the policy would let come, or too few may "
                "follow (tables='host' tells which); relax that"
            )
            raise DeadEndError(no_token_left(dead, why, self._on_dead_end))
