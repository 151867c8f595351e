"""How many tokens of a text stand before the match that a token would complete, and which of them stay."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

from nco_guard.analysis.sentence_breaks import sentence_breaks, settled_breaks
from nco_guard.automata.spans.live import LiveMatches, live_matches
from nco_guard.compiler import CompiledRule
from nco_guard.session import BoundGuard
from nco_guard.session.state import TextState
from nco_guard.tokens import ShownText, Vocabulary

__all__ = ["MatchStarts"]

_EVERY = 16  # tokens between two places that are kept to go back to


class MatchStarts:
    """Where matches begin in one text, as it grows and is cut back. Not to be shared between threads.

    The matches that are under way are carried along with the text, of a rule from when it is first asked about: each
    character is read once, and where the text was cut back, those since the last of the places that are kept, 16 tokens
    apart. So the cost of an answer does not grow with the text. Memory: such a place a rule, and some words a token.
    """

    def __init__(self, bound: BoundGuard, text: TextState) -> None:
        self._text = text
        self._vocabulary = bound.vocabulary
        self._rules = {rule.id: rule for rule in bound.compiled.rules if rule.rule.mode == "hard"}
        self._context = bound.context_bytes(text.context)
        self._followed: dict[str, _Followed] = {}

    @cached_property
    def _alone(self) -> _Written:
        return _Written(self._vocabulary, b"")

    @cached_property
    def _after_prompt(self) -> _Written:
        return _Written(self._vocabulary, self._context)

    @cached_property
    def _sentences(self) -> _Sentences:
        return _Sentences(self._alone)

    def begun(self, rules: Sequence[str], token: int) -> int | None:
        """How many tokens stand before the first match of these rules that the token, or the end, would complete.

        Where it completes none, before the first match that is under way; None: none is.
        """
        named = [self._rules[name] for name in rules if name in self._rules]
        final = token in self._vocabulary.eos_ids
        places = [one.completed(token, final=final) for one in self._following(named)]
        if all(place is None for place in places):
            places = [one.under_way for one in self._following(named or self._rules.values())]
        return min((place for place in places if place is not None), default=None)

    def sentence(self, place: int, token: int | None = None) -> int:
        """How many tokens stand before the sentence or line of the token at this place.

        `token`: what would come next; it may show that the last sentence is over.
        """
        self._alone.follow(self._text.ids)
        return self._sentences.begun(place, "" if token is None else self._alone.ahead(token))

    def settled(self, *, sentences: bool) -> int:
        """How many tokens no match can begin before, whatever comes. `sentences`: whole ones only.

        Cost: of each token, a step of all hard rules.
        """
        followed = self._following(self._rules.values())
        self._alone.follow(self._text.ids)
        place = self._alone.token_at(self._alone.lengths[-1])
        place = min([place, *(one.settled for one in followed if one.is_unsettled)])
        return self.sentence(place) if sentences else place

    def cut(self, length: int) -> None:
        """The text is taken back to its first tokens."""
        for name in ("_alone", "_after_prompt", "_sentences"):
            if name in self.__dict__:
                getattr(self, name).cut(length)
        for followed in self._followed.values():
            followed.cut(length)

    def _following(self, rules: Iterable[CompiledRule]) -> list[_Followed]:
        """The rules, each having read the text."""
        found = []
        for rule in rules:
            followed = self._followed.get(rule.id)
            if followed is None:
                prompted = rule.rule.context == "prompt" and bool(self._context)
                followed = _Followed(rule, self._after_prompt if prompted else self._alone)
                self._followed[rule.id] = followed
            followed.follow(self._text.ids)
            found.append(followed)
        return found


class _Written:
    """The characters that each token of a text adds, as rules read it that look at the prompt, or that do not.

    prompt: those that precede. lengths: of the text after so many tokens, the prompt included.
    """

    def __init__(self, vocabulary: Vocabulary, context: bytes) -> None:
        self._tokens = vocabulary.tokens
        first, self.prompt = ShownText.begin(vocabulary, after_prompt=bool(context)).read(context)
        # Where some of it is held back there is no telling where the prompt ends.
        self.has_end = bool(context) and not first.held
        self._readings = [first]
        self.pieces: list[str] = []
        self.lengths = [len(self.prompt)]

    def follow(self, ids: Sequence[int]) -> None:
        """Read what the text has become."""
        for token in ids[len(self.pieces) :]:
            reading, piece = self._readings[-1].read(self._tokens[token])
            self._readings.append(reading)
            self.pieces.append(piece)
            self.lengths.append(self.lengths[-1] + len(piece))

    def ahead(self, token: int, *, final: bool = False) -> str:
        """What a token would add. `final`: and the end of the text after it."""
        reading, piece = self._readings[-1].read(self._tokens[token])
        return piece + reading.rest if final else piece

    def token_at(self, place: int) -> int:
        """How many tokens stand before the one with which the character at a place begins.

        A token may begin a character and not complete it: then its first bytes are in that token.
        """
        found = max(0, bisect_right(self.lengths, place) - 1)
        while found and place < self.lengths[found] + self._readings[found].held:
            found -= 1
        return found

    def cut(self, length: int) -> None:
        """Forget all but the first tokens."""
        del self._readings[length + 1 :], self.pieces[length:], self.lengths[length + 1 :]


class _Followed:
    """The matches of one rule that are under way in a text."""

    def __init__(self, rule: CompiledRule, written: _Written) -> None:
        self._rule = rule
        self._written = written
        with rule.lock:
            first = live_matches(
                rule.blocking_searcher, prompt=len(written.prompt) if written.has_end else -1
            )
            self._live, _ = first.read(written.prompt)
        self._read = 0  # tokens
        self._kept = [self._live]

    def follow(self, ids: Sequence[int]) -> None:
        """Read what the text has become."""
        if self._read == len(ids):
            return
        self._written.follow(ids)
        with self._rule.lock:
            while self._read < len(ids):
                upto = min(len(ids), len(self._kept) * _EVERY)
                self._live, _ = self._live.read("".join(self._written.pieces[self._read : upto]))
                self._read = upto
                if upto % _EVERY == 0:
                    self._kept.append(self._live)

    def cut(self, length: int) -> None:
        """Go back to the last place that is kept."""
        if length < self._read:
            del self._kept[length // _EVERY + 1 :]
            self._live, self._read = self._kept[-1], (len(self._kept) - 1) * _EVERY

    def completed(self, token: int, *, final: bool) -> int | None:
        """How many tokens stand before the first match that the token would complete."""
        with self._rule.lock:
            _, start = self._live.read(self._written.ahead(token, final=final), final=final)
        return None if start is None else self._written.token_at(start)

    @property
    def under_way(self) -> int | None:
        """How many tokens stand before the first match that is under way."""
        start = self._live.first
        return None if start is None else self._written.token_at(start)

    @property
    def is_unsettled(self) -> bool:
        """Whether a match may be under way."""
        return self._live.first is not None or self._live.settled < self._written.lengths[-1]

    @property
    def settled(self) -> int:
        """How many tokens no match can begin before that is yet to be completed."""
        live: LiveMatches = self._live
        return self._written.token_at(live.settled if live.first is None else live.first)


class _Sentences:
    """The breaks between the sentences of a text."""

    def __init__(self, written: _Written) -> None:
        self._written = written
        self._breaks: list[tuple[int, int]] = []  # that nothing that follows changes
        self._sure = [0]  # by tokens: before which character that is so of all breaks

    def _follow(self) -> None:
        sure, read = self._sure[-1], len(self._sure) - 1
        tail = self._tail(read)
        for piece in self._written.pieces[read:]:
            tail += piece
            done = settled_breaks(tail)
            if done:
                found = ((sure + start, sure + end) for start, end in sentence_breaks(tail))
                self._breaks += [one for one in found if one[1] <= sure + done]
                sure, tail = sure + done, tail[done:]
            self._sure.append(sure)

    def _tail(self, count: int) -> str:
        """Of the text of the first tokens, what is not sure."""
        pieces, lengths, sure = self._written.pieces, self._written.lengths, self._sure[-1]
        first = bisect_right(lengths, sure, hi=count + 1) - 1
        return "".join(pieces[first:count])[sure - lengths[first] :]

    def begun(self, place: int, ahead: str) -> int:
        """How many tokens stand before the sentence at a place. `ahead`: what may follow the text."""
        self._follow()
        written, sure = self._written, self._sure[-1]
        tail = self._tail(len(written.pieces)) + ahead
        last = [(sure + start, sure + end) for start, end in sentence_breaks(tail)]
        here = bisect_right(self._breaks, written.lengths[place], key=lambda one: one[0])
        before = (self._breaks[at] for at in range(here - 1, -1, -1))
        for start, end in chain(reversed(last), before):
            found = min(place, written.token_at(end))
            if written.lengths[found] >= start:
                return found
        return 0

    def cut(self, length: int) -> None:
        """Forget all but the first tokens."""
        del self._sure[length + 1 :]
        while self._breaks and self._breaks[-1][1] > self._sure[-1]:
            self._breaks.pop()
