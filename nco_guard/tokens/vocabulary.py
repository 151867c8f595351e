"""A tokenizer, read once: what each token id adds to the text.

`read_vocabulary` reads a fast tokenizer of transformers, a raw `tokenizers.Tokenizer` or one of Mistral's own and
checks what it read against the tokenizer's own `decode`. Everything after this module sees bytes and integers only.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import BORDER, Cutting, Rewriting
from nco_guard.automata.combine.borders import parts_of_bytes
from nco_guard.automata.combine.rewriting import BOUNDARY, CONTINUATION
from nco_guard.errors import TokenizerError
from nco_guard.storage.store import Store, digest, made_by
from nco_guard.tokens.backend import BackendText
from nco_guard.tokens.binding import Binding
from nco_guard.tokens.mistral import mistral_literals, mistral_pieces
from nco_guard.tokens.readers import VocabularyParts

__all__ = ["Vocabulary", "read_vocabulary"]

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
_ILL_FORMED = b"\xf8"  # reads as any other byte that no text has
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
    digest: SHA-256 (hexadecimal) of all that is here; equal in every process.
    borders, literals: the ids of the tokens that cut a text into parts, sorted, and what each of them says, see
        `with_borders`. In `tokens` such a token is the byte `automata.BORDER`; nothing, if it ends the text.
    regions: how marks cut texts into fields, see `with_regions`, or None.
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
    borders: tuple[int, ...] = ()
    literals: tuple[bytes, ...] = ()
    regions: Cutting | None = None

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

    def with_borders(self, literals: Mapping[int, bytes]) -> Vocabulary:
        """This vocabulary with tokens that cut a text into parts; `literals`: what each of them says, by its id.

        A text is then guarded in two readings: each part as a text of its own, and all parts joined. What borders say
        stands in `text_of`, and no rule looks at it. Errors: `TokenizerError` for ids that are no tokens here, for what
        is no text, and where `decode` rewrites text across tokens (WordPiece, `clean_up_tokenization_spaces`).

        Examples:
            >>> tokens = [b"ass", b"ume", b"", b""]
            >>> cut = Vocabulary.build(tokens, eos_ids=[3], special_ids=[2, 3]).with_borders({2: b"<|x|>"})
            >>> cut.text_of([0, 2, 1]), cut.parts_of([0, 2, 1])
            ('ass<|x|>ume', ['ass', 'ume'])
        """
        ids = tuple(sorted(literals))
        if (ids and not 0 <= ids[0] <= ids[-1] < self.width) or set(ids) & set(self.unusable_ids):
            raise TokenizerError(f"borders: only tokens of the vocabulary can cut a text, got {list(ids)}")
        for token in ids:
            if not literals[token] or not _is_text(literals[token]):
                raise TokenizerError(
                    f"borders: token {token} is no text by itself, so nobody could cut a text at it"
                )
        rewriting = self.rewriting
        if rewriting is not None and (rewriting.prefix is not None or rewriting.replacements):
            raise TokenizerError(
                "borders: this tokenizer's decode() rewrites text across tokens (WordPiece, "
                "clean_up_tokenization_spaces), and what it makes of a part by itself is not modelled; set "
                "tokenizer.clean_up_tokenization_spaces = False, or use a tokenizer that only joins tokens"
            )
        # What is dropped where special tokens are skipped is there where they are kept.
        rewriting = rewriting and replace(rewriting, drops=())
        border = bytes([BORDER])
        tokens = [token.replace(border, _ILL_FORMED) if border in token else token for token in self.tokens]
        for token in ids:
            tokens[token] = b"" if token in self._eos else border
        spelled = tuple(literals[token] for token in ids)
        hasher = hashlib.sha256(f"{self.digest} cut at {ids!r} {spelled!r}".encode())
        found = replace(self, tokens=tuple(tokens), rewriting=rewriting, borders=ids, literals=spelled)
        return replace(found, digest=hasher.hexdigest()) if ids else self

    def with_regions(self, regions: Cutting) -> Vocabulary:
        """This vocabulary with marks that cut texts into fields: each rule then holds in what is shown of each.

        The text is the raw reply, but for the token that ends it. Errors: `TokenizerError` where special tokens are
        skipped (a mark may be one), where `decode` rewrites what was joined, and beside borders.
        """
        if self.skip_special_tokens and regions.reads_special:
            raise TokenizerError(
                "regions: give skip_special_tokens=False, since a mark may be a special token"
            )
        if self.rewriting is not None or self.borders:
            raise TokenizerError(
                "regions: they are read off the raw reply; give no borders beside them, and set "
                "tokenizer.clean_up_tokenization_spaces = False"
            )
        tokens = [b"" if token in self._eos else data for token, data in enumerate(self.tokens)]
        regions = regions.begun_by("")
        digest = hashlib.sha256(f"{self.digest} in {regions!r}".encode()).hexdigest()
        return replace(self, tokens=tuple(tokens), regions=regions, digest=digest)

    @cached_property
    def shown(self) -> tuple[bytes, ...]:
        """What each token adds to the text that a reader gets: `tokens`, but of borders what they say."""
        if not self.borders:
            return self.tokens
        shown = list(self.tokens)
        for token, literal in zip(self.borders, self.literals, strict=True):
            shown[token] = literal
        return tuple(shown)

    @cached_property
    def _prompted(self) -> tuple[bytes, ...]:
        """What each token adds to a prompt, in which there are no borders."""
        if not self.borders:
            return self.tokens
        skipped = set(self.special_ids) if self.skip_special_tokens else set[int]()
        nothing = dict.fromkeys(skipped.intersection(self.borders), b"")
        return tuple(nothing.get(token, data) for token, data in enumerate(self.shown))

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
        UTF-8. Of borders it has what they say.

        Ids after the first end-of-sequence are ignored. Ill-formed bytes become U+FFFD. Linear in the length.
        """
        raw = b"".join([self.shown[token] for token in self.until_end(ids)])
        return self._read(raw).decode("utf-8", errors="replace")

    def parts_of(self, ids: Iterable[int]) -> list[str]:
        """The parts that borders cut the text of `ids` into, one more than there are borders; some may be empty.

        Without borders the text is the only part. A border that ends the text cuts nothing.
        """
        raw = self.raw_bytes(ids)
        first, *others = parts_of_bytes(raw) if self.borders else [raw]
        inner = None if self.rewriting is None else replace(self.rewriting, strips_first_space=False)
        parts = [self._read(first), *(each if inner is None else inner.apply(each) for each in others)]
        return [part.decode("utf-8", errors="replace") for part in parts]

    def searched(self, ids: Iterable[int]) -> str:
        """The text that reports on generated `ids` are about: `text_of`, or where borders cut it its parts, joined."""
        return "".join(self.parts_of(ids))

    def context_bytes(self, ids: Iterable[int]) -> bytes:
        """A prompt as the automata are fed it: well-formed UTF-8, what is ill-formed replaced by U+FFFD.

        Ids outside the vocabulary add nothing. First spaces are kept, and rewriting is left to the automata.
        """
        raw = self._joined(ids)
        if self.rewriting is not None:
            raw = replace(self.rewriting, replacements=(), drops=(), strips_first_space=False).apply(raw)
        return raw.decode("utf-8", "replace").encode()

    def _joined(self, ids: Iterable[int]) -> bytes:
        return b"".join(self._prompted[token] for token in ids if 0 <= token < self.width)

    def continuation_of(self, prompt: Iterable[int], ids: Iterable[int]) -> tuple[str, str]:
        """The text of a prompt, and the text of `ids` as its continuation: its first space is kept.

        Where decoding rewrites text, the second begins where the joined text first differs from the prompt's. Where
        borders cut it, the second is that of all parts, joined.
        """
        before, after = self._joined(prompt), self.raw_bytes(ids)
        if self.borders:
            after = b"".join(parts_of_bytes(after))
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
    binding: Binding = Binding(),  # noqa: B008 (it never changes)
    *,
    store: Store | None = None,
) -> Vocabulary:
    """Read a tokenizer into a `Vocabulary` and check it against the tokenizer's own `decode`.

    tokenizer: a fast tokenizer of transformers, a `tokenizers.Tokenizer`, or a `MistralCommonBackend`.
    binding: columns of the logits, how texts are decoded, further end-of-sequence ids, which tokens cut texts.
    store: where what was read is kept for other processes; tokenizers of Mistral's own are read every time.

    Deterministic; about 0.15 s for 128,000 tokens, less if they were kept. Raises `TokenizerError`, naming the
    tokenizer and the reason, for families and settings that cannot be modelled exactly, for a width below the
    vocabulary's, and where `decode` disagrees with what was read.
    """
    name = _name_of(tokenizer)
    if binding.borders or binding.regions is not None:
        whole = read_vocabulary(tokenizer, replace(binding, borders=(), regions=None), store=store)
        whole = _cut(whole, tokenizer, name, binding.borders) if binding.borders else whole
        return whole if binding.regions is None else whole.with_regions(binding.regions)
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


def _cut(vocabulary: Vocabulary, tokenizer: Any, name: str, borders: tuple[int, ...] | str) -> Vocabulary:
    """The vocabulary with borders: these ids, or all special tokens."""
    ids = vocabulary.special_ids if isinstance(borders, str) else borders
    ids = tuple(set(ids) - set(vocabulary.unusable_ids)) if isinstance(borders, str) else ids
    outside = [token for token in ids if not 0 <= token < vocabulary.width]
    if outside:
        raise TokenizerError(f"tokenizer {name}: borders: it has no tokens {outside}")
    literals = mistral_literals(tokenizer, ids)
    if literals is None:
        literals = BackendText.of(tokenizer, name).literals(ids)
    try:
        return vocabulary.with_borders(literals)
    except TokenizerError as error:
        raise TokenizerError(f"tokenizer {name}: {error}") from None


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


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
