"""How each family of tokenizers turns tokens into text.

A tokenizer is modelled exactly or refused by name. What matters is its *decoder*, the part that `decode`
runs:

* **byte-level** (GPT-2, Llama-3, Qwen): every character of a token stands for one byte. A token with a
  character outside that alphabet (only added tokens have one) is its literal text.
* **byte-fallback** (Llama-2, Mistral, Gemma): `▁` reads as a space and `<0x41>` as one byte. The Llama-2 form
  also drops one space at the start of the whole text. The `Fuse` step is what makes that "whole text";
  without it every token would lose its space, so a `Strip` without `Fuse` is refused.
* **unigram** and **metaspace** (T5-style, XLNet-style): `▁` reads as a space, and the *first* token loses
  every `▁`. That equals "one leading space of the text" only where `▁` stands at the front of tokens and
  once, so other vocabularies with this decoder are refused.

* **wordpiece** (BERT-style): a space before every token that does not begin with `##`, which is dropped, but the
  first token stays as it is, `##` included. The decoder's `cleanup` rewrites each token by itself, so it is part of
  what the token is read as.

CTC, end-of-word suffixes, regular-expression replacements and tokenizers without a decoder (where `decode` inserts
spaces) are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import code_points
from nco_guard.automata.combine.rewriting import CONTINUATION
from nco_guard.errors import TokenizerError

__all__ = ["CLEANUP", "Decoding", "decoding_of"]

# What `clean_up_tokenization` of transformers replaces in the whole text, one after another.
CLEANUP = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
# The WordPiece decoder's own list, for each token: it has one more, and an order of its own.
_TOKEN_CLEANUP = (*CLEANUP[:7], (" do not", " don't"), *CLEANUP[7:])

_MARK = "▁"
# What Rust's `u8::from_str_radix(.., 16)` accepts between "<0x" and ">": two hex digits, or a plus and one.
_BYTE_TOKEN = re.compile(r"<0x(\+[0-9A-Fa-f]|[0-9A-Fa-f]{2})>")
_SUPPORTED = (
    "byte-level BPE, SentencePiece BPE with byte fallback, Unigram / Metaspace, and WordPiece are supported"
)


def _byte_alphabet() -> dict[int, int]:
    """GPT-2's table, code point -> byte: printable Latin-1 is itself, other bytes are U+0100 and onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: byte for byte in printable}
    others = (byte for byte in range(256) if byte not in table)
    table.update({0x100 + offset: byte for offset, byte in enumerate(others)})
    return table


BYTE_ALPHABET: dict[int, int] = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class Decoding:
    """What a decoder does to the string of one token, and to the start of the text."""

    family: str
    byte_level: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    strips_first_space: bool = False
    first_token_loses: str | None = None
    prefix: str | None = None
    cleans_tokens: bool = False

    @property
    def first_prefix(self) -> bytes | None:
        """What a continuation piece begins with where it is the first token."""
        return None if self.prefix is None else self.prefix.encode()

    def contents(self, strings: Sequence[str]) -> list[bytes]:
        """The bytes that each token string adds to the decoded text; linear in their total length."""
        if self.byte_level:
            return _byte_level(strings)
        if self.prefix is not None:
            return [self._piece(string) for string in strings]
        result = []
        for string in strings:
            if self.byte_fallback and string.startswith("<0x") and (match := _BYTE_TOKEN.fullmatch(string)):
                result.append(bytes([int(match[1], 16)]))
                continue
            for old, new in self.replacements:
                string = string.replace(old, new)
            result.append(string.encode("utf-8"))
        return result

    def inexact(self, strings: Iterable[str]) -> str | None:
        """Why this model of the decoder would read one of the token strings wrongly, or None."""
        mark = self.first_token_loses
        if self.prefix is not None:
            wrong = next((string for string in strings if not self._regular(string)), None)
            reason = "as the first of a text decodes otherwise than after others"
            way_out = "remove it, or switch off the decoder's cleanup"
        elif mark is not None:
            wrong = next((string for string in strings if mark in string[1:] or string[:1] == " "), None)
            reason = (
                "has other marks than one in front, or a space there: of a first token its Metaspace decoder drops "
                "all marks and no space"
            )
            way_out = (
                "set tokenizer.backend_tokenizer.decoder = "
                "Sequence([Replace('▁', ' '), Fuse(), Strip(' ', 1, 0)])"
            )
        else:
            return None
        return None if wrong is None else f"token {wrong!r} {reason}; {way_out}"

    def _clean(self, string: str) -> str:
        if self.cleans_tokens and (" " in string):
            for old, new in _TOKEN_CLEANUP:
                string = string.replace(old, new)
        return string

    def _later(self, string: str) -> str:
        """What a WordPiece token reads as after others."""
        prefix = self.prefix or ""
        return self._clean(string.removeprefix(prefix) if string.startswith(prefix) else f" {string}")

    def _piece(self, string: str) -> bytes:
        mark = bytes([CONTINUATION]) if string.startswith(self.prefix or "") else b""
        return mark + self._later(string).encode("utf-8")

    def _regular(self, string: str) -> bool:
        """Whether a WordPiece token at the start differs from others by its first space or its prefix alone."""
        prefix = self.prefix or ""
        first, later = self._clean(string), self._later(string)
        if string.startswith(prefix):
            return first == prefix + later
        return later == " " + first or (later == first and not first.startswith(" "))


