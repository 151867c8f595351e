"""RegexPSPACE's format is read as it is meant, and generated sets have its shape and not its name."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.inputs.regex_sets import RegexSetError, read_regexpspace, regexpspace_shaped
from benchmarks.methods.baselines import NCO
from nco_guard.testing import tiny_tokenizer

WORDS = ["".join(word) for length in range(5) for word in itertools.product("abcd", repeat=length)]


def written(folder: Path, *lines: str) -> Path:
    path = folder / "RegexPSPACE.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def record(query: str) -> str:
    return json.dumps({"query": query, "other": 1})


def language(query: str) -> set[str]:
    """The words of at most four letters, by derivatives of nothing: a direct reading of the notation."""
    position = 0

    def union() -> set[str]:
        nonlocal position
        words = concatenation()
        while query[position : position + 1] == "+":
            position += 1
            words |= concatenation()
        return words

    def concatenation() -> set[str]:
        words = {""}
        while query[position : position + 1] not in ("", "+", ")"):
            words = joined(words, item())
        return words

    def item() -> set[str]:
        nonlocal position
        if query[position] == "(":
            position += 1
            words = union()
        else:
            words = {query[position]}
        position += 1
        while query[position : position + 1] in ("*", "?") and query[position:]:
            more = words | {""}
            if query[position] == "*":
                for _ in range(4):
                    more = joined(more, words | {""})
            words = more
            position += 1
        return words

    def joined(left: set[str], right: set[str]) -> set[str]:
        return {a + b for a in left for b in right if len(a + b) <= 4}

    return union()


def random_query(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice("abcd")
    kind = rng.choice("+..*?")
    one, two = random_query(rng, depth - 1), random_query(rng, depth - 1)
    if kind in "*?":
        return f"({one}){kind}" if len(one) > 1 or rng.random() < 0.3 else one + kind
    if kind == "+":
        return f"({one}+{two})"
    return one + two


@pytest.mark.parametrize("seed", range(60))
def test_expressions_mean_the_same_in_python(seed: int, tmp_path: Path) -> None:
    queries = [random_query(random.Random(f"{seed} {i}"), 3) for i in range(6)]
    renamed = str.maketrans("abcd", "wxyz")
    languages = [language(query) for query in queries]
    path = written(tmp_path, *map(record, queries), record("a"))
    found = read_regexpspace(path)
    kept = [words for words in languages if "" not in words] + [{"a"}]
    assert found.total == len(queries) + 1
    assert len(found.patterns) == len(kept)
    for pattern, words in zip(found.patterns, kept, strict=True):
        search = re.compile(pattern)
        assert {w for w in WORDS if search.fullmatch(w.translate(renamed))} == words


@pytest.mark.parametrize(
    ("query", "pattern"),
    [
        ("a+b", "w|x"),
        ("(a+b)c*", "(?:w|x)y*"),
        ("ab?**d", "w(?:(?:x?)*)*z"),
        ("(ab)*?c", "(?:(?:wx)*)?y"),
        (" a ( b + c ) ", "w(?:x|y)"),
    ],
)
def test_stacked_operators_are_not_read_as_lazy_ones(query: str, pattern: str, tmp_path: Path) -> None:
    assert read_regexpspace(written(tmp_path, record(query))).patterns == (pattern,)


def test_expressions_that_match_the_empty_text_are_dropped(tmp_path: Path) -> None:
    path = written(tmp_path, record("a*"), "", record("a"), record("a+b*"), record("(a?b?)*"), record("ab*"))
    found = read_regexpspace(path)
    assert found.patterns == ("w", "wx*")
    assert found.total == 5
    assert found.name == "RegexPSPACE"


@pytest.mark.parametrize(
    ("line", "position"),
    [
        ("not json", None),
        ("[1]", None),
        ('{"regex": "a"}', None),
        ('{"query": 3}', None),
        (record(""), 0),
        (record("a+"), 2),
        (record("e"), 0),
        (record("a|b"), 1),
        (record("*a"), 0),
        (record("a(b"), 1),
        (record("ab)"), 2),
        (record("(" * 2000 + "a" + ")" * 2000), 100),
        (record("a" + "*?" * 1000), 101),
    ],
)
def test_a_bad_line_is_named_by_its_number(line: str, position: int | None, tmp_path: Path) -> None:
    path = written(tmp_path, record("a"), "", line, record("b"))
    with pytest.raises(RegexSetError, match="line 3") as caught:
        read_regexpspace(path)
    assert caught.value.line == 3
    assert caught.value.position == position


def test_bytes_that_are_no_text_are_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(b'{"query": "a"}\n{"query": "\xff"}\n')
    with pytest.raises(RegexSetError, match=r"set\.jsonl, line 2"):
        read_regexpspace(path)


@pytest.mark.parametrize("lines", [(), (record("a*"),)])
def test_a_file_of_which_nothing_remains_is_refused(lines: Sequence[str], tmp_path: Path) -> None:
    with pytest.raises(RegexSetError) as caught:
        read_regexpspace(written(tmp_path, *lines))
    assert caught.value.line is None


@pytest.mark.parametrize("count", [1, 668, 5000])
def test_generated_sets_are_distinct_reproducible_and_not_called_the_data_set(count: int) -> None:
    one, again = regexpspace_shaped(count, seed=3), regexpspace_shaped(count, seed=3)
    assert one == again
    assert len(set(one.patterns)) == count
    assert all(re.search(pattern, "") is None for pattern in one.patterns)
    assert set("".join(one.patterns)) <= set("wxyz|*?(:)")
    assert "shaped" in one.name
    assert "seed 3" in one.name
    assert regexpspace_shaped(count, seed=4).patterns != one.patterns


@pytest.mark.parametrize("count", [0, -1, 20_001])
def test_a_generated_set_has_a_sensible_size(count: int) -> None:
    with pytest.raises(ValueError, match="count"):
        regexpspace_shaped(count)


def test_a_set_runs_in_the_papers_method() -> None:
    tokenizer = tiny_tokenizer("byte-level")
    patterns = regexpspace_shaped(60).patterns
    method = NCO().setup((), patterns, tokenizer)
    for text in ("w", "zy", "fox"):
        ids = tokenizer(text).input_ids
        *before, last = ids
        assert bool(method.forbidden(before)[last]) == any(
            re.search(p, text) and not re.search(p, tokenizer.decode(before)) for p in patterns
        )
