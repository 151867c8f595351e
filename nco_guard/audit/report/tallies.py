"""Sums that grow event by event, and mappings of them that cannot grow without bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar, get_args

from nco_guard.audit.events import Action, Intervention, RewindTarget, Span, Verification
from nco_guard.audit.report.model import Corpus, GoneBack, RuleExposure, RuleFindings, Source
from nco_guard.audit.report.runs import bounded

__all__ = ["BackCount", "CorpusCount", "Kept", "ModelCount", "RuleCount", "TallyCount"]

K = TypeVar("K")
V = TypeVar("V")


class Kept(Generic[K, V]):
    """A mapping that makes values for new keys, up to `limit` of them; all further keys share the value `others`."""

    def __init__(self, make: Callable[[], V], limit: int) -> None:
        self._make = make
        self._limit = limit
        self.known: dict[K, V] = {}
        self.others: V | None = None

    def of(self, key: K) -> V:
        """The value of a key."""
        value = self.known.get(key)
        if value is not None:
            return value
        if len(self.known) < self._limit:
            value = self.known[key] = self._make()
            return value
        if self.others is None:
            self.others = self._make()
        return self.others

    def items(self) -> Iterator[tuple[K | None, bool, V]]:
        """Key, whether these are all the others, and value; the others come last, with None for a key."""
        for key, value in self.known.items():
            yield key, False, value
        if self.others is not None:
            yield None, True, self.others


@dataclass(slots=True)
class TallyCount:
    """Becomes a `Tally`."""

    actions: dict[str, int] = field(default_factory=dict)
    first_choice_forbidden: int = 0
    removed_known: int = 0
    removed_probability: float = 0.0
    dead_ends: int = 0

    def intervention(self, event: Intervention) -> None:
        """Count an intervention."""
        self.actions[event.action] = self.actions.get(event.action, 0) + 1
        self.first_choice_forbidden += event.first_choice_forbidden is True
        if event.removed_probability is not None:
            self.removed_known += 1
            self.removed_probability += event.removed_probability

    def fields(self) -> dict[str, Any]:
        """The fields of what it becomes, but for those that say whose it is."""
        own = asdict(self)
        actions = own.pop("actions")
        told = {action: actions.get(action, 0) for action in get_args(Action)}
        return {**own, **told, "interventions": sum(actions.values())}


@dataclass(slots=True)
class BackCount:
    """Becomes a `GoneBack`."""

    texts: int = 0
    fallen: int = 0
    fallbacks: int = 0

    def add(self, fallbacks: Sequence[int]) -> None:
        """Count texts by how often each fell back."""
        self.texts += len(fallbacks)
        self.fallen += sum(times > 0 for times in fallbacks)
        self.fallbacks += sum(map(bounded, fallbacks))

    def result(self, back_to: RewindTarget) -> GoneBack:
        """As it stands."""
        share = self.fallen / self.texts if self.texts else 0.0
        return GoneBack(
            back_to=back_to,
            texts=self.texts,
            fallen=self.fallen,
            rate=100.0 * share,
            fallbacks=self.fallbacks,
            bound=share if back_to == "text" and self.texts else None,
        )


@dataclass(slots=True)
class RuleCount(TallyCount):
    """Becomes a `RuleTally`."""

    types: set[str] = field(default_factory=set)
    modes: set[str] = field(default_factory=set)
    findings: int = 0
    texts: int = 0

    def fields(self) -> dict[str, Any]:
        """See `TallyCount.fields`."""
        named = {"types": tuple(sorted(self.types)), "modes": tuple(sorted(self.modes))}
        return TallyCount.fields(self) | named


@dataclass(slots=True)
class ModelCount(TallyCount):
    """Becomes a `ModelTally`."""

    runs: int = 0
    finished: int = 0
    errors: int = 0
    sequences: int = 0
    tokens: int = 0
    seconds: float = 0.0
    texts: int = 0
    violations: int = 0


@dataclass(slots=True)
class _Stretches:
    texts: int = 0
    exposed: int = 0
    longest: int = 0
    total: int = 0


@dataclass(slots=True)
class _Matches:
    texts: int = 0
    findings: int = 0


def _per_rule(spans: tuple[Span, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for span in spans:
        counts[span.rule_id] = counts.get(span.rule_id, 0) + 1
    return counts


class CorpusCount:
    """Becomes a `Corpus`. limit: how many rules are kept apart."""

    def __init__(self, limit: int) -> None:
        self.texts = self.violations = self.characters = self.measured = self.exposed = 0
        self._findings: Kept[str, _Matches] = Kept(_Matches, limit)
        self._exposures: Kept[str, _Stretches] = Kept(_Stretches, limit)

    def verification(self, event: Verification, exposure_from: int) -> dict[str, int]:
        """Count a verified text; returns its findings by rule."""
        found = _per_rule(event.findings)
        self.texts += 1
        self.violations += not event.ok
        self.characters += bounded(event.length)
        for rule_id, count in found.items():
            matches = self._findings.of(rule_id)
            matches.texts += 1
            matches.findings += count
        if event.exposures is not None:
            self.measured += 1
            lengths = [
                (span.rule_id, bounded(span.end - span.start))
                for span in event.exposures
                if span.end > span.start
            ]
            self.exposed += any(length >= exposure_from for _, length in lengths)
            for rule_id, length in lengths:
                stretches = self._exposures.of(rule_id)
                stretches.texts += 1
                stretches.exposed += length >= exposure_from
                stretches.longest = max(stretches.longest, length)
                stretches.total += length
        return found

    def result(self, source: Source, policy_digest: str | None, *, others: bool) -> Corpus:
        """As it stands."""
        return Corpus(
            source=source,
            policy_digest=policy_digest,
            others=others,
            texts=self.texts,
            violations=self.violations,
            violation_rate=100.0 * self.violations / self.texts,
            characters=self.characters,
            findings=tuple(
                RuleFindings(rule_id=rule_id, texts=one.texts, findings=one.findings)
                for rule_id, _, one in self._findings.items()
            ),
            measured=self.measured,
            exposed=self.exposed,
            exposure_rate=100.0 * self.exposed / self.measured if self.measured else None,
            exposures=tuple(
                RuleExposure(
                    rule_id=rule_id,
                    texts=one.texts,
                    exposed=one.exposed,
                    rate=100.0 * one.exposed / self.measured,
                    longest=one.longest,
                    mean=one.total / one.texts,
                )
                for rule_id, _, one in self._exposures.items()
            ),
        )
