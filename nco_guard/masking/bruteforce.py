"""The definition of a mask: feed every token's bytes to every automaton. Slow and obvious; the oracle.

A token is forbidden if a match of a hard constraint completes with any of its bytes, or if no way was found to bring
the text to an allowed end within `HORIZON` more tokens (or as many as are left). A soft constraint subtracts its
penalty once for a token with which a match completes. End-of-sequence is forbidden, or penalised, where the text may
not end.

What is looked for, so that it ends within a bound that is no clock:

1. *Short texts* (`short_ways.short_ways`): a full stop, a letter, the rest of a character.
2. *What is wanted*, after any token: how the text so far could be brought to an end (3), and what each constraint
   wants first after a token that leaves it pending.
3. *Longer ways* (`way`): the shortest text that a pending constraint wants by itself, then the next one's; where
   another constraint bars that, the shortest text that both want together, and so on. A search finds at most
   `ways.STATES` states. Where none is left to go on from, there is no way, and that is decided.
4. *All tokens* (`searched`), level by level, in vocabularies of at most `SMALL` tokens: at most `LOOKED` tokens in a
   search, and none is begun after so many for one mask.

3 and 4 only after the first `LEFT` of the tokens that 1 and 2 leave open, and there for the first `ROWS` distinct rows
of states. The others are forbidden. A token that begins the way out of this state is no such token, if the rest is in
time.

So in small vocabularies, and wherever nothing meets a bound, a token is forbidden only if there is no way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import UTF8_RULE, Constraint
from nco_guard.masking.short_ways import NEVER, borders_written, is_letter, short_ways
from nco_guard.masking.ways import (
    LEFT,
    PURSUITS,
    ROWS,
    SEPARATORS,
    STATES,
    TAILS,
    TOGETHER,
    Way,
    characters,
)
from nco_guard.tokens import Vocabulary

__all__ = ["HORIZON", "ends_well", "feed", "forbidden", "penalties", "rows_searched"]

# How many tokens a text may still need before it can end. Rules met in practice need one or two.
HORIZON = 16
#: Vocabularies of more tokens than that are not searched as a whole.
SMALL = 4096
#: Tokens that a search of the whole vocabulary looks at; and those of one mask before the last of them.
LOOKED = 1 << 18

States = tuple[int, ...]
Known = dict[object, object]


def rows_searched(tokens: int) -> int:
    """From how many rows of states all tokens are looked at, in one search."""
    return LOOKED // max(tokens, 1) if tokens <= SMALL else 0


class _Texts:
    """What the tokens of a vocabulary that add text and do not end it can write."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        outside = {*vocabulary.eos_ids, *vocabulary.unusable_ids}
        ids = [i for i, token in enumerate(vocabulary.tokens) if token and i not in outside]
        self.count = len(ids)
        self._tokens = {vocabulary.tokens[i] for i in ids}
        self._longest = max(map(len, self._tokens), default=1)
        self.short = short_ways(self.needed)
        used = {byte for byte in range(0xF5) if byte not in (0xC0, 0xC1)}
        written = all(bytes([byte]) in self._tokens for byte in used)
        self._borders = borders_written(vocabulary)
        letters = [*self._borders, *filter(is_letter, self._tokens)]
        self._letters = None if written else sorted(letters)

    def letters(self, constraints: Sequence[Constraint]) -> tuple[list[bytes], bool]:
        """What ways out of some constraints are put together of, and whether that is all that tokens can write."""
        if self._letters is not None:
            return self._letters, False
        letters, every = characters([constraint.automaton for constraint in constraints])
        return [*self._borders, *letters], every

    def needed(self, text: bytes) -> int:
        """How many tokens write a text at least."""
        fewest = [0] + [NEVER] * len(text)
        for end in range(1, len(text) + 1):
            for start in range(max(0, end - self._longest), end):
                if text[start:end] in self._tokens:
                    fewest[end] = min(fewest[end], fewest[start] + 1)
        return fewest[-1]


@lru_cache(maxsize=8)
def _texts_of(digest: str, vocabulary: _Once) -> _Texts:
    return _Texts(vocabulary.it)


class _Once:
    """A vocabulary that is not compared: its digest is."""

    def __init__(self, it: Vocabulary) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Once)

    def __hash__(self) -> int:
        return 0


