"""Which prefixes can still be finished, by looking at every text of a small vocabulary.

A prefix is lost if no text that begins with it is one that the shape alone lets end and that holds nothing forbidden.
The shape's language is asked of a matcher in the plainest way: each token of the vocabulary is offered to a copy of it.
What is forbidden is looked for by `judge.forbidden_in`, in whole texts. Nothing here looks at masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.tokens import Vocabulary
from tests.properties.reference import Reference
from tests.shapes.judge import forbidden_in

Ids = tuple[int, ...]


class TooMany(Exception):
    """The search would look at more texts than it may; nothing is known."""


class Matcher(Protocol):
    """A library's text under way: what `LLGuidanceWriter` and `XGrammarWriter` are."""

    def allowed(self) -> Any: ...
    def advance(self, token: int) -> bool: ...
    def fork(self) -> Any: ...


class Search:
    """All texts of at most `most` tokens that a shape and a policy let stand together.

    looked: how many prefixes are looked at, in all searches together, before `TooMany`.
    """

    def __init__(
        self, shape: Matcher, vocabulary: Vocabulary, policy: Policy, *, most: int = 8, looked: int = 200_000
    ) -> None:
        self._vocabulary, self._policy = vocabulary, policy
        self._most, self._left = most, looked
        ends = {*vocabulary.eos_ids, *vocabulary.unusable_ids, *vocabulary.silent_ids}
        self._tokens = [token for token in range(vocabulary.width) if token not in ends]
        self._matchers: dict[Ids, Any] = {(): shape}
        self._next: dict[Ids, list[Ids]] = {}
        self._good: dict[bytes, bool] = {}

    def next(self, ids: Ids) -> list[Ids]:
        """What the shape alone lets follow, one token longer."""
        if ids not in self._next:
            found = []
            for token in self._tokens:
                self._left -= 1
                if self._left < 0:
                    raise TooMany
                copy = self._matchers[ids].fork()
                if copy.advance(token):
                    self._matchers[(*ids, token)] = copy
                    found.append((*ids, token))
            self._next[ids] = found
        return self._next[ids]

    def good(self, ids: Ids) -> bool:
        """Whether this is a finished text: the shape lets it end, and nothing in it is forbidden."""
        if not self._matchers[ids].allowed()[self._vocabulary.eos_ids[0]]:
            return False
        return self._clean(ids)

    def _clean(self, ids: Ids) -> bool:
        raw = self._vocabulary.raw_bytes(ids)
        if raw not in self._good:
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                self._good[raw] = False
            else:
                self._good[raw] = not forbidden_in(self._policy, text)
        return self._good[raw]

    def way_out(self, ids: Ids = ()) -> Ids | None:
        """The tokens of a shortest way to a finished text of at most `most` tokens in all; None if there is none."""
        self._reach(ids)
        level = [ids]
        while level:
            for each in level:
                if self.good(each):
                    return each[len(ids) :]
            longer = [each for each in level if len(each) < self._most and not self._lost(each)]
            level = [following for each in longer for following in self.next(each)]
        return None

    def _reach(self, ids: Ids) -> None:
        for length in range(len(ids)):
            if ids[: length + 1] not in self._matchers and ids[: length + 1] not in self.next(ids[:length]):
                raise AssertionError("the shape alone does not take this prefix")

    def _lost(self, ids: Ids) -> bool:
        """Whether a match stands so far back that nothing which follows can undo it."""
        text = self._vocabulary.raw_bytes(ids).decode(errors="ignore")
        return any(_stands(rule, text) for rule in self._policy.rules if rule.mode == "hard")

    def prefixes(self) -> Iterator[Ids]:
        """Every prefix that can be finished, the shortest first."""
        level: list[Ids] = [()]
        while level:
            level = [ids for ids in level if self.way_out(ids) is not None]
            yield from level
            level = [longer for ids in level if len(ids) < self._most for longer in self.next(ids)]


_LOOKS = 1  # characters behind a match that the rules of small cases look at, at most


def _stands(rule: Any, text: str) -> bool:
    """Whether a match ends before the last character: no rule whose end looks further is used here."""
    if isinstance(rule, RegexRule) and ("$" in rule.regex or r"\Z" in rule.regex):
        return False
    assert isinstance(rule, RegexRule | StringRule)
    return any(end <= len(text) - _LOOKS for end in Reference(rule).ends(text))
