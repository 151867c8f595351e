"""Texts written at random from what a mask allows, without a model; and the two masks laid over each other naively."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nco_guard.session import Session
from nco_guard.testing import Family, tiny_tokenizer
from nco_guard.tokens import Vocabulary, read_vocabulary
from tests.shapes.libraries import Allowed, Writer
from tests.shapes.strategies import FORMATS, KEYS, STRINGS, Schema, wanted_texts

End = Literal["ended", "corner", "unfinished", "refused"]

_SAMPLES = {
    "id": 12, "name": "ab", "a": [1, 2.5, -3, None, True, False], "b": {"to do": "aab", "x-1": []}, "café": "日本",
    "date": "2024-02-29T12:30:00Z", "mail": "jo@ab.com", "uri": "https://ab.com/a?b=1", "ip": "127.0.0.1 ::1",
    "uuid": "078-05-1120 0f9e8d7c-6b5a", "duration": "P1DT2H3M", "é": 'a"b\\c/d\n',
    "12": {"next": {"v": {}, "below": [[]]}},
}  # fmt: skip


@cache
def tokenizer(family: Family) -> Any:
    """A tiny tokenizer that has met JSON."""
    plain = [json.dumps(_SAMPLES), json.dumps(_SAMPLES, ensure_ascii=False, separators=(",", ":"))]
    words = " ".join([*KEYS, *STRINGS, *FORMATS, 'null true false 0123456789 {}[]:,.+-eE\\u "},"}'])
    return tiny_tokenizer(family, texts=(*plain, words, f'["{words}"]'), vocab_size=400)


@cache
def vocabulary(family: Family) -> Vocabulary:
    return read_vocabulary(tokenizer(family))


class Both:
    """A library's mask and a guard's, laid over each other: what somebody writes who has both."""

    def __init__(self, shape: Writer, session: Session) -> None:
        self._shape, self._session = shape, session

    def allowed(self) -> Allowed:
        return self._shape.allowed() & ~self._session.mask()

    def advance(self, token: int) -> bool:
        self._session.advance(token)
        return self._shape.advance(token)


@dataclass(frozen=True)
class Written:
    """A text that was written at random, and how it ended.

    end: "ended" by an end of sequence, or where it could end; in a "corner", where nothing is allowed; "unfinished",
    out of tokens; "refused", a token that the mask allows was not taken.
    """

    ids: tuple[int, ...]
    text: str
    end: End


class Taste:
    """What a text at random is drawn to: some tokens at random, some texts, and after a while its end."""

    def __init__(self, rng: random.Random, vocabulary: Vocabulary, wanted: Sequence[str]) -> None:
        self._rng, self._vocabulary = rng, vocabulary
        self._numbers = np.random.default_rng(rng.getrandbits(32))
        self._bias = 2.0 * self._numbers.normal(size=vocabulary.width)
        self._wanted = [text.encode() for text in wanted if text]
        self._patience = rng.choice([5, 15, 40])
        spaces, closing = np.zeros((2, vocabulary.width))
        for token, data in enumerate(vocabulary.tokens):
            text = data.strip()
            spaces[token] = data != b"" and not text
            closing[token] = text[:1] in (b'"', b"}", b"]") and not text.strip(b'"}],:')
        closing[[*vocabulary.eos_ids]] = 2.0
        self._spaces, self._closing = spaces, closing
        self._texts: dict[bytes, NDArray[np.bool_]] = {}

    def choose(self, allowed: Allowed, written: bytes, step: int) -> int:
        """One of the allowed tokens."""
        scores = self._bias + self._numbers.gumbel(size=len(allowed)) - 3.0 * self._spaces
        if step > self._patience:
            scores = scores + min(8.0, 0.3 * (step - self._patience)) * self._closing
        if self._wanted and self._rng.random() < 0.7:
            scores = scores + 6.0 * self._leading(written)
        return int(np.where(allowed, scores, -np.inf).argmax())

    def _leading(self, written: bytes) -> NDArray[np.bool_]:
        """The tokens that go on with a text that is wanted, where it has begun or from its beginning."""
        text = self._rng.choice(self._wanted)
        begun = next((n for n in range(len(text) - 1, 0, -1) if written.endswith(text[:n])), 0)
        rest = text[begun:]
        if rest not in self._texts:
            tokens = self._vocabulary.tokens
            self._texts[rest] = np.array(
                [bool(t) and (rest.startswith(t) or t.startswith(rest)) for t in tokens]
            )
        return self._texts[rest]


def write(writer: Writer, vocabulary: Vocabulary, taste: Taste, *, most: int = 120) -> Written:
    """A text of at most so many tokens, chosen from what is allowed."""
    ids: list[int] = []
    ends = {*vocabulary.eos_ids}

    def written(end: End) -> Written:
        return Written(tuple(ids), vocabulary.text_of(ids), end)

    for step in range(most):
        allowed = writer.allowed()
        if not allowed.any():
            return written("corner")
        token = taste.choose(allowed, vocabulary.raw_bytes(ids[-8:]), step)
        if token in ends:
            return written("ended")
        ids.append(token)
        if not writer.advance(token):
            return written("refused")
    # A text whose last token is used up is one, if it may end there.
    return written("ended" if writer.allowed()[[*ends]].any() else "unfinished")


def tempting(schema: Schema, policy: Any) -> list[str]:
    """What texts are drawn to: what the schema names, and what the policy's strings are."""
    strings = [text for rule in policy.rules for text in getattr(rule, "strings", ())] if policy else []
    return [*wanted_texts(schema), *strings]
