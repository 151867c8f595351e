"""Rules and strings that could be dropped without a text more being allowed: proved by inclusion of automata.

Only hard rules make others redundant: a hard rule that is covered changes nothing, and the penalty of a soft one that
is covered is never due. What is said to be redundant may be dropped all together. Cost: for each pair of rules some
short texts that nearly always show that there is more to one of them; a proof for the few pairs that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nco_guard.analysis.blocking import Blocked
from nco_guard.analysis.covers import Cover
from nco_guard.analysis.remarks import Remark
from nco_guard.errors import StateLimitError

__all__ = ["redundant"]

_PAIRS = 1_000_000
_LOOK_UPS = 20_000_000
_SHOWN = 8  # strings that a remark names by their numbers


def redundant(rules: Sequence[Blocked]) -> Iterator[Remark]:
    """Remarks about redundant rules and strings, and about what was not decided."""
    yield from _Redundancy(rules).remarks()


class _Redundancy:
    def __init__(self, rules: Sequence[Blocked]) -> None:
        self.rules = rules
        self.place = {rule.id: place for place, rule in enumerate(rules)}
        self._known: dict[tuple[str, str], bool | None] = {}
        self._covers = {
            rule.id: Cover(written, place)
            for place, rule in enumerate(rules)
            if (written := rule.as_written) is not None and rule.provable and rule.compiled.listed is not None
        }
        self._strings: dict[tuple[str, str], list[int | None]] = {}
        self._look_ups = 0

    def remarks(self) -> Iterator[Remark]:
        dropped: set[str] = set()
        open_pairs: list[tuple[str, str]] = []
        if len(self.rules) * sum(rule.hard for rule in self.rules) > _PAIRS:
            yield Remark(
                "not-decided",
                (),
                "there are too many rules to compare all of them",
                "compare fewer at a time",
                "note",
            )
            return
        for rule in self.rules:
            if rule.rule.mode == "monitor":
                continue
            cover, undecided = self._coverer(rule)
            open_pairs += [(rule.id, other) for other in undecided]
            if cover is not None:
                dropped.add(rule.id)
                yield self._rule_remark(rule, cover)
        for rule in self.rules:
            if rule.id not in dropped and rule.id in self._covers and rule.rule.mode != "monitor":
                yield from self._string_remark(rule)
        if open_pairs:
            yield Remark(
                "not-decided",
                tuple(dict.fromkeys(name for pair in open_pairs for name in pair)),
                f"whether one of two rules is redundant was not decided for {len(open_pairs)} pairs",
                "nothing, unless you expect it: the proof met its bound",
                "note",
            )

    # -- whole rules -------------------------------------------------------------------------------------------

    def _coverer(self, rule: Blocked) -> tuple[Blocked | None, list[str]]:
        """The first hard rule that makes this one redundant, and those of which it was not decided."""
        undecided: list[str] = []
        for other in self.rules:
            if other is rule or not other.hard:
                continue
            verdict = self._within(rule, other)
            if verdict is None:
                undecided.append(other.id)
            elif verdict and not (
                rule.hard and self.place[other.id] > self.place[rule.id] and self._within(other, rule)
            ):
                return other, undecided
        return None, undecided

    def _within(self, rule: Blocked, other: Blocked) -> bool | None:
        key = (rule.id, other.id)
        if key not in self._known:
            self._known[key] = self._find_within(rule, other)
        return self._known[key]

    def _find_within(self, rule: Blocked, other: Blocked) -> bool | None:
        if _alike(rule, other):
            return True
        if not (rule.provable and other.provable):
            return False
        if rule.id in self._covers and other.id in self._covers:
            covers = self._covered(rule.id, other.id)
            return None if covers is None else all(cover is not None for cover in covers)
        try:
            return rule.within(other)
        except StateLimitError:
            return None

    def _rule_remark(self, rule: Blocked, other: Blocked) -> Remark:
        same = _alike(rule, other)
        effect = (
            "forbids nothing that {} does not"
            if rule.hard
            else "has no effect: what it penalises, {} forbids"
        )
        if same:
            effect = "says the same as {}"
        return Remark(
            "redundant-rule",
            (rule.id, other.id),
            f"rule {rule.id!r} " + effect.format(f"rule {other.id!r}"),
            f"remove {rule.id!r}, or make it forbid what was meant",
        )

    # -- strings -----------------------------------------------------------------------------------------------

    def _covered(self, rule: str, other: str) -> list[int | None] | None:
        key = (rule, other)
        if key not in self._strings:
            inner, outer = self._covers[rule], self._covers[other]
            work = outer.work(inner)
            if self._look_ups + work > _LOOK_UPS:
                return None
            self._look_ups += work
            self._strings[key] = list(outer.covers(inner))
        return self._strings[key]

    def _string_remark(self, rule: Blocked) -> Iterator[Remark]:
        covered: dict[int, str] = {}
        for other in self.rules:
            if not other.hard or other.id not in self._covers:
                continue
            for number, cover in enumerate(self._covered(rule.id, other.id) or ()):
                if cover is not None:
                    covered.setdefault(number, f"strings[{cover}] of {other.id!r}")
        if not covered:
            return
        others = tuple(dict.fromkeys(where.split(" of ")[1].strip("'") for where in covered.values()))
        shown = [f"strings[{number}] holds {where}" for number, where in sorted(covered.items())[:_SHOWN]]
        count = f"{len(covered)} string{' adds' if len(covered) == 1 else 's add'}"
        more = f", and {len(covered) - _SHOWN} more" if len(covered) > _SHOWN else ""
        yield Remark(
            "redundant-string",
            (rule.id, *(other for other in others if other != rule.id)),
            f"{count} nothing to rule {rule.id!r}: {'; '.join(shown)}{more}",
            "nothing, or remove them: what the list forbids stays the same",
            "note",
        )


def _alike(rule: Blocked, other: Blocked) -> bool:
    """Whether two rules are the same but for their names, and the second enforces at least as much."""
    ignored = {"id", "description", "penalty"}
    return type(rule.rule) is type(other.rule) and rule.rule.model_dump(
        mode="json", exclude=ignored
    ) == other.rule.model_dump(mode="json", exclude=ignored)
