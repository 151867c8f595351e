"""A guard by brute force, for strings and one word: what the engine tests need and nothing more."""

import re
from typing import Any

import numpy as np

from nco_guard.tokens import read_vocabulary

VIOLATED, ENDED = -1, -2


def missing(data: bytes) -> int:
    """How many bytes the last character lacks; -1 if ill-formed."""
    try:
        data.decode()
        return 0
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return -1
        head = data[error.start]
        need = 2 if head < 0xE0 else 3 if head < 0xF0 else 4
        return need - (len(data) - error.start)


class ToyTables:
    def __init__(self, vocabulary: Any, strings: list[str], words: list[str]) -> None:
        self.vocabulary = vocabulary
        self.strings = [s.encode() for s in strings]
        self.words = [re.compile(rb"(?<![a-zA-Z0-9_])" + w.encode() + rb"(?![a-zA-Z0-9_])") for w in words]
        self.ends = [re.compile(rb"(?<![a-zA-Z0-9_])" + w.encode() + rb"$") for w in words]
        self.texts: list[bytes] = [b""]
        self.numbers = {b"": 0}
        self.start = 0
        self.cache: dict[Any, Any] = {}

    def number(self, text: bytes) -> int:
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return self.numbers[text]

    def bad(self, text: bytes) -> bool:
        if missing(text) < 0 or any(s in text for s in self.strings):
            return True
        return any(m.end() < len(text) for w in self.words for m in w.finditer(text))

    def next(self, state: int, token: int) -> int:
        if token in self.vocabulary.unusable_ids:
            return VIOLATED
        text = self.texts[state] + self.vocabulary.tokens[token]
        if self.bad(text):
            return VIOLATED
        number = self.number(text)
        if token in self.vocabulary.eos_ids:
            return ENDED if self.may_end(number) else VIOLATED
        return number

    def may_end(self, state: int) -> bool:
        text = self.texts[state]
        return missing(text) == 0 and not any(e.search(text) for e in self.ends)

    def forbidden(self, state: int, remaining: int | None = None) -> np.ndarray:
        if remaining is not None and remaining > 4:
            remaining = None
        if (state, remaining) not in self.cache:
            result = []
            for token in range(self.vocabulary.width):
                after = self.next(state, token)
                if after == VIOLATED or (
                    after >= 0 and remaining is not None and not self.can(after, remaining)
                ):
                    result.append(token)
            self.cache[state, remaining] = np.array(result, dtype=np.int64)
        return self.cache[state, remaining]

    def can(self, state: int, remaining: int) -> bool:
        if self.may_end(state):
            return True
        lack = missing(self.texts[state])
        return remaining >= (lack or 1)

    def penalties(self, state: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)

    def start_after(self, context: bytes) -> int:
        return self.number(context)


class ToyBound:
    needs_context = False

    def __init__(self, vocabulary: Any, strings: list[str], words: list[str]) -> None:
        self.vocabulary = vocabulary
        self.tables = ToyTables(vocabulary, strings, words)


class ToyGuard:
    def __init__(self, strings: list[str], words: list[str]) -> None:
        self.strings, self.words = strings, words
        self.cache: dict[Any, Any] = {}

    def bind(
        self,
        tokenizer: Any,
        vocab_width: Any = None,
        skip_special_tokens: bool = True,
        eos_token_ids: Any = None,
    ) -> Any:
        v = read_vocabulary(
            tokenizer,
            vocab_width=vocab_width,
            skip_special_tokens=skip_special_tokens,
            eos_token_ids=eos_token_ids,
        )
        return self.cache.setdefault(v, ToyBound(v, self.strings, self.words))

    def verify(self, text: str) -> Any:
        data = text.encode()
        return not any(s.encode() in data for s in self.strings) and not any(
            re.search(rf"(?<![a-zA-Z0-9_]){w}(?![a-zA-Z0-9_])", text) for w in self.words
        )