def _texts(vocabulary: Vocabulary) -> _Texts:
    return _texts_of(vocabulary.digest, _Once(vocabulary))


def feed(constraint: Constraint, state: int, data: bytes) -> tuple[int, bool]:
    """The state after the bytes, and whether a match completed with any of them."""
    matched = False
    for byte in data:
        state = constraint.automaton.step(state, byte)
        if state < 0:
            matched = True
            state = ~state
    return state, matched


def _completes(constraint: Constraint, state: int, vocabulary: Vocabulary, token: int) -> bool:
    reached, matched = feed(constraint, state, vocabulary.tokens[token])
    return matched or (token in vocabulary.eos_ids and not constraint.automaton.may_end(reached))


def _violates(constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, token: int) -> bool:
    return token in vocabulary.unusable_ids or any(
        constraint.hard and _completes(constraint, state, vocabulary, token)
        for constraint, state in zip(constraints, states, strict=True)
    )


def _after(constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, token: int) -> States:
    return tuple(feed(c, s, vocabulary.tokens[token])[0] for c, s in zip(constraints, states, strict=True))


# -- ways out ------------------------------------------------------------------------------------------------------


def _pending(constraints: Sequence[Constraint], states: States) -> list[int]:
    """The hard constraints that do not let the text end."""
    pairs = enumerate(zip(constraints, states, strict=True))
    return [i for i, (c, s) in pairs if c.hard and not c.automaton.may_end(s)]


def _read(constraint: Constraint, state: int, text: bytes) -> int:
    """The state after a text; negative if a match completed."""
    reached, matched = feed(constraint, state, text)
    return -1 if matched else reached


def _opens(constraint: Constraint, state: int, text: bytes) -> bool:
    reached = _read(constraint, state, text)
    return reached >= 0 and constraint.automaton.may_end(reached)


def _shortest(constraints: Sequence[Constraint], states: States, texts: _Texts) -> Way:
    """The shortest text of letters, the first of several, that brings these constraints to an end; breadth first."""
    letters, every = texts.letters(constraints)
    came, queue = {states}, [(states, b"")]
    for current, text in queue:
        for letter in letters:
            reached = tuple(_read(c, s, letter) for c, s in zip(constraints, current, strict=True))
            if min(reached) < 0 or reached in came:
                continue
            if all(c.automaton.may_end(s) for c, s in zip(constraints, reached, strict=True)):
                return text + letter
            came.add(reached)
            if len(came) >= STATES:
                return None
            queue.append((reached, text + letter))
    return False if every else None


def _own(constraint: Constraint, state: int, texts: _Texts, known: Known) -> Way:
    key = ("own", id(constraint), state)
    if key not in known:
        known[key] = _shortest([constraint], (state,), texts)
    found: Way = known[key]  # type: ignore[assignment]
    return found


def _pursued(
    constraints: Sequence[Constraint], states: States, text: bytes, texts: _Texts, known: Known
) -> tuple[bytes | None, list[int]]:
    """A text, then what some pending constraint wants that no other bars, the first that does, and so on until none is
    pending; else who bars what the first of them wants.
    """
    current, barring = _written(constraints, states, text)
    for _ in range(PURSUITS):
        if current is None or not _pending(constraints, current):
            break
        following: States | None = None
        refused: list[int] = []
        for i in _pending(constraints, current):
            own = _own(constraints[i], current[i], texts, known)
            if not isinstance(own, bytes):
                refused = refused or [i]
                continue
            following, by = _written(constraints, current, own)
            if following is not None:
                text += own
                break
            refused = refused or by
        current, barring = following, refused
    if current is None:
        return None, barring
    return (None, []) if _pending(constraints, current) else (text, [])


def _written(
    constraints: Sequence[Constraint], states: States, text: bytes
) -> tuple[States | None, list[int]]:
    """The states after a text; if it is barred, None and the first constraint that bars it."""
    reached = [_read(c, s, text) if c.hard else s for c, s in zip(constraints, states, strict=True)]
    barring = [i for i, state in enumerate(reached) if state < 0]
    return (None, barring[:1]) if barring else (tuple(reached), [])


