"""The decoding loop that goes back: a `custom_generate` of `model.generate`, so that all else stays transformers' own.

Processors before the guard's place, and those after it that truncate, make the model's distribution; where the mask has
to act it acts between them, as it does otherwise.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import transformers as hf
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from nco_guard.engines.hf.options import Settings
from nco_guard.engines.hf.passes import passes_of
from nco_guard.engines.hf.processor import check_step
from nco_guard.engines.recording import FellBack
from nco_guard.engines.rows import LiveRows, RowMasker, StepReport
from nco_guard.engines.tensors import scores_of
from nco_guard.errors import StateLimitError, UnsupportedError
from nco_guard.policy import Rewind
from nco_guard.rewinding import MatchStarts, RewindCounts, RewindingRow, Rewound
from nco_guard.rewinding.prefixes import Probabilities
from nco_guard.session import BoundGuard, TextState
from nco_guard.session.rows import LimitMet, in_fresh_tables

__all__ = ["RewindChoice", "RewindingProcessor", "put_stop_strings", "rewinding_loop"]

_DRAFTS = "drafts are accepted by a loop that does not go back"
_NOTHING_KEPT = "of tokens that are taken back nothing is kept"
# What a text that goes back cannot be generated with, and why.
_NOT_BACK = {
    **dict.fromkeys(("assistant_model", "prompt_lookup_num_tokens"), _DRAFTS),
    **dict.fromkeys(("output_attentions", "output_hidden_states"), _NOTHING_KEPT),
    "guidance_scale": "it keeps a cache of its own, which does not go back",
    "synced_gpus": "rows go back at different times",
    "watermarking_config": "it draws from what was drawn before",
}
# Processors that look at scores alone: rows of any length are shown to them at once.
_SCORES_ONLY = {
    hf.TemperatureLogitsWarper,
    hf.TopKLogitsWarper,
    hf.TopPLogitsWarper,
    hf.MinPLogitsWarper,
    hf.TypicalLogitsWarper,
    hf.EpsilonLogitsWarper,
    hf.EtaLogitsWarper,
    hf.LogitNormalization,
    hf.InfNanRemoveLogitsProcessor,
}
_MEMORY = 256 << 20  # bytes of probabilities that the rows of a call keep


@dataclass(frozen=True)
class RewindChoice:
    """What a call says about what is to happen where a token is blocked; None: what the policy says."""

    when_blocked: str | None = None
    rewind: Rewind | None = None

    @classmethod
    def taken(cls, arguments: dict[str, Any]) -> RewindChoice:
        """The choice among a call's options, which `model.generate` does not know. Errors: `UnsupportedError`."""
        when, rewind = arguments.pop("when_blocked", None), arguments.pop("rewind", None)
        if rewind is not None and when == "mask":
            raise UnsupportedError("rewind: it has no effect with when_blocked='mask'; give one of the two")
        if isinstance(rewind, Mapping):
            rewind = Rewind.model_validate(rewind)
        return cls(when, rewind)

    def settings(
        self, bounds: Sequence[BoundGuard], options: Settings, *, streams: bool, tables: str
    ) -> list[Rewind] | None:
        """How the text of each prompt goes back; None: the mask acts, as it always does with beams.

        Errors: `UnsupportedError` for what cannot go back.
        """
        wanted = [self.of(bound) for bound in bounds]
        given = [one for one in wanted if one is not None]
        if options.beams > 1:
            _warn_of_renormalizing(options)
        if options.beams > 1 or not given:
            return None
        if any(bound.shape is not None for bound in bounds):
            raise UnsupportedError(
                "when_blocked='rewind': a text of a shape does not go back; say when_blocked='mask'"
            )
        if len(given) < len(wanted):
            raise UnsupportedError(
                "when_blocked: the policies of these prompts differ in it; say which for all, as when_blocked='mask'"
            )
        if streams and any(one.back_to == "text" for one in given):
            raise UnsupportedError(
                "rewind: a text that may go back to its beginning cannot be streamed; use back_to='match' or 'sentence'"
            )
        if any(bound.vocabulary.borders or bound.vocabulary.regions is not None for bound in bounds):
            raise UnsupportedError(
                "when_blocked='rewind': where a match began is not followed where texts are cut; leave borders and "
                "regions out, or say when_blocked='mask'"
            )
        if tables == "device":
            raise UnsupportedError("when_blocked='rewind': tables are the host's then; leave tables out")
        cache = options.get("cache_implementation")
        if isinstance(cache, str) and cache.startswith("offloaded"):
            raise UnsupportedError(
                f"cache_implementation={cache!r}: what is on its way to the host cannot be taken back; leave it "
                f"out, or say when_blocked='mask'"
            )
        for name, reason in _NOT_BACK.items():
            value = options.get(name)
            if value is not None and value is not False and not (name == "guidance_scale" and value == 1):
                raise UnsupportedError(f"{name}: {reason}; leave it out, or say when_blocked='mask'")
        return given

    def of(self, bound: BoundGuard) -> Rewind | None:
        """How texts under a policy go back; None: the mask acts."""
        policy = bound.policy
        when = self.when_blocked or ("rewind" if self.rewind is not None else policy.when_blocked)
        return None if when == "mask" else self.rewind or policy.rewind or Rewind()


