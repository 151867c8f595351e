"""How many tokens of a text stand before the match that a token would complete."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

from nco_guard.analysis.tracking import Tracker
from nco_guard.compiler import CompiledRule
from nco_guard.scan.streams import RuleStreams
from nco_guard.session import BoundGuard
from nco_guard.session.state import TextState
from nco_guard.tokens import TextPieces

__all__ = ["MatchStarts", "Settled"]

_SENTENCE_ENDS = (b".", b"!", b"?", b"\n")


class MatchStarts:
    """Looks for the beginnings of matches in the texts of one guard. Not to be shared between threads.

    Cost: linear in the text, for each rule that is asked about.
    """

    def __init__(self, bound: BoundGuard) -> None:
        self._rules = {rule.id: rule for rule in bound.compiled.rules if rule.rule.mode == "hard"}
        self._vocabulary = bound.vocabulary
        self._trackers: dict[str, Tracker] = {}

    def begun(self, text: TextState, rules: Sequence[str], token: int) -> int | None:
        """How many tokens stand before the first match of these rules that the token, or the end, would complete.

        Where it completes none, before the first match that is under way; None: none is.
        """
        named = [self._rules[name] for name in rules if name in self._rules]
        final = token in self._vocabulary.eos_ids
        read = cache(partial(self._read, text, token))

        def completed(tracker: Tracker, before: str, after: str, prompt: int) -> int | None:
            return tracker.begun(after, len(before), prompt, final=final)

        def under_way(tracker: Tracker, before: str, _: str, prompt: int) -> int | None:
            return tracker.under_way(before, prompt)

        places = self._places(named, read, completed) or self._places(named, read, under_way)
        if not named:
            places = self._places(self._rules.values(), read, under_way)
        return min(places, default=None)

    def sentence(self, ids: Sequence[int], place: int) -> int:
        """How many tokens stand before the sentence or line of the token at this place."""
        tokens = self._vocabulary.tokens
        while place > 0 and not tokens[ids[place - 1]].rstrip(b" ").endswith(_SENTENCE_ENDS):
            place -= 1
        return place

    def _places(
        self,
        rules: Iterable[CompiledRule],
        read: Callable[[bool], _Read],
        ask: Callable[[Tracker, str, str, int], int | None],
    ) -> list[int]:
        """The places of what is asked for, of the rules where it is anywhere."""
        found: list[int] = []
        for rule in rules:
            prompt, lengths, text, after = read(rule.rule.context == "prompt")
            start = ask(self._tracker(rule), text, after, prompt)
            if start is not None:
                place = bisect_left(lengths, start)
                found.append(place if place < len(lengths) and lengths[place] == start else max(place - 1, 0))
        return found

    def _tracker(self, rule: CompiledRule) -> Tracker:
        found = self._trackers.get(rule.id)
        if found is None:
            found = self._trackers[rule.id] = Tracker(rule, stop=True)
        return found

    def _read(self, text: TextState, token: int, prompted: bool) -> _Read:
        """The text as rules read it that look at the prompt, or that do not."""
        prompt = text.bound.context_bytes(text.context).decode() if prompted else ""
        plain = getincrementaldecoder("utf-8")("ignore")
        pieces = TextPieces(self._vocabulary)
        keeps_space = bool(prompt) and self._vocabulary.rewriting is None
        parts, lengths = [prompt], [len(prompt)]
        for one in (*text.ids, token):
            parts.append(plain.decode(self._vocabulary.tokens[one]) if keeps_space else pieces.feed([one]))
            lengths.append(lengths[-1] + len(parts[-1]))
        after = "".join(parts)
        return len(prompt), lengths[:-1], after[: lengths[-2]], after


_Read = tuple[int, list[int], str, str]
# Characters of the prompt; the length after so many tokens; the text, and the text with the token.


class Settled:
    """Which tokens of one text, as it grows and is cut, stay whatever comes.

    Cost: that of a stream of all hard rules; where the text was cut, of reading it again.
    """

    def __init__(self, bound: BoundGuard, prompt: str, *, sentences: MatchStarts | None) -> None:
        """`prompt`: what the text continues. `sentences`: tokens stay by whole sentences, which this finds."""
        self._bound = bound
        self._prompt = prompt
        self._sentences = sentences
        self._begin()

    def _begin(self) -> None:
        hard = [rule for rule in self._bound.compiled.rules if rule.rule.mode == "hard"]
        self._streams = RuleStreams(hard, self._prompt)
        self._pieces = TextPieces(self._bound.vocabulary)
        self._read: list[int] = []
        self._lengths = [0]

    def upto(self, ids: Sequence[int]) -> int:
        """How many of these tokens no match can begin before."""
        if list(ids[: len(self._read)]) != self._read:
            self._begin()
        for token in ids[len(self._read) :]:
            piece = self._pieces.feed([token])
            self._streams.feed(piece)
            self._read.append(token)
            self._lengths.append(self._lengths[-1] + len(piece))
        place = bisect_right(self._lengths, self._streams.safe) - 1
        # What is not settled yet may be the first bytes of a character.
        place = min(place, bisect_left(self._lengths, self._lengths[-1]))
        return self._sentences.sentence(ids, place) if self._sentences is not None else place