def way(constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, known: Known) -> Way:
    """A text that brings the text from these states, in which it may not end, to an allowed end."""
    texts = _texts(vocabulary)
    utf8 = next((i for i, c in enumerate(constraints) if UTF8_RULE in c.rule_ids), None)
    if utf8 is not None and not constraints[utf8].automaton.may_end(states[utf8]):
        return _way_after_character(constraints, states, utf8, vocabulary, known)
    pending = _pending(constraints, states)
    if any(_own(constraints[i], states[i], texts, known) is False for i in pending):
        return False
    found, barring = _pursued(constraints, states, b"", texts, known)
    if found is not None:
        return found
    members = {*pending, *barring}
    while len(members) <= TOGETHER:
        chosen = sorted(members)
        key = ("together", tuple(chosen), tuple(states[i] for i in chosen))
        if key not in known:
            known[key] = _shortest([constraints[i] for i in chosen], key[2], texts)
        text = known[key]
        if text is False:
            return False
        if not isinstance(text, bytes):
            break
        others = [i for i, c in enumerate(constraints) if c.hard and i not in members]
        barring = [i for i in others if not _opens(constraints[i], states[i], text)]
        if not barring:
            return text
        members.add(barring[0])
    for separator in SEPARATORS:
        found, _ = _pursued(constraints, states, separator, texts, known)
        if found is not None:
            return found
    return None


def _way_after_character(
    constraints: Sequence[Constraint], states: States, utf8: int, vocabulary: Vocabulary, known: Known
) -> Way:
    """A way to an end from within a character: some ends of it are tried."""
    for tail in TAILS:
        if not _opens(constraints[utf8], states[utf8], tail):
            continue
        reached = tuple(_read(c, s, tail) if c.hard else s for c, s in zip(constraints, states, strict=True))
        if min(reached) >= 0:
            found: Way = b""
            if _pending(constraints, reached):
                found = _known_way(constraints, reached, vocabulary, known)
            if isinstance(found, bytes):
                return tail + found
    return None


def _known_way(
    constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, known: Known
) -> Way:
    key = ("way", states)
    if key not in known:
        known[key] = way(constraints, states, vocabulary, known)
    found: Way = known[key]  # type: ignore[assignment]
    return found


def _wanted(constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, known: Known) -> bytes:
    """How the text could be brought to an end; empty if it may end, or no way was found."""
    found = _known_way(constraints, states, vocabulary, known) if _pending(constraints, states) else None
    return found if isinstance(found, bytes) else b""


def _tried(
    constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, known: Known
) -> list[bytes]:
    """What is wanted here: the ways out that are tried after every token."""
    texts = _texts(vocabulary)
    base = _wanted(constraints, states, vocabulary, known)
    wants = [base]
    for constraint, state in zip(constraints, states, strict=True):
        if not constraint.hard or UTF8_RULE in constraint.rule_ids:
            continue
        for token, text in enumerate(vocabulary.tokens):
            if not text or token in vocabulary.eos_ids or token in vocabulary.unusable_ids:
                continue
            reached = _read(constraint, state, text)
            if reached >= 0 and not constraint.automaton.may_end(reached):
                own = _own(constraint, reached, texts, known)
                wants += [own, own + base, base + own] if isinstance(own, bytes) else []
                break
    return [text for text in wants if text]


# -- ends ----------------------------------------------------------------------------------------------------------


def _ends_at_once(constraints: Sequence[Constraint], states: States, texts: _Texts, tokens_left: int) -> bool:
    """Whether the text may end, or does so after a short text."""
    short = [b"", *(text for text, tokens in texts.short if tokens <= tokens_left)]
    return any(
        all(_opens(c, s, text) for c, s in zip(constraints, states, strict=True) if c.hard) for text in short
    )


def searched(
    constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, tokens_left: int
) -> tuple[bool | None, int]:
    """Whether allowed tokens lead to an end, level by level; None where that takes more rows than are looked at.

    And how many rows were looked at.
    """
    texts = _texts(vocabulary)
    frontier, seen, looked = [states], {states}, 0
    for left in range(tokens_left - 1, -1, -1):
        looked += len(frontier)
        if looked > rows_searched(texts.count):
            return None, looked
        ahead = {
            _after(constraints, row, vocabulary, token): None
            for row in frontier
            for token, text in enumerate(vocabulary.tokens)
            if text and token not in vocabulary.eos_ids and not _violates(constraints, row, vocabulary, token)
        }
        frontier = [row for row in ahead if row not in seen]
        if any(_ends_at_once(constraints, row, texts, left) for row in frontier):
            return True, looked
        if not frontier:
            break
        seen.update(frontier)
    return False, looked


