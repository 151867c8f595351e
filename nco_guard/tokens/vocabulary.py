"""A tokenizer, read once: what each token id adds to the text.

`read_vocabulary` reads a fast tokenizer of transformers, a raw `tokenizers.Tokenizer` or one of Mistral's own and
checks what it read against the tokenizer's own `decode`. Everything after this module sees bytes and integers only.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nco_guard.automata import Rewriting
from nco_guard.automata.rewriting import BOUNDARY
from nco_guard.errors import TokenizerError
from nco_guard.tokens.families import CLEANUP, decoding_of
from nco_guard.tokens.mistral import Pieces, mistral_pieces

__all__ = ["Vocabulary", "read_vocabulary"]

_CLEANUP_PROBE = "a . b ? c ! d , e ' f n't g 'm h 's i 've j 're k do not l ' . '  , ' 's ' n't '"
_MARKS = frozenset(
    {b"", b".", b"?", b"!", b",", b"'", b"n't", b"n", b"m", b"s", b"t", b"ve", b"re", b"r", b"v", b"e"}
)
_SAMPLED_TOKENS = 300
_SAMPLED_SEQUENCES = 120


@dataclass(frozen=True)
class Vocabulary:
    """What each token id adds to the decoded text, and which ids end it.

    tokens: one byte string per column of the logits, `len(tokens) == width`. `b""` for special tokens that
        `decode` skips and for unusable ids. A byte string alone need not be valid UTF-8. Under `rewriting`, bytes
        that no text has may be marks.
    eos_ids: ids that end the text, sorted. An end-of-sequence token whose literal text `decode` keeps (one
        that is not special, or any if special tokens are not skipped) adds that text before the end.
    special_ids: ids of special tokens, sorted.
    unusable_ids: ids without a token (holes, padding columns of the logits) or without a meaning of their
        own, sorted. They are always forbidden.
    width: number of columns of the logits.
    strips_first_space: the decoder drops one leading space of the whole text.
    family: how tokens decode, e.g. "byte-level" or "byte-fallback".
    skip_special_tokens: whether the text that is guarded is `decode(..., skip_special_tokens=True)`.
    rewriting: what `decode` does to the joined bytes of all tokens, or None: WordPiece's first piece,
        `clean_up_tokenization_spaces`, special tokens that separate.
    digest: SHA-256 (hexadecimal) of all of the above; equal in every process.
    """

    tokens: tuple[bytes, ...]
    eos_ids: tuple[int, ...]
    special_ids: tuple[int, ...]
    unusable_ids: tuple[int, ...]
    width: int
    strips_first_space: bool
    family: str
    skip_special_tokens: bool
    rewriting: Rewriting | None
    digest: str

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Vocabulary(family={self.family!r}, width={self.width}, digest={self.digest[:12]!r})"

    @classmethod
    def build(
        cls,
        tokens: Sequence[bytes],
        *,
        eos_ids: Iterable[int] = (),
        special_ids: Iterable[int] = (),
        unusable_ids: Iterable[int] = (),
        strips_first_space: bool = False,
        family: str = "custom",
        skip_special_tokens: bool = True,
        rewriting: Rewriting | None = None,
    ) -> Vocabulary:
        """A vocabulary from its parts, digest computed; for engines without a tokenizer object, and for
        tests.

        The width is `len(tokens)`. Raises `TokenizerError` if an id is out of range or an end-of-sequence id
        is unusable.
        """
        eos, special, unusable = (tuple(sorted(set(ids))) for ids in (eos_ids, special_ids, unusable_ids))
        for name, ids in (("eos_ids", eos), ("special_ids", special), ("unusable_ids", unusable)):
            if ids and not 0 <= ids[0] <= ids[-1] < len(tokens):
                raise TokenizerError(f"{name}: ids must lie in [0, {len(tokens)}), got {ids[0]} to {ids[-1]}")
        if rewriting is not None:
            rewriting = replace(rewriting, strips_first_space=strips_first_space)
        if clash := set(eos) & set(unusable):
            raise TokenizerError(f"end-of-sequence ids {sorted(clash)} have no token in the vocabulary")
        return cls(
            tokens=tuple(tokens),
            eos_ids=eos,
            special_ids=special,
            unusable_ids=unusable,
            width=len(tokens),
            strips_first_space=strips_first_space,
            family=family,
            skip_special_tokens=skip_special_tokens,
            rewriting=rewriting,
            digest=_digest(
                tokens, eos, special, unusable, (family, strips_first_space, skip_special_tokens), rewriting
            ),
        )

    @cached_property
    def _eos(self) -> frozenset[int]:
        return frozenset(self.eos_ids)

    @cached_property
    def silent_ids(self) -> frozenset[int]:
        """Ids of tokens that add no text: skipped special tokens."""
        nothing = (
            {b"", bytes([BOUNDARY])} if self.rewriting is not None and self.rewriting.boundaries else {b""}
        )
        unusable = set(self.unusable_ids)
        return frozenset(i for i, token in enumerate(self.tokens) if token in nothing and i not in unusable)

    def until_end(self, ids: Iterable[int]) -> list[int]:
        """The ids up to and with the first end-of-sequence id; pads after it are not part of the text."""
        result = []
        for token in ids:
            result.append(int(token))
            if token in self._eos:
                break
        return result

    def raw_bytes(self, ids: Iterable[int]) -> bytes:
        """What the automata are fed for `ids`: the bytes of all tokens, joined; ids after the first end are ignored."""
        tokens = self.tokens
        return b"".join([tokens[token] for token in self.until_end(ids)])

    def text_of(self, ids: Iterable[int]) -> str:
        """The text a reader gets for generated `ids`: what `decode` returns wherever the bytes are valid
        UTF-8.

        Ids after the first end-of-sequence are ignored. Ill-formed bytes become U+FFFD. Linear in the length.
        """
        return self._read(self.raw_bytes(ids)).decode("utf-8", errors="replace")

    def settled_text_of(self, ids: Iterable[int]) -> str:
        """The beginning of `text_of(ids)` that no further token can change; ends between characters."""
        raw = self.raw_bytes(ids)
        if self.rewriting is None:
            settled = self._read(raw)
        else:
            state, parts = self.rewriting.begin(fresh=True), []
            for byte in raw:
                state, part = self.rewriting.step(state, byte)
                parts.append(part)
            settled = b"".join(parts)
        text = settled.decode("utf-8", errors="replace")
        # An incomplete character reads as U+FFFD until its last byte is there.
        return text.rstrip("\ufffd")

    def context_bytes(self, ids: Iterable[int]) -> bytes:
        """A prompt as the automata are fed it: well-formed UTF-8, what is ill-formed replaced by U+FFFD.

        Ids outside the vocabulary add nothing. First spaces are kept, and rewriting is left to the automata.
        """
        raw = self._joined(ids)
        if self.rewriting is not None:
            raw = replace(self.rewriting, replacements=(), drops=(), strips_first_space=False).apply(raw)
        return raw.decode("utf-8", "replace").encode()

    def _joined(self, ids: Iterable[int]) -> bytes:
        return b"".join(self.tokens[token] for token in ids if 0 <= token < self.width)

    def continuation_of(self, prompt: Iterable[int], ids: Iterable[int]) -> tuple[str, str]:
        """The text of a prompt, and the text of `ids` as its continuation: its first space is kept.

        Where decoding rewrites text, the second begins where the joined text first differs from the prompt's.
        """
        before, after = self._joined(prompt), self.raw_bytes(ids)
        if self.rewriting is None:
            return before.decode("utf-8", "replace"), after.decode("utf-8", "replace")
        rewriting = replace(self.rewriting, strips_first_space=False)
        alone = rewriting.apply(before).decode("utf-8", "replace")
        joined = rewriting.apply(before + after).decode("utf-8", "replace")
        differing = (i for i, (a, b) in enumerate(zip(alone, joined, strict=False)) if a != b)
        shared = next(differing, min(len(alone), len(joined)))
        return joined[:shared], joined[shared:]

    def _read(self, raw: bytes) -> bytes:
        if self.rewriting is not None:
            return self.rewriting.apply(raw)
        return raw[1:] if self.strips_first_space and raw[:1] == b" " else raw


def read_vocabulary(
    tokenizer: Any,
    *,
    vocab_width: int | None = None,
    skip_special_tokens: bool = True,
    eos_token_ids: int | Iterable[int] | None = None,
) -> Vocabulary:
    """Read a tokenizer into a `Vocabulary` and check it against the tokenizer's own `decode`.

    tokenizer: a fast tokenizer of transformers, a `tokenizers.Tokenizer`, or a `MistralCommonBackend`.
    vocab_width: columns of the model's logits, if wider than the tokenizer; the columns past it are
    forbidden.
    skip_special_tokens: as the caller will pass it to `decode`.
    eos_token_ids: end-of-sequence ids besides the tokenizer's own (a raw tokenizer has none of its own).

    Deterministic; about 0.3 s for 128,000 tokens. Raises `TokenizerError`, naming the tokenizer and the
    reason, for families and settings that cannot be modelled exactly, for a width below the vocabulary's, and
    where `decode` disagrees with what was read.
    """
    name = _name_of(tokenizer)
    pieces = mistral_pieces(tokenizer, name, skip_special_tokens=skip_special_tokens)
    if pieces is None:
        pieces = _read_backend(tokenizer, name, skip_special_tokens)
    size = len(pieces.tokens)
    width = size if vocab_width is None else vocab_width
    if width < size:
        raise TokenizerError(
            f"tokenizer {name}: it has ids up to {size - 1} but the logits have {width} columns; "
            f"use the model's own tokenizer, or resize the model's embeddings to {size}"
        )
    padding = range(size, width)
    vocabulary = Vocabulary.build(
        [*pieces.tokens, *(b"" for _ in padding)],
        eos_ids=_eos_ids(tokenizer, eos_token_ids),
        special_ids=pieces.special_ids,
        unusable_ids={*pieces.unusable_ids, *padding},
        strips_first_space=pieces.strips_first_space,
        family=pieces.family,
        skip_special_tokens=skip_special_tokens,
        rewriting=pieces.rewriting,
    )
    _check_against_decode(vocabulary, tokenizer, name)
    return vocabulary


def _read_backend(tokenizer: Any, name: str, skip_special_tokens: bool) -> Pieces:
    """The pieces of a `tokenizers.Tokenizer`, or of what transformers wraps around one."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not (hasattr(backend, "get_vocab") and hasattr(backend, "decoder") and hasattr(backend, "model")):
        raise TokenizerError(
            f"tokenizer {name}: it has no tokenizers.Tokenizer behind it (a slow or custom tokenizer); "
            f"load its fast version, for example by AutoTokenizer.from_pretrained(...)"
        )
    decoding = decoding_of(backend, name)
    cleanup = _cleanup(tokenizer, backend, name)
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    strings: dict[int, str] = {
        index: string for string, index in backend.get_vocab(with_added_tokens=False).items()
    }
    # decode() reads an added token after the tokenizer's normaliser ("▁word" for "word"), so ask for that
    # string.
    strings.update({index: backend.id_to_token(index) for index in added})
    if not strings:
        raise TokenizerError(f"tokenizer {name}: its vocabulary is empty")

    # decode() skips by that string as well: a special token that the normaliser changes is not skipped.
    special_strings = {token.content for token in added.values() if token.special}
    special = {index for index in added if strings[index] in special_strings}
    ids = sorted(strings)
    contents = decoding.contents([strings[index] for index in ids])
    shown = [strings[index] for index in ids if not (skip_special_tokens and index in special)]
    if (reason := decoding.inexact(shown)) is not None:
        raise TokenizerError(f"tokenizer {name} ({decoding.family}): {reason}")
    tokens = [b""] * (max(strings) + 1)
    for index, content in zip(ids, contents, strict=True):
        tokens[index] = content
    # An empty token that is not skipped may still split a run of byte tokens in decode(): no text needs it.
    unusable = {index for index, token in enumerate(tokens) if not token}
    for index in special:
        if skip_special_tokens:
            tokens[index] = b""
        unusable.discard(index)
    prefix = decoding.first_prefix
    rewriting = Rewriting(prefix, cleanup) if prefix is not None or cleanup else None
    return Pieces(tokens, special, unusable, decoding.strips_first_space, decoding.family, rewriting)


