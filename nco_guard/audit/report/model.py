"""The numbers of a report, as frozen records: what `--json` prints, what the page shows, what tests compare.

Everything here is counted from events; no field holds anything that an event does not. Probabilities are sums of the
model's own probabilities, from 0 to 1 each; rates are percentages, None where there is nothing to take a rate of.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict

from nco_guard.audit.events import (
    AnyEvent,
    DeadEnd,
    LoadedRule,
    RewindTarget,
    RunFinished,
    Verification,
)

__all__ = [
    "REPORT_VERSION",
    "Bucket",
    "Corpus",
    "DeadEndKind",
    "GoneBack",
    "Guarantee",
    "Incident",
    "Integrity",
    "LogReport",
    "LoggedPolicy",
    "LoggedProblem",
    "ModelTally",
    "RuleExposure",
    "RuleFindings",
    "RuleTally",
    "Source",
    "Tally",
    "Timeline",
    "Totals",
    "notable",
]

REPORT_VERSION: Final = 1
"""The version of the JSON form; it changes with the meaning or the names of fields."""

Source = Literal["guarded", "observed", "cut", "apart"]
"""Where a verified text comes from.

"guarded": a run in which the guard chose the tokens (it says through which tokenizer). "observed": a call of a model or
tool that was watched only. "cut": a run whose beginning is not in the log, so that nobody can say which of the two.
"apart": no run; a corpus, a retrieved document, a text given to the verifier.
"""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class LoggedProblem(_Frozen):
    """One thing that is not as it was written; see `nco_guard.audit.Problem`."""

    what: str
    file: str
    line: int
    message: str


class Integrity(_Frozen):
    """Whether the log is as it was written, and what that rests on.

    state: "intact"; "open": nothing is wrong but that chains have no end, which is what a log in use looks like, and
        one whose end was cut off; "altered": something was edited, removed, moved, or lacks its signature or anchor;
        "untold": the log was written without a chain (all of its lines, or a database), so nothing can be told.
    signatures_checked: a key was given. signed_chains: chains signed up to their last line by it. anchors: how many
    were held against the log. problems: the first of them; `problem_counts` counts all, by kind.
    limits: what could not be told, a sentence each. absent: lines that were put away and not read.
    """

    state: Literal["intact", "open", "altered", "untold"]
    files: tuple[str, ...]
    lines: int
    chains: int
    open_chains: int
    signatures_checked: bool
    signed_chains: int
    anchors: int
    problems: tuple[LoggedProblem, ...]
    problem_counts: dict[str, int]
    limits: tuple[str, ...]
    absent: int

    @property
    def vouched(self) -> bool:
        """Whether keys and anchors vouch for all of the log up to the last anchor: then answers need no "but"."""
        return (
            self.state == "intact"
            and not (self.open_chains or self.absent)
            and bool(self.signatures_checked and self.anchors)
            and self.signed_chains == self.chains
        )


class Totals(_Frozen):
    """The whole log in numbers.

    guard_starts: guards built. runs: generations and watched calls that began; `guarded_runs` those in which the guard
        chose the tokens. runs_changed: runs with at least one intervention. unfinished: those that began and did not
        end in the log.
    lost: numbers that are missing between two events of a run. out_of_order: events whose number had passed.
    cut_runs: runs whose first event is not in the log. set_aside: runs that were forgotten to bound memory; an event of
        theirs that came later counts as one of a cut run.
    sequences, tokens, seconds: of finished runs. guarded_sequences: of guarded runs that finished without an error;
        `guarded_unverified` of them have no verification in the log before the end of their run.
    """

    events: int
    kinds: dict[str, int]
    guard_starts: int
    runs: int
    guarded_runs: int
    runs_changed: int
    finished: int
    unfinished: int
    errors: int
    sequences: int
    guarded_sequences: int
    guarded_unverified: int
    tokens: int
    seconds: float
    lost: int
    out_of_order: int
    cut_runs: int
    set_aside: int


class Tally(_Frozen):
    """What the guard did.

    interventions: steps at which the model's first choice was forbidden or penalised, or that somebody recorded.
    removed_probability: sum over the `removed_known` interventions that say what the masked tokens had.
    first_choice_forbidden: interventions at which the model's first choice was forbidden.
    """

    interventions: int = 0
    masked: int = 0
    penalized: int = 0
    rewound: int = 0
    recorded: int = 0
    first_choice_forbidden: int = 0
    removed_known: int = 0
    removed_probability: float = 0.0
    dead_ends: int = 0

    @property
    def mean_removed(self) -> float | None:
        """Mean probability removed, over interventions that say it."""
        return self.removed_probability / self.removed_known if self.removed_known else None


class RuleTally(Tally):
    """One rule. An intervention, dead end or text with several rules counts for each of them.

    rule_id: None for events that name no rule. others: this is what came after more different rules than are kept
        apart. types, modes: as policies in this log load it. findings, texts: matches found by the verifier, and texts
        with at least one.
    """

    rule_id: str | None
    others: bool = False
    types: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    findings: int = 0
    texts: int = 0


class ModelTally(Tally):
    """One model. model_id: None where runs do not say, or where their beginning is not in the log.

    texts, violations: of its runs. Texts that belong to no run count for no model.
    """

    model_id: str | None
    others: bool = False
    runs: int = 0
    finished: int = 0
    errors: int = 0
    sequences: int = 0
    tokens: int = 0
    seconds: float = 0.0
    texts: int = 0
    violations: int = 0


class Bucket(_Frozen):
    """A stretch of time, from `start` on."""

    start: AwareDatetime
    interventions: int = 0
    removed_probability: float = 0.0
    dead_ends: int = 0
    violations: int = 0
    errors: int = 0
    runs: int = 0


class Timeline(_Frozen):
    """Buckets of `seconds` each, without gaps; empty for a log without events."""

    seconds: int
    buckets: tuple[Bucket, ...]


class RuleFindings(_Frozen):
    """Matches of a rule in a corpus: texts with at least one, and all of them. rule_id: None for further rules."""

    rule_id: str | None
    texts: int
    findings: int


class RuleExposure(_Frozen):
    """How far texts of a corpus get towards a match of a rule: their longest beginnings of one, in code points.

    texts: texts with any; exposed: texts in which it is at least as long as the report's `exposure_from`; rate: those,
    as a percentage of the corpus' measured texts. longest, mean: over texts with any. rule_id: None for further rules.
    """

    rule_id: str | None
    texts: int
    exposed: int
    rate: float
    longest: int
    mean: float


class Corpus(_Frozen):
    """Texts that were verified, of one origin and under one policy.

    others: texts of all further origins and policies, as "cut". violations: texts in which a hard rule matches;
        violation_rate: their percentage. characters: code points in total.
    measured: texts whose exposure was recorded; exposed: those with a beginning of `exposure_from` code points or more
        under some rule, exposure_rate their percentage of `measured`.
    """

    source: Source
    policy_digest: str | None
    others: bool = False
    texts: int
    violations: int
    violation_rate: float
    characters: int
    findings: tuple[RuleFindings, ...]
    measured: int
    exposed: int
    exposure_rate: float | None
    exposures: tuple[RuleExposure, ...]


class GoneBack(_Frozen):
    """Texts that could go back where they would come to a match, all of them as far.

    texts: of finished runs. fallen: those that could not go back so far at least once; rate: their percentage.
    fallbacks: how often all of them together could not.
    bound: with "text", the share of the fallen, from 0 to 1. The probability that it estimates bounds the total
        variation between what texts were sampled from and the model's own distribution given that it says no match.
        None with "match" and "sentence", of which nothing of the kind is claimed.
    """

    back_to: RewindTarget
    texts: int
    fallen: int
    rate: float
    fallbacks: int
    bound: float | None


class DeadEndKind(_Frozen):
    """Dead ends that were resolved in the same way; None for further ways."""

    resolution: str | None
    count: int


class LoggedPolicy(_Frozen):
    """A policy as the log knows it: loaded by guards, or named by runs (`rules` is then None)."""

    policy_digest: str
    names: tuple[str, ...]
    rules: tuple[LoadedRule, ...] | None
    on_dead_end: str | None
    on_audit_failure: str | None
    loaded: int
    runs: int
    first_seen: AwareDatetime


class Guarantee(_Frozen):
    """What a guarantee was about: see `nco_guard.audit.GuaranteeConfigured`. `times` guards said so."""

    policy_digest: str
    tokenizer_digest: str
    vocabulary_size: int
    skip_special_tokens: bool
    covered_ends: tuple[str, ...]
    times: int
    first_seen: AwareDatetime


class Incident(_Frozen):
    """Something a reader wants to look up: a text with a violation, a dead end, a run that an error ended."""

    kind: Literal["violation", "dead_end", "error"]
    time: datetime
    run_id: UUID
    number: int
    request_id: str | None
    model_id: str | None
    source: Source
    sequence: int | None = None
    step: int | None = None
    rule_ids: tuple[str, ...] = ()
    what: str | None = None


class LogReport(_Frozen):
    """What a log says, in numbers.

    removed_histogram: interventions that say the probability removed, in ten classes: 0 to 0.1, ..., 0.9 to 1 (an upper
        bound belongs to the next class, 1 to the last).
    back: texts that could go back, by how far.
    outcomes: of sequences; errors: runs by the type of their error.
    incidents: the last ones, in the order of the log; `incidents_left_out` came before them.
    policies_left_out, guarantees_left_out: events about further ones than are kept apart.
    """

    report_version: Literal[1] = REPORT_VERSION
    generated: AwareDatetime
    integrity: Integrity
    first: AwareDatetime | None
    last: AwareDatetime | None
    totals: Totals
    all: Tally
    timeline: Timeline
    removed_histogram: tuple[int, ...]
    rules: tuple[RuleTally, ...]
    models: tuple[ModelTally, ...]
    corpora: tuple[Corpus, ...]
    exposure_from: int
    dead_ends: tuple[DeadEndKind, ...]
    back: tuple[GoneBack, ...]
    outcomes: dict[str, int]
    errors: dict[str, int]
    incidents: tuple[Incident, ...]
    incidents_left_out: int
    policies: tuple[LoggedPolicy, ...]
    policies_left_out: int
    guarantees: tuple[Guarantee, ...]
    guarantees_left_out: int

    @property
    def violations(self) -> int:
        """Texts with a violation that the guard let through, or may have: of guarded runs, and of cut ones."""
        return sum(corpus.violations for corpus in self.corpora if corpus.source in ("guarded", "cut"))


def notable(event: AnyEvent) -> Literal["violation", "dead_end", "error"] | None:
    """Whether an event tells of something that should not have happened."""
    if isinstance(event, Verification) and not event.ok:
        return "violation"
    if isinstance(event, DeadEnd):
        return "dead_end"
    if isinstance(event, RunFinished) and event.error is not None:
        return "error"
    return None
