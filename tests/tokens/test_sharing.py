"""A tokenizer is read once, however many guards are bound to it; and it is noticed when it was changed."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, decoders

from nco_guard import Guard, Policy, StringRule
from nco_guard.errors import TokenizerError
from nco_guard.storage.store import Store
from nco_guard.testing import Family, tiny_tokenizer
from nco_guard.testing.tokenizers import FAMILIES
from nco_guard.tokens import (
    Binding,
    PrefixTree,
    Vocabulary,
    read_vocabulary,
    shared_tree,
    shared_vocabulary,
    state_of,
)
from nco_guard.tokens import backend as backend_module
from nco_guard.tokens import sharing as sharing_module
from nco_guard.tokens import vocabulary as vocabulary_module
from nco_guard.tokens.backend import _joined_strings
from nco_guard.tokens.sharing import tokenizer_size
from nco_guard.tokens.vocabulary import _separator


def guard(word: str) -> Guard:
    return Guard(Policy(name="p", rules=(StringRule(id="r", strings=(word,)),)))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read, in order."""
    calls: list[Any] = []

    def counted(tokenizer: Any, *binding: Any, **options: Any) -> Vocabulary:
        calls.append(tokenizer)
        return read_vocabulary(tokenizer, *binding, **options)

    monkeypatch.setattr(sharing_module, "read_vocabulary", counted)
    return calls


def test_guards_share_vocabulary_and_tree(reads: list[Any]) -> None:
    tokenizer = tiny_tokenizer()
    first, second = guard("a").bind(tokenizer), guard("b").bind(tokenizer)
    assert len(reads) == 1
    assert first.vocabulary is second.vocabulary
    assert first._tree is second._tree


def test_a_tokenizer_loaded_twice_gives_one_vocabulary() -> None:
    first, second = (shared_vocabulary(tiny_tokenizer()) for _ in range(2))
    assert first is second
    assert shared_tree(first) is shared_tree(second)


