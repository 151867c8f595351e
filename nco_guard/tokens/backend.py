"""Reading a `tokenizers.Tokenizer`, or what transformers wraps around one.

Half of the work is to get 128,000 strings out of it, and there is no way around that: they are also the one exact
sign of which tokenizer it is. They come as `decode` shows them to a decoder of our own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from nco_guard.automata import Rewriting
from nco_guard.errors import TokenizerError
from nco_guard.storage.store import digest
from nco_guard.tokens.families import CLEANUP, Decoding, decoding_of
from nco_guard.tokens.readers import CleanUp, VocabularyParts

__all__ = ["BackendText", "backend_of"]

_CLEANUP_PROBE = "a . b ? c ! d , e ' f n't g 'm h 's i 've j 're k do not l ' . '  , ' 's ' n't '"
# Ids that are read in one call: with more, what `decode` allocates no longer fits the processor's caches.
_AT_ONCE = 2048


def backend_of(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` behind a tokenizer, or None."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    known = hasattr(backend, "get_vocab") and hasattr(backend, "decoder") and hasattr(backend, "model")
    return backend if known else None


def _unread(given: Any) -> str:
    """Why something cannot be read as a tokenizer, and what to give in its place."""
    load = "AutoTokenizer.from_pretrained(...)"
    if hasattr(given, "generate"):
        return f"this is a model; give its tokenizer, as {load} loads it"
    if isinstance(given, str | os.PathLike):
        return f"this is a name; give the tokenizer itself, as {load} loads it"
    if given is None or not callable(given):
        return f"this is no tokenizer; give one that is loaded, as by {load}"
    return (
        "it has no tokenizers.Tokenizer behind it (a slow or custom tokenizer); load its fast version, for example "
        f"by {load}"
    )


@dataclass(frozen=True, slots=True)
class BackendText:
    """All that decides how a tokenizer's ids read, taken out of it; quick to get and to tell from another's.

    `joined`: the strings of its vocabulary, added tokens apart, in one text, or None where only `strings`, by id, can
    tell. `added`: for each added token its string, its content and whether it is special. `cleanup`: what transformers
    replaces in decoded text.
    """

    joined: str | None
    strings: dict[int, str]
    added: dict[int, tuple[str, str, bool]]
    decoding: Decoding
    cleanup: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, tokenizer: Any, name: str) -> BackendText:
        """Read it. `TokenizerError`, naming `name`, for other objects and for decoders that are not modelled."""
        backend = backend_of(tokenizer)
        if backend is None:
            raise TokenizerError(f"tokenizer {name}: {_unread(tokenizer)}")
        decoding = decoding_of(backend, name)
        cleanup = _cleanup(tokenizer, backend, name)
        joined = _joined_strings(backend)
        vocabulary = {} if joined is not None else backend.get_vocab(with_added_tokens=False)
        # decode() reads an added token after the tokenizer's normaliser ("▁word" for "word"), so ask for that
        # string.
        added = {
            index: (str(backend.id_to_token(index)), str(token.content), bool(token.special))
            for index, token in backend.get_added_tokens_decoder().items()
        }
        strings = {index: string for string, index in vocabulary.items()}
        return cls(joined, strings, added, decoding, cleanup)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        strings, added = (repr(sorted(each.items())) for each in (self.strings, self.added))
        joined = None if self.joined is None else self.joined.encode("utf-8", "surrogatepass")
        return digest(joined, strings, added, repr(self.decoding), repr(self.cleanup))

    @property
    def rewriting(self) -> Rewriting | None:
        """What `decode` does to the joined bytes of all tokens."""
        prefix = self.decoding.first_prefix
        return Rewriting(prefix, self.cleanup) if prefix is not None or self.cleanup else None

    def literals(self, ids: Iterable[int]) -> dict[int, bytes]:
        """What tokens say where none is skipped; nothing for ids without a token."""
        strings = dict(enumerate(self.joined.split(" "))) if self.joined is not None else self.strings
        known = strings | {index: string for index, (string, _, _) in self.added.items()}
        wanted = [index for index in ids if index in known]
        found = dict(zip(wanted, self.decoding.contents([known[index] for index in wanted]), strict=True))
        return {index: found.get(index, b"") for index in ids}

    def pieces(self, name: str, *, skip_special_tokens: bool) -> VocabularyParts:
        """What each id adds to the text. `TokenizerError`, naming `name`, where that cannot be said exactly."""
        strings = dict(enumerate(self.joined.split(" "))) if self.joined is not None else self.strings
        tokens, special, unusable = _read(strings, self.added, self.decoding, name, skip_special_tokens)
        strips = self.decoding.strips_first_space
        return VocabularyParts(tokens, special, unusable, strips, self.decoding.family, self.rewriting)


def _read(
    strings: dict[int, str],
    added: dict[int, tuple[str, str, bool]],
    decoding: Decoding,
    name: str,
    skip_special_tokens: bool,
) -> tuple[list[bytes], set[int], set[int]]:
    strings = strings | {index: string for index, (string, _, _) in added.items()}
    if not strings:
        raise TokenizerError(f"tokenizer {name}: its vocabulary is empty")
    # decode() skips by that string as well: a special token that the normaliser changes is not skipped.
    special_strings = {content for _, content, special in added.values() if special}
    special = {index for index in added if strings[index] in special_strings}
    ids = sorted(strings)
    ordered = [strings[index] for index in ids]
    contents = decoding.contents(ordered)
    skipped = special if skip_special_tokens else set()
    shown = (string for index, string in zip(ids, ordered, strict=True) if index not in skipped)
    if (reason := decoding.inexact(shown)) is not None:
        raise TokenizerError(f"tokenizer {name} ({decoding.family}): {reason}")
    tokens = contents
    if len(ids) <= ids[-1]:
        tokens = [b""] * (ids[-1] + 1)
        for index, content in zip(ids, contents, strict=True):
            tokens[index] = content
    # An empty token that is not skipped may still split a run of byte tokens in decode(): no text needs it.
    unusable = {index for index, token in enumerate(tokens) if not token}
    for index in special:
        if skip_special_tokens:
            tokens[index] = b""
        unusable.discard(index)
    return tokens, special, unusable


class _Listener:
    """A decoder that keeps the strings which it is shown."""

    shown: list[str]

    def decode_chain(self, strings: list[str]) -> list[str]:
        """What `tokenizers` calls."""
        self.shown = strings
        return []


def _joined_strings(backend: Any) -> str | None:
    """All strings of the vocabulary, added tokens apart, in the order of their ids, joined by spaces.

    None where that would not tell which they are: where ids have no string, or a string has a space in it.
    """
    count = backend.get_vocab_size(with_added_tokens=False)
    decoders = import_module(f"{type(backend).__module__.partition('.')[0]}.decoders")
    listener = _Listener()
    # The same model with a decoder of our own.
    bare = type(backend)(backend.model)
    bare.decoder = decoders.Decoder.custom(listener)
    parts: list[str] = []
    for first in range(0, count, _AT_ONCE):
        ids = list(range(first, min(first + _AT_ONCE, count)))
        bare.decode(ids, skip_special_tokens=False)
        if len(listener.shown) != len(ids):
            return None
        parts.append(" ".join(listener.shown))
    joined = " ".join(parts)
    return joined if count and joined.count(" ") == count - 1 else None


def _cleanup(tokenizer: Any, backend: Any, name: str) -> tuple[tuple[bytes, bytes], ...]:
    """What transformers replaces in decoded text under `clean_up_tokenization_spaces`, in its order."""
    told = CleanUp.of(tokenizer)
    # Llama-3 ships with this flag on, and transformers ignores it for BPE models unless told twice.
    if not told.wanted or (type(backend.model).__name__ == "BPE" and not told.of_bpe):
        return ()
    expected = _CLEANUP_PROBE
    for old, new in CLEANUP:
        expected = expected.replace(old, new)
    if tokenizer.clean_up_tokenization(_CLEANUP_PROBE) != expected:
        raise TokenizerError(
            f"tokenizer {name}: its clean_up_tokenization_spaces rewrites decoded text otherwise than transformers' "
            f"own does; set tokenizer.clean_up_tokenization_spaces = False"
        )
    return tuple((old.encode(), new.encode()) for old, new in CLEANUP)