def _warn_of_renormalizing(options: Settings) -> None:
    """It undoes that a beam pays for what was blocked."""
    if options.get("renormalize_logits"):
        warnings.warn(
            "renormalize_logits: beams that were led to something forbidden are then not less probable for it, and win "
            "with what they say in its place; leave it out",
            UserWarning,
            stacklevel=5,
        )


class RewindingProcessor(LogitsProcessor):  # type: ignore[misc]
    """Marks the guard's place among the processors of a call that goes back, and carries what the loop needs.

    bounds, settings: of each prompt. max_length: prompt included. on_step: receives what the mask did where it had to
    act. streamer: of the one row; `generate` shows it the prompt. `counts` says what became of each row.
    """

    def __init__(
        self,
        bounds: Sequence[BoundGuard],
        settings: Sequence[Rewind],
        *,
        max_length: int,
        reads_prompt: bool,
        on_step: Callable[[StepReport], None] | None = None,
        changes_only: bool = False,
        streamer: Any = None,
    ) -> None:
        self.bounds = bounds
        self.settings = settings
        self.max_length = max_length
        self.reads_prompt = reads_prompt
        self.on_step = on_step
        self.changes_only = changes_only
        self.streamer = streamer
        self.counts: list[RewindCounts] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Nothing is changed here."""
        return scores

    def fell_back(self) -> list[FellBack]:
        """What is recorded of each row, once all are over."""
        count = len(self.counts)
        targets = [self.settings[row * len(self.settings) // count].back_to for row in range(count)]
        return [FellBack(*one) for one in zip(targets, (each.fallbacks for each in self.counts), strict=True)]


def put_stop_strings(arguments: dict[str, Any], options: Settings, tokenizer: Any) -> None:
    """Stop strings as a criterion: `generate` would not find the tokenizer with a loop that is not its own."""
    stops = options.get("stop_strings")
    if stops is None:
        return
    arguments.pop("stop_strings", None)
    config = arguments.get("generation_config")
    if config is not None and config.stop_strings is not None:
        arguments["generation_config"] = config = copy.deepcopy(config)
        config.stop_strings = None
    if Settings(options.model, arguments).get("stop_strings") is not None:
        raise UnsupportedError(
            "stop_strings: those of the model's own generation_config cannot be heard by a loop that goes back; take "
            "them out there and give them with the call, or say when_blocked='mask'"
        )
    given = arguments.get("stopping_criteria") or ()
    arguments["stopping_criteria"] = StoppingCriteriaList([*given, hf.StopStringCriteria(tokenizer, stops)])


def rewinding_loop(
    model: Any,
    input_ids: torch.Tensor,
    *,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    synced_gpus: bool = False,
    **options: Any,
) -> Any:
    """Generate; as transformers calls its own loops, and with their results. `RewindingProcessor` is in the list."""
    place = next(i for i, one in enumerate(logits_processor) if isinstance(one, RewindingProcessor))
    marker = logits_processor[place]
    loop = _Loop(
        marker,
        input_ids,
        before=LogitsProcessorList(logits_processor[:place]),
        after=LogitsProcessorList(logits_processor[place + 1 :]),
        stops=_criteria(stopping_criteria),
        config=generation_config,
    )
    passes = passes_of(model, input_ids, generation_config, options)
    with torch.inference_mode():
        while wanted := loop.wanted():
            loop.take(passes.logits(wanted))
    marker.counts = [row.decided.counts for row in loop.rows]
    return loop.result(encoder_decoder=model.config.is_encoder_decoder)


def _criteria(given: StoppingCriteriaList) -> StoppingCriteriaList:
    """Those that a row does not see to by itself."""
    return StoppingCriteriaList(
        one for one in given if not isinstance(one, (hf.MaxLengthCriteria, hf.EosTokenCriteria))
    )


def _seeds(count: int) -> list[int]:
    """What each row's draws begin from: torch's generator says it, so that seeding that one is enough."""
    found: list[int] = torch.randint(0, 1 << 62, (count,)).tolist()
    return found


class _AllowedOfRows(LogitsProcessor):  # type: ignore[misc]
    """A `prefix_allowed_tokens_fn` asked about some rows alone: after what it does not expect it may allow nothing."""

    def __init__(self, function: Callable[[int, torch.Tensor], list[int]], rows: Sequence[int]) -> None:
        self._function = function
        self._rows = rows

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        found = scores.clone()
        for row in self._rows:
            own = hf.PrefixConstrainedLogitsProcessor(partial(self._of_row, row), 1)
            found[row] = own(input_ids[row : row + 1], scores[row : row + 1])[0]
        return found

    def _of_row(self, row: int, _: int, ids: torch.Tensor) -> list[int]:
        return self._function(row, ids)


def _asked(processor: Any, rows: Sequence[int]) -> Any:
    """A processor as it is to be asked about these rows."""
    if type(processor) is hf.PrefixConstrainedLogitsProcessor:
        return _AllowedOfRows(processor._prefix_allowed_tokens_fn, rows)
    return processor


class _Row:
    """A row of the call: its prompt, what it has decided, and what its text was drawn from."""

    def __init__(
        self,
        number: int,
        prompt: torch.Tensor,
        bound: BoundGuard,
        decided: RewindingRow,
        settled: Callable[[], int],
    ) -> None:
        self.number = number
        self.prompt = prompt
        self.bound = bound
        self.decided = decided
        self.settled = settled
        self.noted: list[
            tuple[torch.Tensor, torch.Tensor]
        ] = []  # after each prefix: logits, and the scores drawn from

    @property
    def ids(self) -> list[int]:
        return self.decided.ids

    def note(self, logits: torch.Tensor, scores: torch.Tensor) -> None:
        """Keep what the model says here."""
        self.noted[len(self.ids) :] = [(logits, scores)]

    def forget_cut(self) -> None:
        """Keep nothing of what was cut off."""
        if len(self.noted) > len(self.ids) + 1:
            del self.noted[len(self.ids) + 1 :]
            self.decided.forget_cut()


class _Loop:
    """The rows of one call between two passes of the model."""

    def __init__(
        self,
        marker: RewindingProcessor,
        prompts: torch.Tensor,
        *,
        before: LogitsProcessorList,
        after: LogitsProcessorList,
        stops: StoppingCriteriaList,
        config: GenerationConfig,
    ) -> None:
        self._marker = marker
        self._prompts = prompts
        self._before, self._after = before, after
        self._stops = stops
        self._config = config
        self._streamer = marker.streamer
        count = len(prompts)
        seeds = _seeds(count)
        self.rows = [self._row(row, count, seeds[row]) for row in range(count)]
        self._notes = bool(config.return_dict_in_generate and (config.output_scores or config.output_logits))

    def _row(self, number: int, count: int, seed: int) -> _Row:
        marker = self._marker
        place = number * len(marker.bounds) // count
        bound, settings = marker.bounds[place], marker.settings[place]
        prompt = self._prompts[number : number + 1]
        context = prompt[0].tolist() if marker.reads_prompt and bound.needs_context else None
        text = TextState(bound, context)
        starts = MatchStarts(bound, text)
        decided = RewindingRow(
            text,
            starts,
            settings,
            limit=marker.max_length - self._prompts.shape[1],
            greedy=not self._config.do_sample,
            uniform=np.random.default_rng(seed).random,
            stops=partial(self._stopped, prompt) if self._stops else None,
            on_rewind=None if marker.on_step is None else partial(self._tell, number),
            most=_MEMORY // count,
        )
        return _Row(
            number, prompt, bound, decided, partial(starts.settled, sentences=settings.back_to == "sentence")
        )

    def _tell(self, row: int, blocked: Rewound) -> None:
        """Hand on that a row goes back."""
        if self._marker.on_step is not None:
            self._marker.on_step(
                StepReport(
                    rows=[row],
                    steps=[blocked.step],
                    top_forbidden=[blocked.top_forbidden],
                    top_penalized=[False],
                    rule_ids=[blocked.rules],
                    best_allowed_rank=[blocked.rank],
                    removed_mass=[blocked.removed],
                    dead_end=[None],
                    forced=[None],
                    discarded=[blocked.discarded],
                )
            )

    def _stopped(self, prompt: torch.Tensor, ids: Sequence[int]) -> bool:
        whole = torch.cat([prompt, prompt.new_tensor([list(ids)])], dim=1)
        return bool(self._stops(whole, None).any())

    def wanted(self) -> dict[int, list[int]]:
        """The texts after which the model is to be asked, by row; none: all are over."""
        return {row.number: row.ids for row in self.rows if not row.decided.is_over}

    def take(self, logits: Mapping[int, torch.Tensor]) -> None:
        """What the model says about each; the rows go on to where it is to be asked again."""
        rows = [self.rows[number] for number in logits]
        raw = torch.stack(list(logits.values()))
        scores = self._processed(self._before, rows, raw.clone())
        check_step(self._prompts[: len(rows)], scores, rows[0].bound.vocabulary.width)
        penalised = scores.clone()
        for at, row in enumerate(rows):
            tokens, amounts = row.decided.penalties()
            if len(tokens):
                penalised[at, torch.from_numpy(tokens.copy())] -= torch.from_numpy(amounts.copy()).to(
                    penalised
                )
        final = torch.softmax(self._processed(self._after, rows, penalised), dim=-1)
        probabilities = final.cpu().numpy()
        for at, row in enumerate(rows):
            if self._notes:
                row.note(raw[at].clone(), final[at].log())
            look = _Look(probabilities[at], partial(self._masked, row, scores[at : at + 1]))
            row.decided.visit(look)
            row.forget_cut()
            row.decided.go()
            self._show(row)

    def _processed(
        self, processors: LogitsProcessorList, rows: Sequence[_Row], scores: torch.Tensor
    ) -> torch.Tensor:
        """float [rows, width], what processors make of scores.

        Those that look at ids are shown rows of one length at a time, each in its place among as many as there are in
        the call: some count the rows. In the other places there are texts too: those of longer rows, cut, or the first
        of these again.
        """
        if all(type(one) in _SCORES_ONLY for one in processors):
            return processors(self._prompts[: len(rows)], scores) if processors else scores
        found = scores.clone()
        for length in {len(row.ids) for row in rows}:
            places = [at for at, row in enumerate(rows) if len(row.ids) == length]
            numbers = [rows[at].number for at in places]
            shown = [row if len(row.ids) >= length else rows[places[0]] for row in self.rows]
            ids = torch.stack(
                [torch.cat([row.prompt[0], row.prompt.new_tensor(row.ids[:length])]) for row in shown]
            )
            given = scores[places[:1]].repeat(len(self.rows), 1)
            given[numbers] = scores[places]
            asked = LogitsProcessorList(_asked(one, numbers) for one in processors)
            found[places] = asked(ids, given)[numbers].to(found)
        return found

    def _masked(self, row: _Row, scores: torch.Tensor) -> Probabilities:
        """float [width]: what a row is drawn from where the mask acts: on the scores before what truncates."""
        marker, text = self._marker, row.decided.text
        masker = RowMasker(
            engine_ends=True,
            on_step=self._on_step_of(row.number),
            changes_only=marker.changes_only,
            scores_of=scores_of,
        )
        left = marker.max_length - self._prompts.shape[1] - len(row.ids) - 1
        last = row.ids[-1] if row.ids else None

        def mask() -> torch.Tensor:
            result, tables = scores.clone(), row.bound.tables
            group = LiveRows.none(row.bound, tables)
            try:
                group.add(0, text.state(tables), left, len(row.ids), last)
            except StateLimitError as error:
                raise LimitMet(0) from error
            masker.apply(result, [group])
            return result

        masked = in_fresh_tables(mask, lambda _: text.give_up(), 1)
        final = self._processed(self._after, [row], masked)
        found: Probabilities = torch.softmax(final, dim=-1)[0].cpu().numpy()
        return found

    def _on_step_of(self, row: int) -> Callable[[StepReport], None] | None:
        on_step = self._marker.on_step
        return (
            None if on_step is None else lambda report: on_step(report.part(range(len(report.rows)), [row]))
        )

    def _show(self, row: _Row) -> None:
        """Hand the streamer what stays whatever comes."""
        if self._streamer is None:
            return
        decided = row.decided
        upto = len(row.ids) if decided.is_over else max(decided.shown, row.settled())
        if upto > decided.shown:
            self._streamer.put(torch.tensor(row.ids[decided.shown : upto]))
            decided.shown = upto
        if decided.is_over:
            self._streamer.end()

    def result(self, *, encoder_decoder: bool) -> Any:
        """What `model.generate` returns."""
        longest = max(len(row.ids) for row in self.rows)
        pad = self._config._pad_token_tensor
        fill = 0 if pad is None else int(pad)
        texts = [row.ids + [fill] * (longest - len(row.ids)) for row in self.rows]
        sequences = torch.cat([self._prompts, self._prompts.new_tensor(texts)], dim=1)
        if not self._config.return_dict_in_generate:
            return sequences
        made = GenerateEncoderDecoderOutput if encoder_decoder else GenerateDecoderOnlyOutput
        return made(
            sequences=sequences,
            logits=self._noted(0, longest) if self._config.output_logits else None,
            scores=self._noted(1, longest) if self._config.output_scores else None,
        )

    def _noted(self, which: int, longest: int) -> tuple[torch.Tensor, ...]:
        """float [rows, width] for each step; zeros where a row is over."""
        nothing = torch.zeros_like(self.rows[0].noted[0][which])
        return tuple(
            torch.stack([row.noted[step][which] if step < len(row.ids) else nothing for row in self.rows])
            for step in range(longest)
        )


@dataclass(frozen=True)
class _Look:
    """See `nco_guard.rewinding.row.Prediction`."""

    probabilities: Probabilities
    masked: Callable[[], Probabilities]