def _cleanup(tokenizer: Any, backend: Any, name: str) -> tuple[tuple[bytes, bytes], ...]:
    """What transformers replaces in decoded text under `clean_up_tokenization_spaces`, in its order."""
    if not getattr(tokenizer, "clean_up_tokenization_spaces", False):
        return ()
    # Llama-3 ships with this flag on, and transformers ignores it for BPE models unless told twice.
    if type(backend.model).__name__ == "BPE" and not getattr(
        tokenizer, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", False
    ):
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


def _name_of(tokenizer: Any) -> str:
    path = getattr(tokenizer, "name_or_path", "")
    name = type(tokenizer).__name__
    return f"{name} {path!r}" if path else name


def _eos_ids(tokenizer: Any, given: int | Iterable[int] | None) -> set[int]:
    own = getattr(tokenizer, "eos_token_id", None)
    ids: set[int] = set()
    for source in (own, given):
        if source is not None:
            ids.update([int(source)] if isinstance(source, int) else (int(index) for index in source))
    return ids


def _digest(
    tokens: Sequence[bytes],
    eos: tuple[int, ...],
    special: tuple[int, ...],
    unusable: tuple[int, ...],
    settings: tuple[str, bool, bool],
    rewriting: Rewriting | None,
) -> str:
    hasher = hashlib.sha256(b"nco-guard vocabulary 1\n")
    hasher.update(repr(settings).encode())
    if rewriting is not None:
        hasher.update(repr(rewriting).encode())
    for ids in (eos, special, unusable, tuple(map(len, tokens))):
        hasher.update(np.array([len(ids), *ids], dtype="<i8").tobytes())
    hasher.update(b"".join(tokens))
    return hasher.hexdigest()


