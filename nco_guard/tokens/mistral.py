"""Mistral's own tokenizers, tekken and SentencePiece, as transformers offers them (`MistralCommonBackend`).

They have no `tokenizers.Tokenizer` behind them, and are recognised by what they offer, so that neither transformers nor
mistral-common is needed here. What their `decode` does:

* **tekken**: every token is bytes. A special token that is skipped still separates: a character cannot go on after it.
* **SentencePiece**: pieces with `▁` for a space, and byte tokens; the first piece loses one space. With special tokens
  kept, `decode` shows the pieces themselves, `▁` and `<0x41>` included.
* Both: with special tokens skipped, transformers takes `lang:xx` off the start of a text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import Any

from nco_guard.automata import Rewriting
from nco_guard.automata.combine.rewriting import BOUNDARY
from nco_guard.errors import TokenizerError
from nco_guard.tokens.readers import CleanUp, VocabularyParts

__all__ = ["mistral_literals", "mistral_pieces"]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_LETTERS = string.ascii_lowercase.encode()
_DROPPED = (*(bytes([byte]) for byte in b"lang:"), _LETTERS, _LETTERS)


def mistral_pieces(tokenizer: Any, name: str, *, skip_special_tokens: bool) -> VocabularyParts | None:
    """The pieces of a `MistralCommonBackend`; None for any other object.

    Raises `TokenizerError` for settings that are not modelled, naming `name`.
    """
    inner = _inner(tokenizer)
    if inner is None:
        return None
    if CleanUp.of(tokenizer).wanted:
        raise TokenizerError(
            f"tokenizer {name}: clean_up_tokenization_spaces is not modelled for Mistral's own tokenizers; set "
            f"tokenizer.clean_up_tokenization_spaces = False"
        )
    special = {index for index in range(inner.n_words) if inner.is_special(index)}
    read = _tekken if hasattr(inner, "id_to_byte_piece") else _sentencepiece
    pieces = read(inner, special, skip_special_tokens)
    if skip_special_tokens:
        # A byte that no text has must not be taken for the mark.
        pieces.unusable_ids.update(index for index, token in enumerate(pieces.tokens) if BOUNDARY in token)
        for index in special:
            pieces.tokens[index] = bytes([BOUNDARY])
    for index in pieces.unusable_ids:
        pieces.tokens[index] = b""
    return pieces


def mistral_literals(tokenizer: Any, ids: Iterable[int]) -> dict[int, bytes] | None:
    """What tokens of a `MistralCommonBackend` say where none is skipped; None for any other object."""
    inner = _inner(tokenizer)
    if inner is None:
        return None
    return {index: inner.id_to_piece(index).encode() for index in ids}


def _inner(tokenizer: Any) -> Any:
    instruct = getattr(getattr(tokenizer, "tokenizer", None), "instruct_tokenizer", None)
    inner = getattr(instruct, "tokenizer", None)
    return inner if hasattr(inner, "n_words") else None


def _rewriting(skip_special_tokens: bool) -> Rewriting | None:
    return Rewriting(drops=_DROPPED, boundaries=True) if skip_special_tokens else None


def _tekken(inner: Any, special: set[int], skip_special_tokens: bool) -> VocabularyParts:
    tokens = [
        inner.id_to_piece(index).encode() if index in special else inner.id_to_byte_piece(index)
        for index in range(inner.n_words)
    ]
    return VocabularyParts(tokens, special, set(), False, "tekken", _rewriting(skip_special_tokens))


def _sentencepiece(inner: Any, special: set[int], skip_special_tokens: bool) -> VocabularyParts:
    strings = [inner.id_to_piece(index) for index in range(inner.n_words)]
    # The unknown token reads as a sign of its own, with spaces that depend on where it stands.
    unusable = {int(inner.unk_id)}
    if not skip_special_tokens:
        return VocabularyParts(
            [s.encode() for s in strings], special, set(), False, "sentencepiece-pieces", None
        )
    tokens = []
    for index, piece in enumerate(strings):
        found = _BYTE_TOKEN.fullmatch(piece)
        tokens.append(bytes([int(found[1], 16)]) if found else piece.replace("▁", " ").encode())
        if found and tokens[-1] == b" ":
            unusable.add(
                index
            )  # as the first of a text it is kept, unlike the space that everybody else writes
    return VocabularyParts(tokens, special, unusable, True, "sentencepiece", _rewriting(True))
