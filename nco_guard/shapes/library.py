"""llguidance, behind the few questions that are asked of it.

It is shown bytes, ours: the tokens of a `tokens.Vocabulary`, and beside them each byte as a token of its own, by
which a text is brought to a place whatever tokens it was written in. It knows nothing of ends and special tokens;
these are the vocabulary's affair.

Cost: for 49,000 tokens a tenth of a second once; a few microseconds for a mask, one for a copy.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.errors import MissingExtraError, ShapeError, ShapeLimitError
from nco_guard.tokens import Vocabulary

__all__ = [
    "GrammarReader",
    "Tokenizer",
    "check_items",
    "check_json_of",
    "complaint",
    "in_lark",
    "library_since",
    "tokenizer_of",
]

_WHERE = re.compile(r"^(?:error: |at \d+\(\d+\): )")  # the line is that of a grammar with one more in front
# Text in which several marks are looked for takes more than the library allows otherwise.
_LIMITS = {
    "initial_lexer_fuel": 20_000_000,
    "step_lexer_fuel": 5_000_000,
    # An object has four for each of its properties.
    "max_items_in_row": 100_000,
    "step_max_items": 1_000_000,
}
# What it says where no token may come, which is no limit.
_NOTHING_FOLLOWS = "NoExtensionBias"
# Texts at which the library stands, kept for who goes on from there.
_KEPT = 64
_LEAST = -(2**63)
# Of versions that hold each item that there may be.
_ITEMS = 100_000
_BYTES = tuple(bytes([byte]) for byte in range(256))


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise MissingExtraError("shape=", "shape") from error
    return llguidance


@lru_cache(maxsize=1)
def _version() -> tuple[int, ...]:
    try:
        return tuple(map(int, re.findall(r"[0-9]+", version("llguidance"))[:3]))
    except PackageNotFoundError:
        return ()


def library_since(*wanted: int) -> bool:
    """Whether the library is of a version, or later. What earlier ones get wrong is done, or refused, in its stead."""
    return not _version() or _version() >= wanted


class _Tokens:
    """Tokens as llguidance takes them; it never has to tokenize, since nothing is forced."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = [*tokens, *_BYTES, b""]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: bytes | str) -> list[int]:
        first = len(self.tokens) - 257
        return [first + byte for byte in (text.encode() if isinstance(text, str) else text)]


