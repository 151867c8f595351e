"""From events to numbers, in one pass and with bounded memory.

Rules, models, corpora and policies are kept apart up to `GROUPS` different ones of each; all further ones are counted
together, and the report says so. Cost: some ten microseconds an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from nco_guard.audit.events import (
    AnyEvent,
    DeadEnd,
    DecodeView,
    GuaranteeConfigured,
    Intervention,
    LoadedRule,
    PolicyLoaded,
    RewindTarget,
    RunFinished,
    RunStarted,
    Verification,
)
from nco_guard.audit.report.model import (
    Corpus,
    DeadEndKind,
    Guarantee,
    Incident,
    Integrity,
    LoggedPolicy,
    LogReport,
    ModelTally,
    RuleTally,
    Source,
    Tally,
    Totals,
    notable,
)
from nco_guard.audit.report.runs import RecordedRun, Runs, bounded
from nco_guard.audit.report.table import KINDS
from nco_guard.audit.report.tallies import BackCount, CorpusCount, Kept, ModelCount, RuleCount, TallyCount
from nco_guard.audit.report.timeline import TimelineCounter

__all__ = ["Aggregator"]

_GuaranteeKey = tuple[str, str, int, DecodeView]

GROUPS: Final = 10_000
INCIDENTS: Final = 200
_NAMES: Final = 20
_MOST_SECONDS: Final = 1e12


@dataclass(slots=True)
class _Policy:
    first_seen: datetime
    names: dict[str, None] = field(default_factory=dict)
    rules: tuple[LoadedRule, ...] | None = None
    on_dead_end: str | None = None
    on_audit_failure: str | None = None
    loaded: int = 0
    runs: int = 0


@dataclass(slots=True)
class _Number:
    value: int = 0


class Aggregator:
    """Takes events in the order of the log; not thread-safe.

    exposure_from: how many code points of a would-be match make a text count as exposing a rule.
    """

    def __init__(self, *, exposure_from: int = 8, groups: int = GROUPS, incidents: int = INCIDENTS) -> None:
        if exposure_from < 1:
            raise ValueError("exposure_from must be at least 1")
        self._exposure_from = exposure_from
        self.runs = Runs()
        self._all = TallyCount()
        self._timeline = TimelineCounter()
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._kinds = dict.fromkeys(KINDS, 0)
        self._histogram = [0] * 10
        self._rules: Kept[str | None, RuleCount] = Kept(RuleCount, groups)
        self._models: Kept[str | None, ModelCount] = Kept(ModelCount, groups)
        self._corpora: Kept[tuple[Source, str | None], CorpusCount] = Kept(
            lambda: CorpusCount(groups), groups
        )
        self._dead_ends: Kept[str, _Number] = Kept(_Number, groups)
        self._back: dict[RewindTarget, BackCount] = {}
        self._outcomes: Kept[str, _Number] = Kept(_Number, groups)
        self._errors: Kept[str, _Number] = Kept(_Number, groups)
        self._incidents: deque[Incident] = deque(maxlen=incidents)
        self._incident_count = 0
        self._policies: dict[str, _Policy] = {}
        self._guarantees: dict[_GuaranteeKey, tuple[GuaranteeConfigured, _Number]] = {}
        self._groups = groups
        self._policies_left_out = self._guarantees_left_out = 0
        self._guarded_runs = self._runs_changed = self._unfinished = 0
        self._sequences = self._guarded_sequences = self._guarded_unverified = self._tokens = 0
        self._seconds = 0.0

    def add(self, event: AnyEvent) -> RecordedRun:
        """Count one event; returns the run that it belongs to."""
        run = self.runs.of(event)
        self._kinds[event.kind] += 1
        self._first = event.time if self._first is None else min(self._first, event.time)
        self._last = event.time if self._last is None else max(self._last, event.time)
        now = self._timeline.at(event.time)
        if isinstance(event, Intervention):
            now.interventions += 1
            now.removed_probability += event.removed_probability or 0.0
            self._intervention(event, run)
        elif isinstance(event, DeadEnd):
            now.dead_ends += 1
            self._all.dead_ends += 1
            self._models.of(run.model_id).dead_ends += 1
            for rule_id in dict.fromkeys(event.rule_ids) or (None,):
                self._rules.of(rule_id).dead_ends += 1
            self._dead_ends.of(event.resolution).value += 1
        elif isinstance(event, Verification):
            now.violations += not event.ok
            self._verification(event, run)
        elif isinstance(event, RunStarted):
            now.runs += 1
            self._started(event, run)
        elif isinstance(event, RunFinished):
            now.errors += event.error is not None
            self._finished(event, run)
        elif isinstance(event, PolicyLoaded):
            self._loaded(event)
        elif isinstance(event, GuaranteeConfigured):
            self._configured(event)
        self._incident(event, run)
        return run

    def _intervention(self, event: Intervention, run: RecordedRun) -> None:
        if not run.changed:
            run.changed = True
            self._runs_changed += 1
        self._all.intervention(event)
        self._models.of(run.model_id).intervention(event)
        for rule_id in dict.fromkeys(event.rule_ids) or (None,):
            self._rules.of(rule_id).intervention(event)
        if event.removed_probability is not None:
            self._histogram[min(int(event.removed_probability * 10), 9)] += 1

    def _verification(self, event: Verification, run: RecordedRun) -> None:
        digest = event.policy_digest or run.policy_digest
        found = self._corpora.of((run.source, digest)).verification(event, self._exposure_from)
        if event.sequence is not None and run.in_progress:
            run.verified.add(event.sequence)
        if run.source != "apart":
            model = self._models.of(run.model_id)
            model.texts += 1
            model.violations += not event.ok
        for rule_id, count in found.items():
            rule = self._rules.of(rule_id)
            rule.texts += 1
            rule.findings += count

    def _started(self, event: RunStarted, run: RecordedRun) -> None:
        self._unfinished += not run.in_progress
        run.in_progress = True
        self._guarded_runs += run.source == "guarded"
        self._models.of(run.model_id).runs += 1
        policy = self._policy(event.policy_digest, event.policy_name, event.time)
        if policy is not None:
            policy.runs += 1

    def _finished(self, event: RunFinished, run: RecordedRun) -> None:
        self._unfinished -= run.in_progress
        run.in_progress = False
        tokens, seconds = bounded(event.tokens), min(event.seconds, _MOST_SECONDS)
        model = self._models.of(run.model_id)
        model.finished += 1
        model.sequences += len(event.outcomes)
        model.tokens += tokens
        model.seconds += seconds
        self._sequences += len(event.outcomes)
        self._tokens += tokens
        self._seconds += seconds
        for outcome in event.outcomes:
            self._outcomes.of(outcome).value += 1
        if event.back_to is not None and event.fallbacks is not None:
            self._back.setdefault(event.back_to, BackCount()).add(event.fallbacks)
        if event.error is not None:
            model.errors += 1
            self._errors.of(event.error).value += 1
        elif run.source == "guarded":
            self._guarded_sequences += len(event.outcomes)
            self._guarded_unverified += len(set(range(len(event.outcomes))) - run.verified)
        run.verified.clear()

    def _policy(self, digest: str, name: str, time: datetime) -> _Policy | None:
        policy = self._policies.get(digest)
        if policy is None:
            if len(self._policies) >= self._groups:
                self._policies_left_out += 1
                return None
            policy = self._policies[digest] = _Policy(time)
        policy.first_seen = min(policy.first_seen, time)
        if len(policy.names) < _NAMES:
            policy.names[name] = None
        return policy

    def _loaded(self, event: PolicyLoaded) -> None:
        for rule in event.rules:
            known = self._rules.of(rule.rule_id)
            known.types.add(rule.type)
            known.modes.add(rule.mode)
        policy = self._policy(event.policy_digest, event.policy_name, event.time)
        if policy is not None:
            policy.loaded += 1
            policy.rules = event.rules
            policy.on_dead_end, policy.on_audit_failure = event.on_dead_end, event.on_audit_failure

    def _configured(self, event: GuaranteeConfigured) -> None:
        # What is the same, whoever said it and when; the first to say it stands for all.
        key = event.policy_digest, event.tokenizer_digest, event.vocabulary_size, event.decode_view
        if key not in self._guarantees and len(self._guarantees) >= self._groups:
            self._guarantees_left_out += 1
        else:
            self._guarantees.setdefault(key, (event, _Number()))[1].value += 1

    def _incident(self, event: AnyEvent, run: RecordedRun) -> None:
        kind = notable(event)
        if kind is None:
            return
        self._incident_count += 1
        what: str | None = None
        if isinstance(event, DeadEnd):
            what = event.resolution
        elif isinstance(event, RunFinished):
            what = event.error
        rules = event.rule_ids if isinstance(event, DeadEnd) else ()
        if isinstance(event, Verification):
            rules = tuple(dict.fromkeys(span.rule_id for span in event.findings))
        sequence = event.sequence if isinstance(event, DeadEnd | Verification) else None
        self._incidents.append(
            Incident(
                kind=kind,
                time=event.time,
                run_id=event.run_id,
                number=bounded(event.number),
                request_id=event.request_id,
                model_id=run.model_id,
                source=run.source,
                sequence=None if sequence is None else bounded(sequence),
                step=bounded(event.step) if isinstance(event, DeadEnd) else None,
                rule_ids=rules,
                what=what,
            )
        )

    def result(self, integrity: Integrity, generated: datetime | None = None) -> LogReport:
        """The numbers so far, with the verdict on the log that they come from."""
        return LogReport(
            generated=datetime.now(UTC) if generated is None else generated,
            integrity=integrity,
            first=self._first,
            last=self._last,
            totals=self._totals(),
            all=Tally(**self._all.fields()),
            timeline=self._timeline.result(),
            removed_histogram=tuple(self._histogram),
            rules=self._rule_tallies(),
            models=self._model_tallies(),
            corpora=self._corpus_results(),
            exposure_from=self._exposure_from,
            dead_ends=tuple(
                DeadEndKind(resolution=resolution, count=number.value)
                for resolution, _, number in self._dead_ends.items()
            ),
            back=tuple(count.result(back_to) for back_to, count in sorted(self._back.items())),
            outcomes=_numbers(self._outcomes),
            errors=_numbers(self._errors),
            incidents=tuple(self._incidents),
            incidents_left_out=self._incident_count - len(self._incidents),
            policies=tuple(
                LoggedPolicy(
                    policy_digest=digest,
                    names=tuple(one.names),
                    rules=one.rules,
                    on_dead_end=one.on_dead_end,
                    on_audit_failure=one.on_audit_failure,
                    loaded=one.loaded,
                    runs=one.runs,
                    first_seen=one.first_seen,
                )
                for digest, one in self._policies.items()
            ),
            policies_left_out=self._policies_left_out,
            guarantees=tuple(
                Guarantee(
                    policy_digest=event.policy_digest,
                    tokenizer_digest=event.tokenizer_digest,
                    vocabulary_size=bounded(event.vocabulary_size),
                    skip_special_tokens=event.decode_view.skip_special_tokens,
                    covered_ends=event.decode_view.covered_ends,
                    times=times.value,
                    first_seen=event.time,
                )
                for event, times in self._guarantees.values()
            ),
            guarantees_left_out=self._guarantees_left_out,
        )

    def _totals(self) -> Totals:
        return Totals(
            events=sum(self._kinds.values()),
            kinds=dict(self._kinds),
            guard_starts=self._kinds["policy_loaded"],
            runs=self._kinds["run_started"],
            guarded_runs=self._guarded_runs,
            runs_changed=self._runs_changed,
            finished=self._kinds["run_finished"],
            unfinished=self._unfinished,
            errors=sum(_numbers(self._errors).values()),
            sequences=self._sequences,
            guarded_sequences=self._guarded_sequences,
            guarded_unverified=self._guarded_unverified,
            tokens=self._tokens,
            seconds=self._seconds,
            lost=self.runs.lost,
            out_of_order=self.runs.out_of_order,
            cut_runs=self.runs.cut,
            set_aside=self.runs.set_aside,
        )

    def _rule_tallies(self) -> tuple[RuleTally, ...]:
        tallies = [
            RuleTally(rule_id=rule_id, others=others, **one.fields())
            for rule_id, others, one in self._rules.items()
        ]
        # What did most comes first, then in the order of the log; the others come last.
        tallies.sort(key=lambda one: (one.others, -one.interventions, -one.findings, -one.dead_ends))
        return tuple(tallies)

    def _model_tallies(self) -> tuple[ModelTally, ...]:
        tallies = [
            ModelTally(model_id=model_id, others=others, **one.fields())
            for model_id, others, one in self._models.items()
        ]
        tallies.sort(key=lambda one: (one.others, -one.interventions, -one.runs, -one.texts))
        return tuple(tallies)

    def _corpus_results(self) -> tuple[Corpus, ...]:
        order: tuple[Source, ...] = ("guarded", "cut", "observed", "apart")
        results = [
            count.result(*(("cut", None) if key is None else key), others=others)
            for key, others, count in self._corpora.items()
        ]
        results.sort(key=lambda one: (one.others, order.index(one.source), -one.texts))
        return tuple(results)


def _numbers(kept: Kept[str, _Number]) -> dict[str, int]:
    """Counts by label, the most frequent first; labels never hold a space, so "further ones" is none."""
    counts: Mapping[str, int] = {label: number.value for label, number in kept.known.items()}
    ordered = dict(sorted(counts.items(), key=lambda item: -item[1]))
    return ordered if kept.others is None else {**ordered, "further ones": kept.others.value}
