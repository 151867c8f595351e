"""Logs to report on: random events of some days, with names that want to break out of a page; and a slow way to count.

The reference reads the lines as JSON and knows nothing of the library's events, runs or sums.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nco_guard.audit import (
    AnyEvent,
    DeadEnd,
    DecodeView,
    GuaranteeConfigured,
    Intervention,
    JsonLinesSink,
    LoadedRule,
    PolicyLoaded,
    RunFinished,
    RunStarted,
    Span,
    Verification,
    log_files,
)
from nco_guard.audit.report import LogReport
from nco_guard.audit.report.verdicts import answers

HOSTILE = (
    '</script><img src=x onerror="window.broken=1">',
    '"><svg onload="window.broken=2"><!--<script>',
    "{{ 7*7 }}{% raw %}${7*7}",
    "\u202egpj.exe \u2028 a\nb \x00\x1b[31m &amp; ]]>",
    "javascript:window.broken=3",
    "M" * 4096,
)
RULES = ("email", "phone", "us_ssn", HOSTILE[0], HOSTILE[3])
MODELS = ("demo-2m", HOSTILE[1], None)
DIGESTS = ("a" * 64, "sha256:" + "b" * 64)
TOKENIZER = "c" * 64
BEGIN = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


VIEW = DecodeView(skip_special_tokens=True, covered_ends=("eos", "max_length"))


class _Log:
    """What draws events one after another, each a little later than the one before."""

    def __init__(self, seed: int, *, violations: bool, faults: bool) -> None:
        self.rng = random.Random(seed)
        self.violations, self.faults = violations, faults
        self.now = BEGIN
        self._tick = iter(range(10**9))

    def common(self, run: uuid.UUID, number: int, request: str | None = None) -> dict[str, Any]:
        self.now += timedelta(seconds=self.rng.expovariate(1 / 40) / 10)
        return {
            "run_id": run,
            "number": number,
            "request_id": request,
            "time": self.now,
            "monotonic_ns": next(self._tick),
        }

    def id(self) -> uuid.UUID:
        return uuid.UUID(int=self.rng.getrandbits(128), version=4)

    def guard(self, digest: str, name: str) -> Iterator[AnyEvent]:
        guard = self.id()
        yield PolicyLoaded(
            **self.common(guard, 0),
            policy_name=name,
            policy_digest=digest,
            rules=tuple(
                LoadedRule(rule_id=rule, type="regex", mode="monitor" if rule == "phone" else "hard")
                for rule in RULES
            ),
            on_dead_end="trim",
            on_audit_failure="raise",
        )
        yield GuaranteeConfigured(
            **self.common(guard, 1),
            policy_digest=digest,
            tokenizer_digest=TOKENIZER,
            vocabulary_size=32000,
            decode_view=VIEW,
        )


class _Run:
    """One run of a log, or texts that belong to none."""

    def __init__(self, log: _Log, place: int) -> None:
        rng = log.rng
        self.log, self.run, self.digest = log, log.id(), rng.choice(DIGESTS)
        self.request = rng.choice((None, f"request-{place}", HOSTILE[5], HOSTILE[0]))
        kind = rng.random()
        self.guarded, self.begins = kind < 0.7, kind < 0.85  # the rest verifies texts that belong to no run
        self.number = 0
        self.sequences = rng.randrange(1, 4)

    def events(self) -> Iterator[AnyEvent]:
        rng, faults = self.log.rng, self.log.faults
        if self.begins:
            yield RunStarted(
                **self._common(),
                policy_name="pii",
                policy_digest=self.digest,
                rule_ids=RULES,
                sequences=self.sequences,
                tokenizer_digest=TOKENIZER if self.guarded else None,
                model_id=rng.choice(MODELS),
                decode_view=VIEW if self.guarded else None,
            )
        if self.guarded:
            yield from self._steps()
        failed = faults and self.begins and rng.random() < 0.04
        for sequence in range(0 if failed else self.sequences):
            yield self._verification(sequence)
        if self.begins and not (faults and rng.random() < 0.02):
            number = self.number
            yield RunFinished(
                **self._common(),
                outcomes=()
                if failed
                else tuple(rng.choice(("ended", "length")) for _ in range(self.sequences)),
                interventions=number,
                tokens=rng.randrange(200),
                seconds=rng.random(),
                error="DeadEndError" if failed else None,
            )

    def _common(self) -> dict[str, Any]:
        self.number += 1
        return self.log.common(self.run, self.number - 1, self.request)

    def _steps(self) -> Iterator[AnyEvent]:
        rng, faults = self.log.rng, self.log.faults
        for step in range(rng.randrange(0, 12)):
            if faults and rng.random() < 0.01:
                self.number += rng.randrange(1, 3)
            forbidden = rng.random() < 0.8
            yield Intervention(
                **self._common(),
                sequence=rng.randrange(self.sequences),
                step=step,
                action="masked" if forbidden else "penalized",
                rule_ids=tuple(rng.sample(RULES, rng.choice((0, 1, 1, 1, 2)))),
                removed_probability=rng.choice((None, rng.random(), rng.random() ** 4, 0.0, 1.0)),
                first_choice_forbidden=forbidden,
                first_allowed_rank=rng.randrange(1, 40) if forbidden else 0,
            )
        if faults and rng.random() < 0.05:
            yield DeadEnd(
                **self._common(),
                sequence=0,
                step=12,
                resolution=rng.choice(("trim", "eos")),
                rule_ids=rng.choice(((), ("email",))),
            )

    def _verification(self, sequence: int) -> AnyEvent:
        rng = self.log.rng
        length = rng.randrange(1, 400)
        bad = self.log.violations and rng.random() < 0.02
        rules = [*(["email"] if bad else []), *(["phone"] if rng.random() < 0.1 else [])]
        spans = [
            Span(rule_id=rule, start=rng.randrange(length), end=length)
            for rule in rules
            for _ in range(rng.randrange(1, 4))
        ]
        common = self._common()
        exposures = None
        if not self.begins:
            exposures = tuple(
                Span(rule_id=rule, start=0, end=rng.randrange(min(30, length) + 1))
                for rule in rng.sample(RULES, 2)
            )
        return Verification(
            **common,
            ok=not bad,
            length=length,
            findings=tuple(spans),
            exposures=exposures,
            sequence=sequence if self.begins else None,
            policy_digest=rng.choice((self.digest, self.digest, None)),
        )


def random_events(
    runs: int, seed: int, *, violations: bool = True, faults: bool = True
) -> Iterator[AnyEvent]:
    """Events of so many runs over a week. faults: also lost events, dead ends, errors, and runs without an end."""
    log = _Log(seed, violations=violations, faults=faults)
    for digest, name in zip(DIGESTS, ("pii", HOSTILE[2]), strict=True):
        yield from log.guard(digest, name)
    for place in range(runs):
        if log.rng.random() < 0.03:
            log.now += timedelta(hours=log.rng.randrange(1, 8))
        yield from _Run(log, place).events()


def write_log(path: Path, events: Iterator[AnyEvent], **options: Any) -> Path:
    """The events in a chained log that is closed."""
    with JsonLinesSink(path, **options) as sink:
        for event in events:
            sink(event)
    return path


def clean_log(path: Path, **options: Any) -> Path:
    """A log of thirty events in which nothing is wrong."""
    return write_log(path, random_events(30, 7, violations=False, faults=False), **options)


def verdict(report: LogReport, key: str) -> str:
    """What a report answers to a question."""
    (answer,) = [one for one in answers(report) if one.key == key]
    return answer.answer


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The events of a log, rotated files included, as plain JSON."""
    lines = [json.loads(line) for file in log_files(path) for line in file.read_text("ascii").splitlines()]
    return [line for line in lines if not line["kind"].startswith("chain_")]