def ends_well(
    constraints: Sequence[Constraint],
    states: States,
    vocabulary: Vocabulary,
    tokens_left: int,
    known: Known | None = None,
) -> bool:
    """Whether a way was found to bring the text to an allowed end by at most `tokens_left` allowed tokens.

    `known`: verdicts from earlier calls with the same constraints and vocabulary; filled.
    """
    known = {} if known is None else known
    return _ends(
        constraints, states, vocabulary, tokens_left, known, rows_searched(_texts(vocabulary).count)
    )[0]


def _ends(
    constraints: Sequence[Constraint],
    states: States,
    vocabulary: Vocabulary,
    tokens_left: int,
    known: Known,
    rows: int,
) -> tuple[bool, int]:
    """Whether there is a way to an end, all tokens searched if `rows` > 0; and how many rows were looked at."""
    texts = _texts(vocabulary)
    if _ends_at_once(constraints, states, texts, tokens_left):
        return True, 0
    way = _known_way(constraints, states, vocabulary, known) if tokens_left else False
    if way is False or (isinstance(way, bytes) and texts.needed(way) <= tokens_left):
        return way is not False, 0
    if rows <= 0:
        return False, 0
    key = (states, tokens_left)
    if key not in known:
        known[key] = searched(constraints, states, vocabulary, tokens_left)
    verdict, looked = cast("tuple[bool | None, int]", known[key])
    return verdict is True, looked


def forbidden(
    constraints: Sequence[Constraint],
    states: States,
    vocabulary: Vocabulary,
    tokens_left: int = HORIZON,
    known: Known | None = None,
) -> NDArray[np.bool_]:
    """The mask in a joint state where `tokens_left` tokens may follow: bool [width], True = forbidden."""
    known = {} if known is None else known
    texts = _texts(vocabulary)
    mask = np.ones(vocabulary.width, bool)
    tried: list[bytes] | None = None
    open_yet: dict[int, States] = {}
    for token in range(vocabulary.width):
        if _violates(constraints, states, vocabulary, token):
            continue
        if token in vocabulary.eos_ids:
            mask[token] = False
            continue
        reached = _after(constraints, states, vocabulary, token)
        if _ends_at_once(constraints, reached, texts, tokens_left):
            mask[token] = False
            continue
        tried = _tried(constraints, states, vocabulary, known) if tried is None else tried
        wanted = [text for text in tried if texts.needed(text) <= tokens_left]
        base, text = _wanted(constraints, states, vocabulary, known), vocabulary.tokens[token]
        begins = text and base.startswith(text) and texts.needed(base[len(text) :]) <= tokens_left
        if begins or any(_opened(constraints, reached, text) for text in wanted):
            mask[token] = False
        elif not vocabulary.tokens[token]:
            mask[token] = not ends_well(constraints, reached, vocabulary, tokens_left, known)
        else:
            open_yet[token] = reached
    first = dict([*open_yet.items()][:LEFT])
    rows, verdicts = rows_searched(texts.count), dict[States, bool]()
    for row in [*dict.fromkeys(first.values())][:ROWS]:
        verdicts[row], looked = _ends(constraints, row, vocabulary, tokens_left, known, rows)
        rows -= looked
    for token, reached in first.items():
        mask[token] = not verdicts.get(reached, False)
    return mask


def _opened(constraints: Sequence[Constraint], states: States, text: bytes) -> bool:
    return all(_opens(c, s, text) for c, s in zip(constraints, states, strict=True) if c.hard)


def penalties(
    constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary
) -> NDArray[np.float32]:
    """What soft constraints subtract from each logit: float32 [width]."""
    amounts = np.zeros(vocabulary.width, np.float64)
    for constraint, state in zip(constraints, states, strict=True):
        if not constraint.hard and constraint.penalty:
            for token in range(vocabulary.width):
                if token not in vocabulary.unusable_ids and _completes(constraint, state, vocabulary, token):
                    amounts[token] += constraint.penalty
    return amounts.astype(np.float32)
