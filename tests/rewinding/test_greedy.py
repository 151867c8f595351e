"""Greedy texts that go back, against the method written anew with dictionaries."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from nco_guard.policy import Rewind
from tests.rewinding.toys import LETTERS, Text, Toy


class Slow:
    """Greedy, and without budgets. `seen`: what is forbidden after each prefix that was visited."""

    def __init__(self, toy: Toy, back_to: Literal["match", "text"]) -> None:
        self.toy = toy
        self.back_to = back_to
        self.seen: dict[Text, list[int]] = {}
        self.rewinds = 0

    def forbidden(self, path: Text) -> list[int]:
        return [token for token in range(3) if self.toy.read((*path, token)).endswith(tuple(self.toy.bad))]

    def removed(self, path: Text) -> float:
        """The mass after a prefix that proved forbidden."""
        if path not in self.seen:
            return 0.0
        own = self.toy.tables[path]
        return sum(
            own[token] * (1.0 if token in self.seen[path] else self.removed((*path, token)))
            for token in range(3)
        )

    def best(self, path: Text) -> int:
        own = self.toy.tables[path]
        left = [
            0.0 if token in self.seen[path] else own[token] * (1.0 - self.removed((*path, token)))
            for token in range(3)
        ]
        assert max(left) > 0.0
        return int(np.argmax(left))

    def target(self, path: Text, token: int) -> int | None:
        """The first prefix, from where the match began, after which another token is the best now."""
        text = self.toy.read(path) + LETTERS[token]
        begun = min(len(text) - len(bad) for bad in self.toy.bad if text.endswith(bad))
        places = range(begun if self.back_to == "match" else 0, len(path))
        return next((place for place in places if self.best(path[:place]) != path[place]), None)

    def write(self) -> Text:
        path: Text = ()
        while len(path) < self.toy.length:
            if path not in self.seen:
                self.seen[path] = self.forbidden(path)
                token = int(np.argmax(self.toy.tables[path]))
                if token in self.seen[path]:
                    place = self.target(path, token)
                    if place is not None:
                        path, self.rewinds = path[:place], self.rewinds + 1
                        continue
            path = (*path, self.best(path))
        return path


@pytest.mark.parametrize("back_to", ["match", "text"])
def test_greedy_texts_are_those_of_the_definition(back_to: Literal["match", "text"]) -> None:
    again = 0
    for seed in range(150):
        toy = Toy(seed, length=6, push=2.5)
        settings = Rewind(back_to=back_to, per_match=None, per_text=None)
        row = toy.row(settings, np.random.default_rng(0), greedy=True)
        slow = Slow(toy, back_to)
        assert toy.read(toy.write(row)) == toy.read(slow.write())
        assert row.counts.rewinds == slow.rewinds
        again += slow.rewinds > 1
    assert again > 10
