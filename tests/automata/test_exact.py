"""Strings as arrays against the definition: a string occurs where the text read so far ends with it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nco_guard.automata import AhoCorasick
from nco_guard.automata.strings import exact
from nco_guard.automata.strings.tries import ROOT, SymbolTrie
from nco_guard.errors import StateLimitError


def _random_strings(rng: random.Random, alphabet: bytes, count: int, longest: int) -> list[bytes]:
    return [bytes(rng.choices(alphabet, k=rng.randint(1, longest))) for _ in range(count)]


def _with_few_rows(strings: list[bytes], rows: int) -> AhoCorasick:
    """The same automaton with rows of transitions for only a few nodes, as in one of a million strings."""
    whole = AhoCorasick(strings).to_arrays()
    ordered = sorted(range(len(strings)), key=strings.__getitem__)
    buffer = whole["classes"][np.frombuffer(b"".join(strings[i] for i in ordered), np.uint8)]
    width = int(whole["symbol_count"][0])
    trie = SymbolTrie.build(
        buffer,
        np.array([len(strings[i]) for i in ordered]),
        np.array(ordered),
        width,
        spaceless=int(whole["classes"][0x20]),
        row_budget=rows * width,
    )
    assert trie.node_count == len(whole["fail"])
    return AhoCorasick.from_arrays({**trie.to_arrays(), "classes": whole["classes"]})


@pytest.mark.parametrize("rows", [3, 4, 9, 10**6])
@pytest.mark.parametrize("alphabet", [b"ab", b"a b", "aé€".encode(), bytes(range(256))], ids=repr)
def test_matches_are_exactly_the_strings_that_the_text_ends_with(alphabet: bytes, rows: int) -> None:
    rng = random.Random(rows)
    for _ in range(60):
        strings = _random_strings(rng, alphabet, rng.randint(1, 40), rng.randint(1, 7))
        automaton = _with_few_rows(strings, rows)
        text = bytes(rng.choices(alphabet + b"c", k=30)) + rng.choice(strings) + rng.choice(strings)
        state = automaton.start
        for end, byte in enumerate(text, start=1):
            reached = automaton.step(state, byte)
            expected = {i for i, s in enumerate(strings) if text[:end].endswith(s)}
            assert (reached < 0) == bool(expected)
            state = reached ^ (reached >> 31)
            found = automaton.patterns_ending(state)
            assert set(found) == expected
            assert [len(strings[i]) for i in found] == sorted((len(strings[i]) for i in found), reverse=True)


@pytest.mark.parametrize("rows", [3, 7, 10**6])
def test_many_steps_at_once_are_the_single_steps(rows: int) -> None:
    rng = random.Random(rows)
    for alphabet in (b"ab", bytes(range(256))):
        automaton = _with_few_rows(_random_strings(rng, alphabet, 200, 9), rows)
        states = np.array([rng.randrange(automaton.state_count) for _ in range(3000)], np.int32)
        symbols = np.array([rng.choice(alphabet + b"\x00z") for _ in range(3000)], np.uint8)
        reached = automaton.step_many(states, symbols)
        assert reached.dtype == np.int32
        singles = [automaton.step(s, b) for s, b in zip(states.tolist(), symbols.tolist(), strict=True)]
        assert reached.tolist() == singles
        assert automaton.step_many(states[:0], symbols[:0]).shape == (0,)
        # All bytes from one state, which has a way of its own.
        for state in rng.sample(range(automaton.state_count), 30):
            every = np.arange(256, dtype=np.uint8)
            reached = automaton.step_many(np.full(256, state, np.int32), every)
            assert reached.tolist() == [automaton.step(state, b) for b in range(256)]


@pytest.mark.parametrize("rows", [3, 10**6])
def test_distances_are_the_shortest_ways_to_a_match(rows: int) -> None:
    rng = random.Random(rows)
    for alphabet in (b"ab", b"abc ", b"a"):
        automaton = _with_few_rows(_random_strings(rng, alphabet, 12, 6), rows)
        states = list(range(1, automaton.state_count))
        # By the definition: the states from which one byte completes a match, then those one step before them, ...
        found = dict.fromkeys(states, 0)
        for distance in range(1, 8):
            for state in states:
                steps = [automaton.step(state, b) for b in alphabet]
                if not found[state] and any(
                    r < 0 if distance == 1 else r >= 0 and found[r] == distance - 1 for r in steps
                ):
                    found[state] = distance
        assert automaton.distances(np.array(states, np.int32)).tolist() == [found[s] for s in states]
    far = AhoCorasick([b"a" * 600])
    assert far.distances(np.array([far.start, far.spaceless_start, 400 + 2], np.int32)).tolist() == [
        255,
        255,
        200,
    ]


@pytest.mark.parametrize("strings", [[b"ab", b"b b"], [b"xyz"], [bytes([b]) for b in range(256)]])
def test_bytes_of_one_class_lead_to_the_same_states(strings: list[bytes]) -> None:
    automaton = AhoCorasick(strings)
    classes = automaton.byte_classes.tolist()
    for state in range(automaton.state_count):
        led: dict[int, set[int]] = {}
        for byte in range(256):
            led.setdefault(classes[byte], set()).add(automaton.step(state, byte))
        assert all(len(states) == 1 for states in led.values())
    assert len(set(classes)) == min(256, 1 + len(set(b"".join(strings))))


def test_strings_that_differ_only_in_zero_bytes_at_their_end_are_different() -> None:
    strings = [b"a\0\0", b"a\0", b"a\0\0b"]
    automaton = AhoCorasick(strings)
    state, found = automaton.start, []
    for byte in b"a\0\0b":
        reached = automaton.step(state, byte)
        state = ~reached if reached < 0 else reached
        found.append(automaton.patterns_ending(state) if reached < 0 else [])
    assert found == [[], [1], [0], [2]]


def test_the_second_root_skips_one_leading_space() -> None:
    for strings in ([b" ab", b"ab"], [b" ab"], [b"b"], [bytes([b]) + b" " for b in range(256)]):
        automaton = AhoCorasick(strings)
        assert automaton.step(automaton.spaceless_start, 0x20) == automaton.start
        for byte in set(range(256)) - {0x20}:
            assert automaton.step(automaton.spaceless_start, byte) == automaton.step(automaton.start, byte)


def test_the_same_string_twice_ends_in_one_state_under_both_numbers() -> None:
    automaton = AhoCorasick([b"ab", b"b", b"ab"])
    state = automaton.step(automaton.start, ord("a"))
    assert automaton.patterns_ending(~automaton.step(state, ord("b"))) == [0, 2, 1]


def test_a_hundred_thousand_strings_are_found_where_a_set_of_them_says() -> None:
    rng = np.random.default_rng(5)
    letters = rng.integers(97, 123, (100_000, 6), dtype=np.uint8)
    strings = [row.tobytes() for row in letters]
    automaton = AhoCorasick(strings)
    assert automaton.nbytes < (16 << 20) + 15 * automaton.state_count
    # Random text, with some of the strings in it.
    text = rng.integers(97, 123, 20_000, dtype=np.uint8).tobytes() + b"".join(strings[:500])
    known = set(strings)
    state = automaton.start
    for end, byte in enumerate(text, start=1):
        reached = automaton.step(state, byte)
        assert (reached < 0) == (text[max(0, end - 6) : end] in known)
        state = reached ^ (reached >> 31)


def test_one_very_long_string_is_a_chain() -> None:
    string = b"ab" * 2000 + b"c"
    automaton = AhoCorasick([string])
    assert automaton.state_count == len(string) + 3
    state = automaton.start
    for byte in b"abab" + string[:-1]:
        state = automaton.step(state, byte)
    assert automaton.step(state, ord("c")) < 0


def test_arrays_restore_the_automaton() -> None:
    rng = random.Random(1)
    strings = _random_strings(rng, b"abc ", 300, 6)
    automaton = AhoCorasick(strings)
    restored = AhoCorasick.from_arrays({k: v.copy() for k, v in automaton.to_arrays().items()})
    assert restored.state_count == automaton.state_count
    assert restored.nbytes == automaton.nbytes
    state = automaton.start
    for byte in bytes(rng.choices(b"abc d", k=2000)):
        reached = automaton.step(state, byte)
        assert restored.step(state, byte) == reached
        state = reached ^ (reached >> 31)
        assert restored.patterns_ending(state) == automaton.patterns_ending(state)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("rows", lambda a: a[:-1]),
        ("rows", lambda a: np.where(a == a.max(), 10**9, a).astype(np.int32)),
        ("fail", lambda a: a + 5),
        ("fail", lambda a: -a),
        ("fail", lambda a: np.roll(a, 1) + np.int32(1 << 20)),
        ("first_child", lambda a: a[::-1].copy()),
        ("first_child", lambda a: a + 100),
        ("edges", lambda a: a.astype(np.int64)),
        ("outputs", lambda a: a[1:]),
        ("end_nodes", lambda a: a[1:]),
        ("symbol_count", lambda a: a * 0),
        ("symbol_count", lambda a: a[:0]),
        ("classes", lambda a: a + 100),
        ("classes", lambda a: a[:10]),
    ],
)
def test_arrays_by_which_a_step_could_get_lost_are_refused(name: str, spoil: object) -> None:
    arrays = AhoCorasick([b"ab", b"abc", b"bc"]).to_arrays()
    assert callable(spoil)
    with pytest.raises(ValueError, match="array"):
        AhoCorasick.from_arrays({**arrays, name: spoil(arrays[name])})
    with pytest.raises(ValueError, match="array"):
        AhoCorasick.from_arrays({k: v for k, v in arrays.items() if k != name})


def test_no_strings_an_empty_one_and_too_many_states_are_refused() -> None:
    for strings in ([], [b"a", b""]):
        with pytest.raises(ValueError, match="non-empty"):
            AhoCorasick(strings)
    with pytest.raises(StateLimitError):
        AhoCorasick([b"abcdef", b"ghijkl"], state_limit=5)
    assert AhoCorasick([b"a"]).start == ROOT


@pytest.mark.parametrize("alphabet", [b"a", b"ab", b"\0\1", bytes(range(256))], ids=repr)
def test_strings_are_sorted_as_python_sorts_them(alphabet: bytes) -> None:
    rng = random.Random(len(alphabet))
    for longest in (1, 7, 8, 9, 16, 17, 40):
        for count in (1, 2, 50, 300):
            strings = _random_strings(rng, alphabet, count, longest)
            strings += [s + t for s, t in zip(strings, reversed(strings), strict=True)]
            lengths = np.array([len(s) for s in strings], np.int32)
            starts, order = exact._sorted(np.frombuffer(b"".join(strings), np.uint8), lengths)
            expected = sorted(range(len(strings)), key=strings.__getitem__)
            assert order.tolist() == expected
            begins = np.cumsum(lengths) - lengths
            assert starts.tolist() == begins[expected].tolist()


def test_the_automaton_of_texts_is_that_of_their_bytes() -> None:
    rng = random.Random(0)
    for alphabet in ("ab", "aé€𝄞"):
        texts = ["".join(rng.choices(alphabet, k=rng.randint(1, 12))) for _ in range(200)]
        one, other = (
            AhoCorasick.of_texts(texts).to_arrays(),
            AhoCorasick([t.encode() for t in texts]).to_arrays(),
        )
        assert all(np.array_equal(one[name], other[name]) for name in one)
    with pytest.raises(ValueError, match="non-empty"):
        AhoCorasick.of_texts(["a", ""])