def _check_against_decode(vocabulary: Vocabulary, tokenizer: Any, name: str) -> None:
    """Compare with the tokenizer's own `decode` on a fixed sample, wherever the bytes are valid UTF-8."""
    marks = vocabulary.rewriting.marks if vocabulary.rewriting is not None else b""
    for sample in _samples(vocabulary):
        # In the middle of a text, an end-of-sequence token reads like any other.
        raw = b"".join([vocabulary.tokens[index] for index in sample])
        try:
            # Marks, which no text has, stand between characters.
            for part in re.split(b"[%s]" % re.escape(marks), raw) if marks else (raw,):
                part.decode("utf-8")
        except UnicodeDecodeError:
            continue
        expected = vocabulary._read(raw).decode("utf-8")
        if tokenizer.decode(sample, skip_special_tokens=vocabulary.skip_special_tokens) != expected:
            raise TokenizerError(
                f"tokenizer {name} ({vocabulary.family}): decode() returns another text than its "
                f"vocabulary says for the ids {sample}; this tokenizer cannot be modelled exactly"
            )


def _samples(vocabulary: Vocabulary) -> Iterable[list[int]]:
    """A few hundred ids, pairs and longer sequences: the same for the same vocabulary."""
    unusable = set(vocabulary.unusable_ids)
    usable = [index for index in range(vocabulary.width) if index not in unusable]
    tokens = vocabulary.tokens
    by_kind = {
        "special": list(vocabulary.special_ids),
        "spaced": [index for index in usable if tokens[index][:1] == b" "],
        "bytes": [index for index in usable if len(tokens[index]) == 1],
        "marks": [index for index in usable if tokens[index].strip(b" \xff") in _MARKS],
        "any": usable,
    }
    source = random.Random(vocabulary.width)
    for ids in by_kind.values():
        for index in source.sample(ids, min(len(ids), _SAMPLED_TOKENS // len(by_kind))):
            yield [index]
    kinds = [ids for ids in by_kind.values() if ids]
    for _ in range(_SAMPLED_SEQUENCES):
        for length in (2, 8):
            yield [source.choice(source.choice(kinds)) for _ in range(length)]
    # Characters that are spread over byte tokens.
    byte_of = {tokens[index]: index for index in by_kind["bytes"]}
    for character in "aé\n\t€中😀":
        parts = [byte_of.get(bytes([byte])) for byte in character.encode()]
        split = [part for part in parts if part is not None]
        if len(split) == len(parts):
            yield split
            yield [split[0], *split[1:], *split]
            if vocabulary.special_ids and vocabulary.skip_special_tokens:
                yield [*split[:1], vocabulary.special_ids[0], *split[1:]]