class Tokenizer:
    """Tokens as the library knows them. `first`: the id of the byte 0."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        wrapped = _Tokens(tokens)
        self.first = len(tokens)
        self.made: Any = _library().LLTokenizer(wrapped, n_vocab=len(wrapped.tokens))


@lru_cache(maxsize=4)
def tokenizer_of(vocabulary: Vocabulary | None, *, first: bool = False) -> Tokenizer:
    """The tokens of a vocabulary; None: bytes alone. `first`: as they are read at the start of a text."""
    if vocabulary is None:
        return Tokenizer(())
    silent = {*vocabulary.eos_ids, *vocabulary.unusable_ids}
    tokens = [b"" if token in silent else data for token, data in enumerate(vocabulary.tokens)]
    if first:
        tokens = [data[1:] if data[:1] == b" " else data for data in tokens]
    return Tokenizer(tokens)


_CASES = "oneOf: it is not seen that its cases bar each other; write anyOf, or a const by which they differ"
_NO_STRING = "no string is all that is asked of it (pattern, format, length)"
_NO_WHOLE = (
    "a schema of whole numbers among which there is none, which llguidance before 1.9 does not take; install "
    "llguidance>=1.9, or leave the schema out"
)


def complaint(grammar: str) -> str | None:
    """What the library says against a grammar, in one line and without a piece of the grammar; None: nothing."""
    limits = _library().LLParserLimits(verbose_errors=False, **_LIMITS)
    said = str(_library().LLMatcher.validate_grammar(grammar, tokenizer_of(None).made, limits=limits))
    if not said or said.startswith("WARNING"):
        return None
    lines = said.splitlines()
    # What the parser of regular expressions says stands behind the pattern, which it shows.
    reason = next((line for line in lines if line.startswith("error: ")), lines[0])
    found = _WHERE.sub("", reason.partition("failed to compile JSON schema: ")[2] or reason)
    # It names an option of its own, under which more than one of the schemas might hold.
    if found.startswith("oneOf constraints are not supported"):
        return _CASES
    # In its own notation of regular expressions, a piece of the grammar stands behind this.
    found = re.sub(r"Regex is empty:.*", _NO_STRING, found)
    return _NO_WHOLE if "integer range" in found and not library_since(1, 9) else found


def check_items(schema: Mapping[str, Any], place: str | None = None) -> None:
    """Refuse a schema with so many items that a library which holds them all would fill the memory."""
    counts = [schema.get(name) for name in ("minItems", "maxItems")]
    if any(isinstance(each, int) and each > _ITEMS for each in counts) and not library_since(1, 9):
        raise ShapeError(
            f"more than {_ITEMS:,} items, which llguidance before 1.9 cannot count to; install llguidance>=1.9, or "
            "write a smaller number",
            place=place,
        )


def check_json_of(grammar: str) -> None:
    """Refuse a grammar whose JSON Schemas hold numbers by which the library ends the process."""
    for begin in re.finditer(r"%json\b\s*", grammar):
        try:
            waiting = [json.JSONDecoder().raw_decode(grammar, begin.end())[0]]
        except (ValueError, RecursionError):
            continue  # the library says what is wrong with it
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                check_items(value)
            if isinstance(value, dict | list):
                waiting += value.values() if isinstance(value, dict) else value
            elif isinstance(value, int | float) and value <= _LEAST + 1024:
                raise ShapeError(
                    "%json: a number near -2**63 or below, which the library cannot count to; give the schema to "
                    "Shape.json, or a greater number"
                )


def in_lark(pattern: str) -> str:
    """A regular expression as it stands between slashes in a grammar; classes are Unicode's, as in Python."""
    return str(_library().regex_to_lark(pattern, ""))


class GrammarReader:
    """A text of a grammar under way; `at` brings copies to where texts stand.

    What is given to `at` and `mask` must have been let come before. Errors: `ShapeLimitError`, of the library's limits.
    """

    def __init__(self, grammar: str, tokenizer: Tokenizer) -> None:
        library = _library()
        limits = library.LLParserLimits(verbose_errors=False, **_LIMITS)
        self._first = tokenizer.first
        self._start: Any = library.LLMatcher(tokenizer.made, grammar, log_level=0, limits=limits)
        self._kept: OrderedDict[bytes, Any] = OrderedDict([(b"", self._start)])

    def at(self, text: bytes) -> Any:
        """The library's matcher after a text: a copy."""
        known = self._kept.get(text)
        if known is None:
            # Who goes on does so from where somebody stood shortly before, mostly.
            begun = max((each for each in self._kept if text.startswith(each)), key=len)
            known = self._kept[begun].deep_copy()
            known.consume_tokens([self._first + byte for byte in text[len(begun) :]])
            self._kept[text] = known
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
                self._kept[b""] = self._start
        else:
            self._kept.move_to_end(text)
        return known.deep_copy()

    def mask(self, found: Any) -> NDArray[np.bool_]:
        """Which tokens it lets come, bytes behind them; and at last whether the text may end."""
        packed = np.frombuffer(found.compute_bitmask(), np.uint8)
        if found.is_error() and (said := found.get_error().splitlines()[0]) != _NOTHING_FOLLOWS:
            raise ShapeLimitError(f"a limit of the library was met: {said}")
        return np.unpackbits(packed, bitorder="little")[: self._first + 257].astype(bool)

    def leads(self, found: Any, data: bytes, *, ends: bool = False) -> bool:
        """Whether it lets some bytes come (and the text end after them)."""
        wanted = [self._first + byte for byte in data]
        if ends:
            wanted.append(self._first + 256)
        return bool(found.validate_tokens(wanted) == len(wanted)) if wanted else True