@dataclass
class Reference:
    """What a log says, counted one question at a time over all lines."""

    lines: list[dict[str, Any]]
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for line in self.lines:
            self.runs[line["run_id"]].append(line)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    def start(self, line: dict[str, Any]) -> dict[str, Any]:
        """The first line of a line's run."""
        return self.runs[line["run_id"]][0]

    def source(self, line: dict[str, Any]) -> str:
        first = self.start(line)
        if first["number"] != 0:
            return "cut"
        if first["kind"] != "run_started":
            return "apart"
        return "guarded" if "tokenizer_digest" in first else "observed"

    def interventions_by_rule(self) -> Counter[str | None]:
        return Counter(rule for line in self.of("intervention") for rule in (set(line["rule_ids"]) or {None}))

    def removed_by_rule(self, rule: str | None) -> list[float]:
        return [
            line["removed_probability"]
            for line in self.of("intervention")
            if "removed_probability" in line
            and (rule in line["rule_ids"] or (rule is None and not line["rule_ids"]))
        ]

    def by_model(self, kind: str) -> Counter[str | None]:
        """Events of a kind by the model of their run; those that belong to no run are left out."""
        return Counter(
            self.start(line).get("model_id") for line in self.of(kind) if self.source(line) != "apart"
        )

    def texts(self) -> dict[tuple[str, str | None], list[dict[str, Any]]]:
        """Verifications by origin and policy."""
        texts: dict[tuple[str, str | None], list[dict[str, Any]]] = defaultdict(list)
        for line in self.of("verification"):
            first = self.start(line)
            named = first.get("policy_digest") if first["kind"] == "run_started" else None
            digest = line.get("policy_digest") or named
            texts[self.source(line), digest].append(line)
        return texts

    def lost(self) -> int:
        return sum(
            max(line["number"] for line in run) - run[0]["number"] + 1 - len(run)
            for run in self.runs.values()
        )
