"""What a text must show where a match of a rule is: necessary conditions, read off the rule's own syntax tree.

A *probe* says: wherever a match starts (or a fixed number of parts into it), the next characters are one of these few
combinations. It may hold where there is no match, never the other way round: lookarounds, checksums and borders are
left out or widened, repeats are followed as they are. The probes of a rule together cover all of its matches.

Characters are seen as 256 *codes*: ASCII as it is, all others by their last seven bits. A set of codes is an integer
with a bit for each. Code 0 also stands for the borders of a text, so it satisfies every condition on what precedes.

Cost: linear in the tree times the lengths that are told apart (24).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from nco_guard.automata.charsets import CharSet, complement, same_letter, word
from nco_guard.automata.patterns.fsm import FsmMachine
from nco_guard.automata.patterns.syntax import (
    Alternation,
    Assertion,
    Chars,
    Lookaround,
    Node,
    Repeat,
    alternation,
)
from nco_guard.automata.patterns.syntax import Sequence as Items
from nco_guard.automata.patterns.syntax import sequence as joined

__all__ = ["ANY", "HEAD", "Probe", "fsm_probes", "node_probes", "string_probes"]

HEAD = 4
"""So many characters are looked at together first."""
_DEEP = 8  # and so many of strings after that
ANY = (1 << 256) - 1
Head = tuple[int, ...]

_DEPTH = 24
_MOST_HEADS = 20_000
_MOST_BRANCHES = 128
# A condition that more than so many places of ordinary prose meet is of no use: reading all is as quick.
_USEFUL = 0.03
# How often characters occur in English prose, in percent; the rest share what is left. Only the choice between
# conditions depends on it.
_PERCENT = {
    **dict(
        zip(
            " etaoinshrdlucmfwyg",
            (16, 9.5, 7, 6.3, 5.8, 5.4, 5.4, 5, 4.8, 4.6, 3.3, 3.1, 2.2, 2.2, 2, 1.8, 1.8, 1.5, 1.6),
            strict=True,
        )
    ),
    **dict(zip("pbvkxqjz\n.,", (1.6, 1.2, 0.8, 0.6, 0.15, 0.1, 0.1, 0.1, 1.5, 1, 1), strict=True)),
    **dict.fromkeys("0123456789", 0.12),
    **dict.fromkeys("'\"-()/:;_=", 0.2),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """One necessary condition.

    `heads`: what the next characters (at most eight) can be, as sets of codes; a shorter head leaves the rest open.
    `follow`: what each of the next can be, as far as every match reaches. `before`: what can precede a match.

    With `run`, all this is about a place within the match: between `shortest` and `longest` (None: any number)
    characters after its start, all of them in `run`; and `tail` is the part of the pattern that matches there.
    """

    heads: tuple[Head, ...]
    follow: tuple[int, ...]
    before: int = ANY
    run: int | None = None
    shortest: int = 0
    longest: int | None = 0
    tail: Node | None = None


@cache
def codes_of(ranges: CharSet) -> int:
    """The codes of a set of characters."""
    found = 0
    for low, high in ranges:
        if low < 128:
            last = min(high, 127)
            found |= ((1 << last + 1) - 1) & ~((1 << low) - 1)
        if high >= 128:
            first = max(low, 128)
            if high - first >= 127:
                found |= ANY ^ ((1 << 128) - 1)
            else:
                for point in range(first, high + 1):
                    found |= 1 << (128 | point & 127)
    return found


def _weights() -> list[float]:
    known = {ord(c): p / 100 for c, p in _PERCENT.items()}
    rest = max(0.02, 1 - sum(known.values()))
    return [known.get(code, rest / (256 - len(known))) for code in range(256)]


_WEIGHTS = _weights()


@cache
def _share(codes: int) -> float:
    """How often ordinary prose shows one of these characters."""
    return sum(_WEIGHTS[code] for code in range(256) if codes >> code & 1)


def rate(probes: Iterable[Probe]) -> float:
    """How many starts of matches per character of prose the conditions leave, roughly."""
    return sum(_rate(probe) for probe in probes)


def _rate(probe: Probe) -> float:
    hits = 0.0
    for head in probe.heads:
        share = 1.0
        for codes in head:
            share *= _share(codes)
        hits += share
    for codes in probe.follow[max(map(len, probe.heads), default=0) :][:4]:
        hits *= _share(codes)
    if probe.run is None:
        return min(hits, 1.0) * _share(probe.before)
    kept = _share(probe.run)
    mean = 2_000.0 if kept > 0.9995 else 1 / (1 - kept)
    return min(hits, 1.0) * min(mean, 2_000.0 if probe.longest is None else probe.longest)


# -- lists of strings ------------------------------------------------------------------------------------------


def string_probes(strings: Iterable[str], *, caseless: bool, whole_word: bool) -> tuple[Probe, ...] | None:
    """The condition for strings that are looked for as they are written."""
    beginnings = sorted({string[:_DEEP] for string in strings})
    codes = _codes_up_to_case if caseless else _codes_of_one
    heads = dict.fromkeys(tuple(map(codes, beginning)) for beginning in beginnings)
    # What may not touch a word is no character of words: beyond the end of the text is code 0.
    border = _not_in_words() if whole_word else ANY
    if whole_word:
        heads = dict.fromkeys((*head, border)[:_DEEP] for head in heads)
    probe = Probe(tuple(heads), (), border)
    return _if_useful((probe,))


@cache
def _codes_up_to_case(character: str) -> int:
    return codes_of(same_letter(character))


def _codes_of_one(character: str) -> int:
    point = ord(character)
    return 1 << (point if point < 128 else 128 | point & 127)


@cache
def _not_in_words(ascii_only: bool = False) -> int:
    return codes_of(complement(word(ascii_only))) | 1


def _if_useful(probes: tuple[Probe, ...]) -> tuple[Probe, ...] | None:
    return probes if probes and rate(probes) < _USEFUL else None


# -- ready-made automata ---------------------------------------------------------------------------------------


def fsm_probes(machine: FsmMachine) -> tuple[Probe, ...] | None:
    """The condition for the words of a ready-made automaton: what each of their first characters can be."""
    follow = tuple(map(codes_of, machine.beginnings(_DEPTH)))
    return _if_useful((Probe((follow[:HEAD],), follow),)) if follow else None


# -- patterns --------------------------------------------------------------------------------------------------


def node_probes(node: Node) -> tuple[Probe, ...] | None:
    """The conditions for a pattern; None where reading every character is as quick."""
    probes: list[Probe] = []
    for branch in _branches(node):
        options = [probe for probe in _options(branch) if probe is not None]
        if not options:
            return None
        probes.append(min(options, key=_work))
    return _if_useful(_merged(probes))


def _work(probe: Probe) -> float:
    """What the places cost that a condition leaves; going back from a later part is more work."""
    return max(_rate(probe), 1e-7) * (1 if probe.run is None else 3)


def _merged(probes: list[Probe]) -> tuple[Probe, ...]:
    """Conditions about starts that agree in what precedes, as one: each is asked for on its own."""
    groups: dict[object, list[Probe]] = {}
    for probe in probes:
        key = probe.before if probe.run is None else (probe.run, probe.shortest, probe.longest)
        groups.setdefault(key, []).append(probe)
    found: list[Probe] = []
    for group in groups.values():
        heads = dict.fromkeys(head for probe in group for head in probe.heads)
        follow = group[0].follow
        for probe in group[1:]:
            follow = tuple(a | b for a, b in zip(follow, probe.follow, strict=False))
        tails = [probe.tail for probe in group if probe.tail is not None]
        tail = alternation(tails) if tails else None
        found.append(replace(group[0], heads=tuple(heads), follow=follow, tail=tail))
    return tuple(found)


def _branches(node: Node) -> list[tuple[Node, ...]]:
    """The alternatives of a pattern as sequences; those within a sequence only where they begin it."""
    found: list[tuple[Node, ...]] = []
    waiting: list[tuple[Node, ...]] = [(node,)]
    while waiting:
        items = waiting.pop()
        at = 0
        while at < len(items) and isinstance(items[at], (Assertion, Lookaround)):
            at += 1
        if at == len(items):
            found.append(items)
            continue
        first, before, after = items[at], items[:at], items[at + 1 :]
        if isinstance(first, Items):
            waiting.append((*before, *first.items, *after))
        elif (
            isinstance(first, Alternation) and len(waiting) + len(found) + len(first.options) < _MOST_BRANCHES
        ):
            waiting.extend((*before, option, *after) for option in first.options)
        else:
            found.append(items)
    return found


def _options(items: tuple[Node, ...]) -> Iterator[Probe | None]:
    """The ways to put one alternative: from its start on, or from a later part of it."""
    forms = [_form(item) for item in items]
    rests = [_EMPTY_FORM]
    for form in reversed(forms):
        rests.append(_then(form, rests[-1]))
    rests.reverse()
    yield _probe(items, rests[0], _before(items))
    run, shortest, longest = 0, 0, 0
    endless = False
    for at, (item, form) in enumerate(zip(items[:-1], forms, strict=False)):
        if isinstance(item, (Assertion, Lookaround)):
            continue
        run |= form.anywhere
        shortest += form.shortest
        most = _longest(item)
        endless = endless or most is None
        longest += most or 0
        yield _probe(items[at + 1 :], rests[at + 1], ANY, run, shortest, None if endless else longest)


def _probe(
    items: tuple[Node, ...],
    form: _Form,
    before: int,
    run: int | None = None,
    shortest: int = 0,
    longest: int | None = 0,
) -> Probe | None:
    follow = form.follow
    if not follow:
        return None
    for depth in range(min(HEAD, len(follow)), 0, -1):
        heads = _heads(items, depth)
        if heads is not None:
            break
    else:
        heads = (follow[:HEAD],)
    tail = None if run is None else joined(items)
    return Probe(heads, follow, before, run, shortest, longest, tail)


def _before(items: Sequence[Node]) -> int:
    """What can precede a match: of the assertions that it begins with, those about one character."""
    found, at = ANY, 0
    for at, item in enumerate(items):
        if isinstance(item, Lookaround) and item.behind and isinstance(item.body, Chars):
            ranges = complement(item.body.ranges) if item.negative else item.body.ranges
            found &= codes_of(ranges) | 1
        elif isinstance(item, Assertion):
            if item.kind == "no_word_before":
                found &= _not_in_words(item.ascii_only)
            elif item.kind == "boundary":
                # Before a character of a word no other one may stand.
                first = _form(joined(items[at + 1 :])).follow[:1]
                words = _inside(word(item.ascii_only))
                if first and first[0] & ~words == 0:
                    found &= _not_in_words(item.ascii_only)
        elif not isinstance(item, Lookaround):
            break
    return found


@cache
def _inside(ranges: CharSet) -> int:
    """The codes of which every character is in a set."""
    return ANY & ~codes_of(complement(ranges))


# -- what each character can be --------------------------------------------------------------------------------


_WIDTH = 256  # bits of a set of codes


@dataclass(frozen=True, slots=True)
class _Form:
    """`lengths`: bit n for texts of n characters, the last one for `_DEPTH` or more.

    `codes`: what can stand at each of the first `_DEPTH` places, `_WIDTH` bits for each; `beyond`: what can after them;
    `anywhere`: all of these together.
    """

    lengths: int
    codes: int
    beyond: int
    anywhere: int

    @property
    def shortest(self) -> int:
        """The least number of characters, at most `_DEPTH`."""
        return (self.lengths & -self.lengths).bit_length() - 1 if self.lengths else 0

    @property
    def follow(self) -> tuple[int, ...]:
        """What the characters that every text has can be."""
        return tuple([self.codes >> _WIDTH * place & ANY for place in range(self.shortest)])


_NOTHING_FORM = _Form(0, 0, 0, 0)
_EMPTY_FORM = _Form(1, 0, 0, 0)
_LAST = 1 << _DEPTH
_PLACES = (1 << _WIDTH * _DEPTH) - 1


def _then(one: _Form, other: _Form) -> _Form:
    codes, lengths, left = one.codes, 0, one.lengths
    while left:
        length = (left & -left).bit_length() - 1
        left &= left - 1
        lengths |= other.lengths << length
        codes |= other.codes << _WIDTH * length
    if lengths >= _LAST:
        lengths = lengths & (_LAST - 1) | _LAST
    return _Form(lengths, codes & _PLACES, one.beyond | other.anywhere, one.anywhere | other.anywhere)


def _either(one: _Form, other: _Form) -> _Form:
    return _Form(
        one.lengths | other.lengths,
        one.codes | other.codes,
        one.beyond | other.beyond,
        one.anywhere | other.anywhere,
    )


def _form(node: Node) -> _Form:
    if isinstance(node, Chars):
        codes = codes_of(node.ranges)
        return _Form(2 if node.ranges else 0, codes, 0, codes)
    if isinstance(node, Items):
        form = _EMPTY_FORM
        for item in node.items:
            form = _then(form, _form(item))
        return form
    if isinstance(node, Alternation):
        form = _NOTHING_FORM
        for option in node.options:
            form = _either(form, _form(option))
        return form
    if isinstance(node, Repeat):
        return _repeated(node)
    return _EMPTY_FORM


def _repeated(node: Repeat) -> _Form:
    body = _form(node.body)
    # Iterations that read nothing can stand at the end, so `_DEPTH` others show all that the first characters can be.
    least = min(node.low, _DEPTH)
    most = _DEPTH if node.high is None else min(node.high, _DEPTH)
    power, found = _EMPTY_FORM, _NOTHING_FORM
    for count in range(most + 1):
        if count >= least:
            found = _either(found, power)
        power = _then(power, body)
    if node.high is None or node.high > _DEPTH:
        further = _either(found, power)
        found = replace(further, lengths=found.lengths | (_LAST if body.lengths & ~1 else 0))
    return found


def _longest(node: Node) -> int | None:
    """The greatest number of characters; None: without limit."""
    if isinstance(node, Chars):
        return 1
    if isinstance(node, (Items, Alternation)):
        parts = [_longest(part) for part in (node.items if isinstance(node, Items) else node.options)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return sum(known) if isinstance(node, Items) else max(known, default=0)
    if isinstance(node, Repeat):
        body = _longest(node.body)
        if body == 0:
            return 0
        return None if body is None or node.high is None else body * node.high
    return 0


# -- combinations of the first characters ----------------------------------------------------------------------

# What is left to be matched, as a linked list; a number marks the end of an iteration that began after so many
# characters.
_Rest = tuple["Node | int", "_Rest"] | None


def _heads(items: tuple[Node, ...], depth: int) -> tuple[Head, ...] | None:
    """All combinations of the first characters, `depth` of them where a match is as long; None: too many."""
    rest: _Rest = None
    for item in reversed(items):
        rest = item, rest
    found: dict[Head, None] = {}
    waiting: list[tuple[_Rest, Head]] = [(rest, ())]
    steps = 0
    while waiting:
        steps += 1
        if steps > 20 * _MOST_HEADS or len(found) > _MOST_HEADS:
            return None
        rest, taken = waiting.pop()
        if rest is None or len(taken) == depth:
            found[taken] = None
            continue
        node, after = rest
        if isinstance(node, Chars):
            if node.ranges:
                waiting.append((after, (*taken, codes_of(node.ranges))))
        elif isinstance(node, Items):
            for item in reversed(node.items):
                after = item, after
            waiting.append((after, taken))
        elif isinstance(node, Alternation):
            waiting.extend(((option, after), taken) for option in node.options)
        elif isinstance(node, Repeat):
            if node.low == 0:
                waiting.append((after, taken))
            if node.high is None or node.high > 0:
                fewer = Repeat(node.body, max(0, node.low - 1), None if node.high is None else node.high - 1)
                waiting.append(((node.body, (len(taken), (fewer, after))), taken))
        elif isinstance(node, int):
            if len(taken) == node and after is not None:
                after = after[1]  # the iteration read nothing, so further ones need not
            waiting.append((after, taken))
        else:
            waiting.append((after, taken))
    return tuple(found)
