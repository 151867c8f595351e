"""Suite `redact`: redaction beside verification, on answers of 500 characters under all presets.

Processor time of one answer. Clean answers are prose; in dirty ones something that the policy forbids is sown.
`guard.redact`, `Cleaner.text` and a stream are compared with what `scan.definition` finds, replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness.plan import Plan, Samples, case_of, check_of
from benchmarks.harness.record import Check, Record
from benchmarks.harness.render import figure, first, ratio, section
from benchmarks.harness.timing import in_turns
from benchmarks.inputs.constraints import PRESETS
from benchmarks.inputs.texts import examples, prose
from benchmarks.methods.world import World
from nco_guard import Guard
from nco_guard.scan import Redaction
from nco_guard.scan.definition import verify_by_definition
from nco_guard.scan.replacing import Replacer
from nco_guard.values import Cleaner

__all__ = ["against_definition", "answers", "measure", "show", "times"]

SIZE = 500
ANSWERS = 40
VERIFY = "guard.verify"
DEFINITION = "by the definition"


def measure(plan: Plan) -> None:
    """All methods, in turns."""
    plan.say(f"redact: {PRESETS.name}")
    clean, dirty = answers(8 if plan.options.quick else ANSWERS)
    cases = {name: case_of("redact", name, PRESETS, plan.world) for name in _methods(Guard(PRESETS.policy))}
    plan.together(cases, plan.bounds(), times, clean, dirty, plan.options.repeats)
    case = case_of("redact", "comparison", PRESETS, plan.world)
    plan.check(case, against_definition, [*clean, *dirty], plan.world)


def answers(count: int) -> tuple[list[str], list[str]]:
    """Clean and dirty ones, as the policy sees them."""
    rng, text, forbidden = random.Random(0), prose(2 * SIZE * count), examples()
    clean = [text[place : place + SIZE] for place in range(0, SIZE * count, SIZE)]
    dirty = [f"{one[: SIZE // 2]} {rng.choice(forbidden)} {one[SIZE // 2 :]}"[:SIZE] for one in clean]
    guard = Guard(PRESETS.policy)
    return (
        [text for text in clean if guard.verify(text).ok],
        [text for text in dirty if not guard.verify(text).ok],
    )


def _streamed(guard: Guard, text: str) -> str:
    stream = guard.stream_verifier()
    return "".join(stream.feed(text[at : at + 5]) for at in range(0, len(text), 5)) + stream.finish()


def _by_definition(guard: Guard, text: str) -> Redaction:
    compiled = guard.verifier.compiled
    report = verify_by_definition(compiled, text)
    return Redaction(text if report.ok else Replacer(compiled, None).whole(text, report.violations), report)


def _message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "usage": {"total_tokens": 9}}


def _methods(guard: Guard) -> dict[str, Callable[[str], object]]:
    cleaner = Cleaner(guard)
    return {
        VERIFY: guard.verify,
        "guard.redact": guard.redact,
        "Cleaner.text": cleaner.text,
        "Cleaner.value of a message": lambda text: cleaner.value(_message(text)),
        DEFINITION: lambda text: _by_definition(guard, text),
        "stream_verifier, pieces of 5": lambda text: _streamed(guard, text),
    }


def times(clean: list[str], dirty: list[str], rounds: int) -> dict[str, Samples]:
    """Seconds of an answer in each round, by method."""
    methods = _methods(Guard(PRESETS.policy))
    found: dict[str, Samples] = {name: {} for name in methods}

    def all_of(run: Callable[[str], object], texts: list[str]) -> None:
        for text in texts:
            run(text)

    for kind, texts in (("clean_s", clean), ("dirty_s", dirty)):
        calls = {name: partial(all_of, run, texts) for name, run in methods.items()}
        for name, seconds in in_turns(calls, rounds).items():
            found[name][kind] = [each / len(texts) for each in seconds]
    return found


def against_definition(texts: list[str], world: World) -> Check:
    """What is redacted, however it is asked for; but `Cleaner` reads escapes, so it is shown no texts with some."""
    guard = Guard(PRESETS.policy)
    cleaner, differences = Cleaner(guard), 0
    for text in texts:
        expected = _by_definition(guard, text)
        same = guard.redact(text) == expected and _streamed(guard, text) == expected.text
        differences += not (same and ("\\" in text or cleaner.text(text) == expected.text))
    return check_of(PRESETS, world, DEFINITION, len(texts), differences, "redacted answers, not masks")


def show(record: Record) -> str:
    """A row for each method."""
    found = record.find("redact")
    base = first(found, method=VERIFY)
    rows = []
    for m in found:
        cells = [m.case.method]
        for kind in ("clean_s", "dirty_s"):
            cells += [figure(m, kind, best=True), ratio(m, base, kind)]
        rows.append(cells)
    header = ("an answer", "clean", "x verify", "dirty", "x verify")
    return section("## Redacting", "Processor time, the least of all rounds.", header, rows, found)