_BYTE_OF: NDArray[np.uint8] = np.zeros(1 + max(BYTE_ALPHABET), np.uint8)
_BYTE_OF[list(BYTE_ALPHABET)] = list(BYTE_ALPHABET.values())


def cut(joined: bytes, lengths: NDArray[np.integer[Any]]) -> list[bytes]:
    """The pieces of these lengths, one after another."""
    ends = np.cumsum(lengths)
    return [joined[first:last] for first, last in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]


def _byte_level(strings: Sequence[str]) -> list[bytes]:
    alphabet = BYTE_ALPHABET
    known = alphabet.keys()
    # One pass over the vocabulary's characters instead of one per token; tokens outside the alphabet are
    # rare.
    joined = "".join(strings)
    if all(ord(character) in known for character in set(joined)):
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        return cut(_BYTE_OF[code_points(joined)].tobytes(), lengths)
    return [
        string.translate(alphabet).encode("latin-1")
        if all(ord(character) in known for character in string)
        else string.encode("utf-8")
        for string in strings
    ]


def decoding_of(backend: Any, tokenizer_name: str) -> Decoding:
    """The decoding of a `tokenizers.Tokenizer`.

    Reads its decoder's own serialised state (a few hundred bytes, not the whole `tokenizer.json`). Raises
    `TokenizerError` naming `tokenizer_name`, the family, the reason and a way out.
    """
    model = type(backend.model).__name__

    def refuse(reason: str, way_out: str = "use a tokenizer of a supported family") -> TokenizerError:
        return TokenizerError(
            f"tokenizer {tokenizer_name} ({model} model): {reason}; {way_out} ({_SUPPORTED})"
        )

    if model not in ("BPE", "Unigram", "WordPiece"):
        raise refuse("decoding of this model is not modelled")
    if backend.decoder is None:
        raise refuse(
            "it has no decoder, so decode() puts a space between any two tokens",
            "set tokenizer.backend_tokenizer.decoder to the decoder it was trained for",
        )
    steps = list(_flatten(json.loads(backend.decoder.__getstate__())))
    names = [step.get("type") for step in steps]
    if names == ["ByteLevel"]:
        return Decoding(family="byte-level", byte_level=True)
    if names == ["WordPiece"]:
        prefix = steps[0]["prefix"]
        if not prefix:
            raise refuse("its decoder has no continuation prefix")
        return Decoding(
            family="wordpiece", strips_first_space=True, prefix=prefix, cleans_tokens=steps[0]["cleanup"]
        )
    if names == ["Metaspace"]:
        return _metaspace(steps[0], "unigram" if model == "Unigram" else "metaspace")

    return _chained(steps, "unigram" if model == "Unigram" else "sentencepiece", refuse)


def _chained(steps: Sequence[dict[str, Any]], family: str, refuse: Callable[..., TokenizerError]) -> Decoding:
    """The decoding of a chain of steps; any other than those that SentencePiece's families have is refused."""
    names = [step.get("type") for step in steps]
    decoding = Decoding(family=family)
    fused = False
    for step, name in zip(steps, names, strict=True):
        if name == "Replace" and not fused and not decoding.byte_fallback:
            pattern = step["pattern"]
            if not isinstance(pattern, dict) or "String" not in pattern or not pattern["String"]:
                raise refuse("its decoder replaces by a regular expression")
            decoding = replace(
                decoding,
                replacements=(*decoding.replacements, (pattern["String"], step["content"])),
            )
        elif name == "ByteFallback" and not fused and not decoding.byte_fallback:
            decoding = replace(decoding, byte_fallback=True, family="byte-fallback")
        elif name == "Fuse":
            fused = True
        elif (
            name == "Strip"
            and fused
            and not decoding.strips_first_space
            and step["content"] == " "
            and (step["start"], step["stop"]) in ((0, 0), (1, 0))
        ):
            decoding = replace(decoding, strips_first_space=step["start"] == 1)
        else:
            raise refuse(
                f"its decoder chain {names} (at {name}) is not modelled",
                "if it is meant to read '▁' as a space, set it to Sequence([Replace('▁', ' '), "
                "ByteFallback(), Fuse(), Strip(' ', 1, 0)])",
            )
    return decoding


def _flatten(decoder: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if decoder.get("type") == "Sequence":
        for step in decoder["decoders"]:
            yield from _flatten(step)
    else:
        yield decoder


def _metaspace(step: dict[str, Any], family: str) -> Decoding:
    mark = step["replacement"]
    strips = step.get("prepend_scheme", "always") != "never"
    return Decoding(
        family=family,
        replacements=((mark, " "),),
        strips_first_space=strips,
        first_token_loses=mark if strips else None,
    )
