"""llguidance and xgrammar as they come: what a JSON Schema alone lets a text be, token by token.

Both read the bytes of a `Vocabulary` of ours, so that one text is one text to everybody.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nco_guard.tokens import Vocabulary

LIBRARIES = ("llguidance", "xgrammar")
Allowed = NDArray[np.bool_]


class RefusedSchema(Exception):
    """The library takes no such schema; its own words."""


class Writer(Protocol):
    """A text under way, written token by token."""

    def allowed(self) -> Allowed:
        """bool [width]: what may come next; ends of sequence among it where the text may end."""

    def advance(self, token: int) -> bool:
        """Append a token; False for one that is refused, after which nothing more is asked."""


class _Tokens:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_ids[0]
        outside = {*vocabulary.unusable_ids, *vocabulary.silent_ids, *vocabulary.eos_ids}
        # A special token's name is never text: it begins with a byte that no text has.
        self.tokens = [
            b"\xff<%d>" % place if place in outside else token
            for place, token in enumerate(vocabulary.tokens)
        ]
        self.special_token_ids = sorted(outside)

        self._ids = {
            token: place for place, token in reversed([*enumerate(self.tokens)]) if place not in outside
        }

    def __call__(self, text: bytes) -> list[int]:
        """Some tokens that write a text: the longest that fits, again and again."""
        found, begin = [], 0
        while begin < len(text):
            for end in range(len(text), begin, -1):
                if text[begin:end] in self._ids:
                    found.append(self._ids[text[begin:end]])
                    begin = end
                    break
            else:
                return found
        return found


class LLGuidanceShapes:
    """llguidance over one vocabulary."""

    name = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance

        self._library = llguidance
        self.vocabulary = vocabulary
        wrapped = llguidance.TokenizerWrapper(_Tokens(vocabulary))
        self._view = llguidance.LLTokenizer(wrapped, n_vocab=vocabulary.width)

    def writer(self, schema: Any) -> LLGuidanceWriter:
        """Errors: `RefusedSchema`."""
        matcher_of = self._library.LLMatcher
        grammar = matcher_of.grammar_from_json_schema(json.dumps(schema, ensure_ascii=False))
        matcher = matcher_of(self._view, grammar, log_level=0)
        if matcher.is_error():
            raise RefusedSchema(matcher.get_error())
        return LLGuidanceWriter(self.vocabulary, matcher)


class LLGuidanceWriter:
    """One text."""

    def __init__(self, vocabulary: Vocabulary, matcher: Any) -> None:
        self.vocabulary, self._matcher = vocabulary, matcher

    def allowed(self) -> Allowed:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found: Allowed = np.unpackbits(bits, bitorder="little")[: self.vocabulary.width].astype(bool)
        found[[*self.vocabulary.eos_ids]] = self._matcher.is_accepting()
        return found

    def advance(self, token: int) -> bool:
        return bool(self._matcher.consume_token(token))

    def fork(self) -> LLGuidanceWriter:
        return LLGuidanceWriter(self.vocabulary, self._matcher.deep_copy())


class XGrammarShapes:
    """xgrammar over one vocabulary; in its own default mode, which is strict, or not."""

    name = "xgrammar"

    def __init__(self, vocabulary: Vocabulary, *, strict: bool = True) -> None:
        import xgrammar

        self._library, self._strict = xgrammar, strict
        self.vocabulary = vocabulary
        tokens = _Tokens(vocabulary)
        view = xgrammar.TokenizerInfo(
            tokens.tokens, xgrammar.VocabType.RAW, stop_token_ids=list(vocabulary.eos_ids)
        )
        self._special = tokens.special_token_ids
        self._compiler = xgrammar.GrammarCompiler(view, max_threads=1, cache_enabled=False)

    def writer(self, schema: Any) -> XGrammarWriter:
        """Errors: `RefusedSchema`."""
        text = json.dumps(schema, ensure_ascii=False)
        try:
            compiled = self._compiler.compile_json_schema(text, strict_mode=self._strict)
        except Exception as error:  # its errors are of no common kind
            raise RefusedSchema(str(error)) from error
        matcher = self._library.GrammarMatcher(compiled)
        return XGrammarWriter(self.vocabulary, matcher, self._special)


class XGrammarWriter:
    """One text."""

    def __init__(self, vocabulary: Vocabulary, matcher: Any, special: list[int]) -> None:
        self.vocabulary, self._matcher, self._special = vocabulary, matcher, special
        self._bits = np.zeros((1, -(-vocabulary.width // 32)), np.int32)

    def allowed(self) -> Allowed:
        self._matcher.fill_next_token_bitmask(self._bits)
        every = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
        found: Allowed = every[: self.vocabulary.width].astype(bool)
        found[self._special] = False
        found[[*self.vocabulary.eos_ids]] = self._matcher.is_completed()
        return found

    def advance(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def fork(self) -> XGrammarWriter:
        return XGrammarWriter(self.vocabulary, self._matcher.fork(), self._special)


def library(name: str, vocabulary: Vocabulary) -> LLGuidanceShapes | XGrammarShapes:
    return LLGuidanceShapes(vocabulary) if name == "llguidance" else XGrammarShapes(vocabulary)