def test_threads_read_a_tokenizer_once(reads: list[Any]) -> None:
    tokenizer, found = tiny_tokenizer(), []
    threads = [
        threading.Thread(target=lambda: found.append(shared_tree(shared_vocabulary(tokenizer))))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1
    assert len(set(map(id, found))) == 1


def test_nothing_is_held_when_the_tokenizer_is_gone() -> None:
    tokenizer = tiny_tokenizer(vocab_size=333)
    vocabulary = shared_vocabulary(tokenizer)
    vocabulary_gone, tree_gone = weakref.ref(vocabulary), weakref.ref(shared_tree(vocabulary))
    number = id(tokenizer)
    assert number in sharing_module._read
    del tokenizer, vocabulary
    gc.collect()
    assert number not in sharing_module._read
    assert vocabulary_gone() is None
    assert tree_gone() is None


def test_few_settings_are_held_for_each_tokenizer(reads: list[Any]) -> None:
    tokenizer = tiny_tokenizer()
    size = len(tokenizer)
    for width in range(size, size + 9):
        shared_vocabulary(tokenizer, Binding(vocab_width=width))
    assert len(sharing_module._read[id(tokenizer)]) == 4
    shared_vocabulary(tokenizer, Binding(vocab_width=size + 8))
    assert len(reads) == 9


def _no_strip(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.add_tokens(["duckling"]),
        lambda t: t.add_special_tokens({"additional_special_tokens": ["<new>"]}),
        lambda t: t.add_special_tokens({"additional_special_tokens": ["a"]}),
        lambda t: setattr(t, "eos_token", "<pad>"),
        lambda t: (
            setattr(t, "clean_up_tokenization_spaces", True)
            or setattr(t, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", True)
        ),
        _no_strip,
    ],
)
def test_changes_of_a_live_tokenizer_are_noticed(change: Any) -> None:
    tokenizer = tiny_tokenizer("byte-fallback")
    before, state = shared_vocabulary(tokenizer), state_of(tokenizer)
    assert state_of(tokenizer) == state
    change(tokenizer)
    assert state_of(tokenizer) != state
    after = shared_vocabulary(tokenizer)
    assert after == read_vocabulary(tokenizer)
    assert after != before


# Looked at by readers, and no part of the state: what is asked of the class, the name in errors, and the models
# themselves, of which `state_of` says that it does not see them replaced.
_NO_STATE = {"decode", "clean_up_tokenization", "name_or_path", "tokenizer"}


class Watched:
    """A tokenizer that remembers which of its attributes were looked at."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self._tokenizer, name)

    def __len__(self) -> int:
        return len(self._tokenizer)


@pytest.mark.parametrize("cleans", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_a_reader_looks_at_is_part_of_the_state(family: Family, cleans: bool) -> None:
    tokenizer = tiny_tokenizer(family)
    tokenizer.clean_up_tokenization_spaces = cleans
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = cleans
    read, known = Watched(tokenizer), Watched(tokenizer)
    assert read_vocabulary(read) == read_vocabulary(tokenizer)
    state_of(known)
    assert {"clean_up_tokenization_spaces", "eos_token_id", "decode"} <= read.seen
    assert read.seen - _NO_STATE <= known.seen


def test_sizes_of_tokenizers() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer_size(tokenizer) == len(tokenizer) == tokenizer_size(tokenizer.backend_tokenizer)
    assert tokenizer_size(object()) == 0


# -- on disk ----------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def _variants() -> list[Any]:
    made = [tiny_tokenizer(family) for family in FAMILIES]
    spaced = tiny_tokenizer()
    spaced.add_tokens(["sp a", AddedToken("kept as is", normalized=False), "\x01", "\x02x"])
    return [*made, spaced]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("number", range(5))
def test_a_kept_vocabulary_is_the_vocabulary(store: Store, number: int, skip: bool) -> None:
    tokenizer = _variants()[number]
    binding = Binding(skip_special_tokens=skip, vocab_width=len(tokenizer) + 3)
    expected = read_vocabulary(tokenizer, binding)
    for _ in range(2):
        found = read_vocabulary(tokenizer, binding, store=store)
        assert found == expected
        assert found.digest == expected.digest
    assert store.sizes()["vocabulary"][0] == 1


def test_a_kept_vocabulary_is_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny_tokenizer()
    expected = read_vocabulary(tokenizer, store=store)
    monkeypatch.setattr(vocabulary_module, "_built", None)
    assert read_vocabulary(tiny_tokenizer(), store=store) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.add_tokens(["duckling"]),
        lambda t: t.add_special_tokens({"additional_special_tokens": ["a"]}),
        lambda t: setattr(t, "eos_token", "<pad>"),
        _no_strip,
    ],
)
def test_whatever_changes_the_vocabulary_changes_its_key(store: Store, change: Any) -> None:
    tokenizer = tiny_tokenizer("byte-fallback")
    read_vocabulary(tokenizer, store=store)
    change(tokenizer)
    assert read_vocabulary(tokenizer, store=store) == read_vocabulary(tokenizer)
    assert store.sizes()["vocabulary"][0] == 2


def test_a_kept_vocabulary_is_checked_against_the_decode_at_hand(store: Store) -> None:
    """What one class's `decode` was found to do says nothing about another's."""
    tokenizer = tiny_tokenizer()
    read_vocabulary(tokenizer.backend_tokenizer, store=store)

    class Shouting:
        backend_tokenizer = tokenizer.backend_tokenizer

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            return str(tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)).upper()

    with pytest.raises(TokenizerError, match=r"ids \["):
        read_vocabulary(Shouting(), store=store)


def test_strings_with_spaces_and_holes_in_the_ids_are_told_apart(store: Store) -> None:
    """A vocabulary with a hole and one with a space can look alike when joined; their keys differ."""
    from tokenizers import Tokenizer, models

    def raw(vocabulary: dict[str, int]) -> Any:
        made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        made.decoder = decoders.ByteLevel()
        return made

    pairs = [
        ({"a": 0, "b": 1, "c": 2}, {"a b": 0, "c": 2, "d": 3}),
        ({"a": 0, "b": 1}, {"a b": 0, "": 1}),
        ({"a": 0, "\x01": 1}, {"a": 0, " ": 1}),
        ({"a": 0, "\x02b": 1}, {"a\x02b": 0, "x": 5}),
    ]
    for pair in pairs:
        for vocabulary in pair:
            assert read_vocabulary(raw(vocabulary), store=store) == read_vocabulary(raw(vocabulary))


@pytest.mark.parametrize("at_once", [1, 2, 7, 2048])
def test_the_strings_of_a_vocabulary_are_told_as_one_text_or_not_at_all(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are read at once, against `get_vocab`: wherever the text could mean another vocabulary, None."""
    from tokenizers import Tokenizer, models

    monkeypatch.setattr(backend_module, "_AT_ONCE", at_once)
    rng = random.Random(at_once)
    told = 0
    for _ in range(300):
        strings = {"".join(rng.choices("ab é\x01", [9, 9, 0.3, 3, 1], k=rng.randint(1, 3))) for _ in range(9)}
        ids = rng.sample(range(len(strings) + (rng.random() < 0.3)), len(strings))
        backend = Tokenizer(models.BPE(vocab=dict(zip(strings, ids, strict=True)), merges=[]))
        vocabulary = backend.get_vocab()
        ordered = sorted(vocabulary, key=lambda string: vocabulary[string])
        exact = max(ids) < len(ids) and not any(" " in string for string in strings)
        found = _joined_strings(backend)
        assert found == (" ".join(ordered) if exact else None)
        told += exact
    assert 50 < told < 250


def test_kept_tokens_are_split_where_they_were_joined() -> None:
    """Also where they hold the bytes that would separate others."""
    rng = random.Random(5)
    for _ in range(200):
        pieces = [b"\xff", b"\xfe", b"\xff\xfe", b"", b"a", b"\xff" * 5 + b"\xfe"]
        tokens = [b"".join(rng.choices(pieces, k=rng.randint(0, 4))) for _ in range(rng.randint(1, 12))]
        separator = _separator(tokens)
        assert separator.join(tokens).split(separator) == tokens


def test_a_kept_tree_is_the_tree(store: Store) -> None:
    vocabulary = read_vocabulary(tiny_tokenizer())
    tree = PrefixTree(vocabulary.tokens)
    classes = (np.arange(256) // 40).astype(np.uint8)
    for expected, merged in ((tree, None), (tree.quotient(classes), classes)):
        store.save("tree", "x", expected.to_arrays())
        kept = store.load("tree", "x")
        assert kept is not None
        found = PrefixTree.from_arrays(kept, merged)
        assert found.levels == expected.levels
        assert found.merged == expected.merged
        for name in (
            "byte",
            "low",
            "high",
            "first_child",
            "child_count",
            "exact",
            "order",
            "node_of",
            "parent",
        ):
            one, other = getattr(found, name), getattr(expected, name)
            assert one.dtype == other.dtype
            assert np.array_equal(one, other), name
