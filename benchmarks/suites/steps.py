"""Suite `steps`: what one decoding step costs, by batch size, on the same text for every method.

For ours and the baselines a step is one call of the logits processor on scores float32 [batch, width]: reading the new
ids, advancing every row, writing. Ours writes in place, as it does under `Guard.generate`. For the peers a step is
advancing every row and computing its mask as bits, **without** writing anything into the scores, with all threads: what
writing costs depends on the kernel that one brings. Beside them, the arg-max of the model over the same scores.

The rows of a batch read the text from different places. A step is *new* if it met a joint state for the first time, in
any row; the second pass over the same text meets known states only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks.harness.building import Built, Ids, build, random_scores, seen_ids
from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.record import Record, summary
from benchmarks.harness.render import figure, first, ratio, reasons, seconds, shown, table, title
from benchmarks.harness.timing import timed, turns
from benchmarks.inputs.constraints import MEASURED, ConstraintSet
from benchmarks.methods.peers import PreparedPeer
from benchmarks.methods.world import Method, World

__all__ = ["measure", "show"]

_METHODS = ("ours", "llguidance", "xgrammar", "bad-words", "guard-trie", "rejection")


def measure(plan: Plan) -> None:
    """All methods, batch sizes and constraints, in turns."""
    options, world = plan.options, plan.world
    for constraint in MEASURED:
        texts: dict[int, Ids] = {}
        for batch in options.batches:
            steps = max(20, options.text_steps // (8 if batch > 8 else 1))
            case = case_of("steps", "ours", constraint, world, batch=batch)
            rows = plan.rows(case, constraint, batch, steps)
            if rows is None:
                continue
            argmax = case_of("steps", "arg-max", None, world, batch=batch)
            plan.measure(argmax, plan.bounds(), _argmax, world, batch, steps)
            texts[batch] = rows
            able = plan.able("steps", constraint, world, _METHODS, batch=batch)
            for _, method in turns(able, options.repeats):
                plan.say(f"steps: {constraint.name}, batch {batch}: {method.title}")
                case = case_of("steps", method.key, constraint, world, batch=batch)
                plan.measure(case, plan.bounds(), walk, method, constraint, world, rows)
        _paper(plan, constraint, texts)


def _paper(plan: Plan, constraint: ConstraintSet, texts: dict[int, Ids]) -> None:
    """The paper's method once, at all batch sizes: its set-up takes minutes over a large vocabulary."""
    for batch in texts:
        able = plan.able("steps", constraint, plan.world, ("paper-nco",), batch=batch)
    if not texts or not able:
        return
    plan.say(f"steps: {constraint.name}: {able[0].title}")
    cases = {batch: case_of("steps", able[0].key, constraint, plan.world, batch=batch) for batch in texts}
    plan.together(cases, plan.bounds(2.0), walks, able[0], constraint, plan.world, texts)


def walks(
    method: Method, constraint: ConstraintSet, world: World, texts: dict[int, Ids]
) -> dict[int, Samples]:
    """`walk` for a baseline at several batch sizes, set up once."""
    built = build(method, constraint, world)
    return {batch: _two_passes(built, rows) for batch, rows in texts.items()}


def _argmax(world: World, batch: int, steps: int) -> Samples:
    torch.set_num_threads(world.threads)
    scores = random_scores(batch, world.vocabulary.width)
    scores.argmax(-1)
    return {"step_s": [timed(lambda: scores.argmax(-1))[1] for _ in range(steps)]}


def walk(method: Method, constraint: ConstraintSet, world: World, rows: Ids) -> Samples:
    """Two passes over the rows, int64 [batch, steps]: `first_s`, and ours split in `new_s` and `known_s`."""
    built = build(method, constraint, world, batch=len(rows))
    if isinstance(built.prepared, PreparedPeer):
        return {"first_s": list(_peer_steps(built.prepared, rows))}
    return _two_passes(built, rows)


def _two_passes(built: Built, rows: Ids) -> Samples:
    samples: Samples = {}
    for name in ("first", "second"):
        seconds, fresh = _processor_steps(built, rows)
        if name == "first":
            samples["first_s"] = seconds
            if built.bound is not None:
                samples["new_s"] = [s for s, new in zip(seconds, fresh, strict=True) if new]
                samples["states_count"] = [float(built.bound.tables.state_count)]
        else:
            samples["known_s"] = [s for s, new in zip(seconds, fresh, strict=True) if not new]
    return samples


def _processor_steps(built: Built, rows: Ids) -> tuple[list[float], list[bool]]:
    """Seconds of each call, and whether it met a new state."""
    ours, processor = built.bound, built.processor()
    seconds: list[float] = []
    fresh: list[bool] = []
    clean = random_scores(len(rows), built.width)
    scores = torch.empty_like(clean)
    for seen in seen_ids(rows):
        scores.copy_(clean)
        before = ours.tables.state_count if ours is not None else 0
        seconds.append(timed(partial(processor, seen, scores))[1])
        fresh.append(ours is not None and ours.tables.state_count != before)
    return seconds, fresh


def _peer_steps(prepared: PreparedPeer, rows: Ids) -> Iterator[float]:
    """Seconds of each step: reading the last token of every row, and all masks by one call."""
    matchers = [prepared.matcher().raw for _ in rows]

    def step(tokens: list[int] | None) -> None:
        if tokens is not None:
            for matcher, token in zip(matchers, tokens, strict=True):
                prepared.consume(matcher, token)
        prepared.bits(matchers)

    yield timed(partial(step, None))[1]
    for tokens in rows[:, :-1].T.tolist():
        yield timed(partial(step, tokens))[1]


def show(record: Record) -> str:
    """A table for each constraint."""
    found = record.find("steps")
    if not found:
        return ""
    lines = [
        "## A step",
        "",
        "Ours and the baselines: one call of the logits processor, float32 scores on the CPU, ours in place. Peers: "
        "reading the tokens and computing masks as bits, nothing written into scores, with all threads. The second "
        "pass over the same text meets known states only.",
        "",
    ]
    batches = sorted({m.case.batch for m in found if m.case.batch is not None})
    rows = [(str(b), figure(first(found, method="arg-max", batch=b), "step_s", p99=True)) for b in batches]
    lines += [*table(("batch", "arg-max of the model, median"), rows)]
    for constraint in dict.fromkeys(m.case.constraint for m in found if m.case.constraint):
        these = [m for m in found if m.case.constraint == constraint]
        rows2 = []
        for m in sorted(shown(these), key=lambda m: m.case.batch or 0):
            stats = summary(m.samples.get("first_s", []))
            ours = first(found, method="ours", batch=m.case.batch, constraint=constraint)
            rows2.append(
                (
                    str(m.case.batch),
                    title(m.case.method),
                    "-" if stats is None else seconds(stats.mean),
                    figure(m, "first_s", p99=True),
                    figure(m, "new_s", p99=True) if m.case.method == "ours" else "-",
                    figure(m, "known_s", p99=True),
                    ratio(m, ours, "first_s"),
                )
            )
        header = ("batch", "method", "mean", "median", "new states", "second pass", "x our median")
        lines += [f"### {constraint}", "", *table(header, rows2), *reasons(these)]
    return "\n".join(lines)
