"""A tokenizer, read once: what each token id adds to the text.

`read_vocabulary` reads a fast tokenizer of transformers, a raw `tokenizers.Tokenizer` or one of Mistral's own and
checks what it read against the tokenizer's own `decode`. Everything after this module sees bytes and integers only.
"""

from __future__ import annotations

import hashlib
import random
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Rewriting
from nco_guard.automata.combine.rewriting import BOUNDARY, CONTINUATION
from nco_guard.errors import TokenizerError
from nco_guard.storage.store import Store, digest, made_by
from nco_guard.tokens.backend import BackendText
from nco_guard.tokens.binding import Binding
from nco_guard.tokens.mistral import VocabularyParts, mistral_pieces

__all__ = ["TextPieces", "Vocabulary", "read_vocabulary"]

# What clean-up settings look for, alone, with spaces around, and as continuation pieces.
_MARKS = frozenset(
    before + mark + after
    for mark in (
        b"",
        b"'",
        b"n't",
        b"'ve",
        b"'re",
        b"ve",
        b"re",
        b"'m",
        b"'s",
        *(bytes([c]) for c in b".?!,nmstrve"),
    )
    for before in (b"", b" ", b"  ", bytes([CONTINUATION]))
    for after in (b"", b" ")
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
        silent = compress(range(self.width), map(nothing.__contains__, self.tokens))
        return frozenset(silent).difference(self.unusable_ids)

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


class TextPieces:
    """The text of ids that arrive one after another: `feed` and `finish` give what is certain and was not before.

    Joined it is `Vocabulary.text_of` of all ids, and at any moment a beginning of it that no further id can change; it
    ends between characters. Cost: linear in the ids, however they come.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = getincrementaldecoder("utf-8")("replace")
        rewriting = vocabulary.rewriting
        self._state = rewriting.begin(fresh=True) if rewriting is not None else None
        self._strips = rewriting is None and vocabulary.strips_first_space
        # An incomplete character reads as U+FFFD until its last byte is there.
        self._unsure = ""
        self._over = False

    def feed(self, ids: Iterable[int]) -> str:
        """Read on; ids after the first end-of-sequence are ignored."""
        if self._over:
            return ""
        read = self._vocabulary.until_end(ids)
        self._over = bool(read) and read[-1] in self._vocabulary.eos_ids
        tokens = self._vocabulary.tokens
        return self._shown(self._settled(b"".join([tokens[token] for token in read])))

    def finish(self) -> str:
        """The text ends here; the rest."""
        rewriting = self._vocabulary.rewriting
        rest = rewriting.flush(self._state) if rewriting is not None and self._state is not None else b""
        text, self._unsure = self._unsure + self._decoder.decode(rest, True), ""
        self._state, self._over = None, True
        return text

    def _settled(self, raw: bytes) -> bytes:
        rewriting = self._vocabulary.rewriting
        if rewriting is None or self._state is None:
            stripped = raw[1:] if self._strips and raw[:1] == b" " else raw
            self._strips = self._strips and not raw
            return stripped
        parts: list[bytes] = []
        for byte in raw:
            self._state, part = rewriting.step(self._state, byte)
            parts.append(part)
        return b"".join(parts)

    def _shown(self, settled: bytes) -> str:
        text = self._unsure + self._decoder.decode(settled)
        shown = text.rstrip("\ufffd")
        self._unsure = text[len(shown) :]
        return shown


def read_vocabulary(
    tokenizer: Any,
    binding: Binding = Binding(),  # noqa: B008 (it never changes)
    *,
    store: Store | None = None,
) -> Vocabulary:
    """Read a tokenizer into a `Vocabulary` and check it against the tokenizer's own `decode`.

    tokenizer: a fast tokenizer of transformers, a `tokenizers.Tokenizer`, or a `MistralCommonBackend`.
    binding: columns of the logits, how texts are decoded, further end-of-sequence ids.
    store: where what was read is kept for other processes; tokenizers of Mistral's own are read every time.

    Deterministic; about 0.15 s for 128,000 tokens, less if they were kept. Raises `TokenizerError`, naming the
    tokenizer and the reason, for families and settings that cannot be modelled exactly, for a width below the
    vocabulary's, and where `decode` disagrees with what was read.
    """
    name = _name_of(tokenizer)
    eos = sorted({*_own_eos(tokenizer), *binding.eos_token_ids})
    skip = binding.skip_special_tokens
    pieces = mistral_pieces(tokenizer, name, skip_special_tokens=skip)
    if pieces is not None:
        vocabulary = _built(pieces, eos, name, binding)
        _check_against_decode(vocabulary, _samples(vocabulary), tokenizer, name)
        return vocabulary
    text = BackendText.of(tokenizer, name)
    key = digest(made_by(), text.digest, repr(eos), binding.vocab_width, skip) if store is not None else ""
    kept = store.load("vocabulary", key) if store is not None else None
    if kept is not None:
        vocabulary, samples = _from_arrays(kept, text, skip)
    else:
        pieces = text.pieces(name, skip_special_tokens=skip)
        vocabulary = _built(pieces, eos, name, binding)
        samples = list(_samples(vocabulary))
    # Kept or not: what one class's `decode` does says nothing about another's.
    _check_against_decode(vocabulary, samples, tokenizer, name)
    if store is not None and kept is None:
        store.save("vocabulary", key, _to_arrays(vocabulary, samples))
    return vocabulary


def _built(pieces: VocabularyParts, eos: Iterable[int], name: str, binding: Binding) -> Vocabulary:
    size = len(pieces.tokens)
    width = size if binding.vocab_width is None else binding.vocab_width
    if width < size:
        raise TokenizerError(
            f"tokenizer {name}: it has ids up to {size - 1} but the logits have {width} columns; "
            f"use the model's own tokenizer, or resize the model's embeddings to {size}"
        )
    padding = range(size, width)
    return Vocabulary.build(
        [*pieces.tokens, *(b"" for _ in padding)],
        eos_ids=eos,
        special_ids=pieces.special_ids,
        unusable_ids={*pieces.unusable_ids, *padding},
        strips_first_space=pieces.strips_first_space,
        family=pieces.family,
        skip_special_tokens=binding.skip_special_tokens,
        rewriting=pieces.rewriting,
    )


def _to_arrays(vocabulary: Vocabulary, samples: Sequence[Sequence[int]]) -> dict[str, NDArray[Any]]:
    tokens = vocabulary.tokens
    separator = _separator(tokens)
    numbers = {
        "eos_ids": vocabulary.eos_ids,
        "special_ids": vocabulary.special_ids,
        "unusable_ids": vocabulary.unusable_ids,
        "samples": [index for sample in samples for index in sample],
        "sample_lengths": list(map(len, samples)),
    }
    return {
        **{name: np.array(values, np.int32) for name, values in numbers.items()},
        "separator": np.frombuffer(separator, np.uint8),
        "bytes": np.frombuffer(separator.join(tokens), np.uint8),
        "digest": np.frombuffer(bytes.fromhex(vocabulary.digest), np.uint8),
    }


def _separator(tokens: Sequence[bytes]) -> bytes:
    """Bytes by which joined tokens can be split again, twice as fast as they are cut by their lengths.

    None of the tokens has them; and since they end with a byte that is not among the others, they are not found half in
    a token and half in what separates it from the next.
    """
    return next(s for n in count(1) if not any((s := b"\xff" * n + b"\xfe") in token for token in tokens))


def _from_arrays(
    arrays: Mapping[str, NDArray[Any]], text: BackendText, skip_special_tokens: bool
) -> tuple[Vocabulary, list[list[int]]]:
    tokens = tuple(arrays["bytes"].tobytes().split(arrays["separator"].tobytes()))
    ids = iter(arrays["samples"].tolist())
    samples = [list(islice(ids, length)) for length in arrays["sample_lengths"].tolist()]
    strips, rewriting = text.decoding.strips_first_space, text.rewriting
    vocabulary = Vocabulary(
        tokens=tokens,
        eos_ids=tuple(arrays["eos_ids"].tolist()),
        special_ids=tuple(arrays["special_ids"].tolist()),
        unusable_ids=tuple(arrays["unusable_ids"].tolist()),
        width=len(tokens),
        strips_first_space=strips,
        family=text.decoding.family,
        skip_special_tokens=skip_special_tokens,
        rewriting=rewriting and replace(rewriting, strips_first_space=strips),
        digest=arrays["digest"].tobytes().hex(),
    )
    return vocabulary, samples


def _name_of(tokenizer: Any) -> str:
    path = getattr(tokenizer, "name_or_path", "")
    name = type(tokenizer).__name__
    return f"{name} {path!r}" if path else name


def _own_eos(tokenizer: Any) -> Iterable[int]:
    own = getattr(tokenizer, "eos_token_id", None)
    return () if own is None else [int(own)] if isinstance(own, int) else map(int, own)


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
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    for ids in (eos, special, unusable, lengths):
        hasher.update(np.array([len(ids)], "<i8").tobytes())
        hasher.update(np.asarray(ids, "<i8").tobytes())
    hasher.update(b"".join(tokens))
    return hasher.hexdigest()


def _check_against_decode(
    vocabulary: Vocabulary, samples: Iterable[list[int]], tokenizer: Any, name: str
) -> None:
    """Compare with the tokenizer's own `decode` on a fixed sample, wherever the bytes are valid UTF-8."""
    marks = vocabulary.rewriting.marks if vocabulary.rewriting is not None else b""
    for sample in samples:
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
    tokens = vocabulary.tokens
    usable: NDArray[np.bool_] = np.ones(vocabulary.width, bool)
    usable[list(vocabulary.unusable_ids)] = False
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    first = np.zeros(len(tokens), np.uint8)
    begins = (np.cumsum(lengths) - lengths)[lengths > 0]
    first[lengths > 0] = np.frombuffer(b"".join(tokens), np.uint8)[begins]
    by_kind: dict[str, list[int]] = {
        "special": list(vocabulary.special_ids),
        "spaced": np.flatnonzero(usable & (first == 0x20)).tolist(),
        "bytes": np.flatnonzero(usable & (lengths == 1)).tolist(),
        "marks": [index for index, token in enumerate(tokens) if token in _MARKS and usable[index]],
        "any": np.flatnonzero(usable).tolist(),
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
