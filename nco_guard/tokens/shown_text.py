"""What tokens read as, as text: the one way, for whoever shows it and whoever finds there what masks find in bytes."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nco_guard.tokens.vocabulary import Vocabulary

__all__ = ["ShownText", "TextPieces"]


@dataclass(frozen=True, slots=True)
class ShownText:
    """How far the bytes of a text have been read; never changed: `read` gives another one, so a text can go back.

    Read are the tokens' own bytes, after a prompt those of `Vocabulary.context_bytes` before them; found is what a
    decoder makes of all these, as automata are shown it. Ill-formed bytes become U+FFFD.

    Examples:
        >>> reading = ShownText.begin(vocabulary, after_prompt=False)
        >>> reading, text = reading.read("caf\u00e9".encode()[:-1])
        >>> text, reading.held
        ('caf', 1)
    """

    vocabulary: Vocabulary
    _state: Any  # of the rewriting; without one, whether a first space is to be dropped
    _undecoded: bytes

    @classmethod
    def begin(cls, vocabulary: Vocabulary, *, after_prompt: bool) -> ShownText:
        """Before any byte. `after_prompt`: what is read is, or follows, a prompt: its first space is kept."""
        rewriting = vocabulary.rewriting
        if rewriting is None:
            return cls(vocabulary, vocabulary.strips_first_space and not after_prompt, b"")
        return cls(vocabulary, rewriting.begin(fresh=not after_prompt), b"")

    def read(self, data: bytes) -> tuple[ShownText, str]:
        """Read on: what has been read then, and the characters that are certain with it."""
        if not data:
            return self, ""
        rewriting, state = self.vocabulary.rewriting, self._state
        if rewriting is None:
            data, state = data[1:] if state and data[:1] == b" " else data, False
        else:
            parts: list[bytes] = []
            for byte in data:
                state, part = rewriting.step(state, byte)
                parts.append(part)
            data = b"".join(parts)
        data = self._undecoded + data
        text, done = utf_8_decode(data, "replace", False)
        return ShownText(self.vocabulary, state, data[done:]), text

    @property
    def rest(self) -> str:
        """The characters that are still to come if the text ends here."""
        return utf_8_decode(self._undecoded + self._flushed, "replace", True)[0]

    @property
    def held(self) -> int:
        """At most so many characters have begun and are not certain yet."""
        return bool(self._undecoded) + len(self._flushed)

    @property
    def _flushed(self) -> bytes:
        rewriting = self.vocabulary.rewriting
        return b"" if rewriting is None else rewriting.flush(self._state)


class TextPieces:
    """The text of ids that arrive one after another: `feed` and `finish` give what is certain and was not before.

    Joined it is `Vocabulary.text_of` of all ids, and at any moment a beginning of it that no further id can change; it
    ends between characters. Read by `ShownText`; unlike it, this takes ids, ends with the first end-of-sequence, and
    keeps back U+FFFD at the end of what it gives. Cost: linear in the ids, however they come.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._reading = ShownText.begin(vocabulary, after_prompt=False)
        self._unsure = ""
        self._over = self._finished = False

    def feed(self, ids: Iterable[int]) -> str:
        """Read on; ids after the first end-of-sequence are ignored."""
        if self._over:
            return ""
        read = self._vocabulary.until_end(ids)
        self._over = bool(read) and read[-1] in self._vocabulary.eos_ids
        tokens = self._vocabulary.shown
        self._reading, more = self._reading.read(b"".join([tokens[token] for token in read]))
        text = self._unsure + more
        shown = text.rstrip("\ufffd")
        self._unsure = text[len(shown) :]
        return shown

    def finish(self) -> str:
        """The text ends here; the rest. Nothing comes after it."""
        rest = "" if self._finished else self._unsure + self._reading.rest
        self._over = self._finished = True
        return rest
