"""No pattern hangs or exhausts the process: it works within bounds, or is refused by a typed error with its rule.

Each pattern runs in a process of its own over a vocabulary of a hundred thousand tokens; time and peak memory are
measured there.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from nco_guard.compiler import compile_policy
from nco_guard.errors import PatternError, StateLimitError
from nco_guard.policy import Policy, RegexRule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from tests.slow import rest_slow

SECONDS = 240  # generous: machines that run tests are busy
MEBIBYTES = 1500

# Each with the pieces of text that keep its automaton busiest.
NAMED = {
    "exponential when determinised": (r"(a|b)*a(a|b){40}", ("a", "b", "ab", "ba")),
    "a wide gap": (r"(ssn|social).{0,30}\d{4}", ("ssn", "social", "1", "12", "-")),
    "many of anything": (r".{0,200}x", ("a", "\n", "ab", "日")),
    "a thousand alternatives": (
        "|".join(f"word{i}[a-f]{{2}}" for i in range(1000)),
        ("word", "1", "9", "99", "a", "f"),
    ),
    "nested lookarounds": (r"(?<!q(?<=r.))a(?=.*b(?!.*c(?=.*d(?!.*e))))", ("a", "b", "c", "d", "e", "q")),
}
QUICK = {
    "nested lookaheads": r"a(?=.*b(?!.*c(?=.*d(?!.*e))))",
    "repeats of repeats of what may be empty": r"(?:(?:(?:[^a]){,2})+)+b",
    "exponential for backtracking": r"(x+x+)+y",
    "a thousand of one": r"a{1000}",
    "gaps under a count": r"(?:.{0,50}a){5}",
    "two hundred levels of groups": "(" * 200 + "a" + ")" * 200,
    "two hundred levels of repeats": "(" * 200 + "a" + "b)+" * 200,
}
LONG = {
    "wide counts": r"\w{1,500}@\w{1,500}",
    "wide counts between boundaries": r"\b\w{1,500}@\w{1,500}\b",
    "nested lookarounds": r"(?=(?:.*a(?=.*b)){3})(?!.*c.*d)x.*(?<!q(?<!r))y",
    "gaps within gaps": r"(?:.{0,50}a.{0,50}b){5}",
    "five thousand": r"[ab]{5000}x",
    "what must follow within a wide gap": r"x(?!.{0,200}y)",
    "what must follow, and is hard to reach": r"a(?!.{0,60}b[ab]{10}c)",
    "what must follow, exponential": r"x(?!.*[a-m]\w{20}!)",
    "exponential over letters": r"[a-m]\w{40}!",
    "lookbehinds of forty lengths": "".join(f"(?:(?<=a{{{i}}})|b)" for i in range(1, 40)),
    "a lookahead at each place": r"(?:a(?=.{0,40}b)|c){20}x",
    "nested counts": r"((((a{10}){10}){10}){10}){10}",
    "folded words of many scripts": r"(?i)[^\W\d_]{3,40}\s(?:\w|é|[\u4e00-\u9fff]){5,50}!",
    "a repeat of a thousand repeats": r"(?:a{1,1000}){1,1000}b",
}
LETTERS = ["a", "b", "ab", "x", " ", "aaaa", "c", "1", "12-34", "word", "ö", "@", "ssn ", "y", "q", "!"]


def peak_mebibytes() -> int:
    """Of this process. On Linux `ru_maxrss` would not do: it begins with that of the process which started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) >> 10  # type: ignore[index]
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> 20 if sys.platform == "darwin" else peak >> 10


def walk(pattern: str, stop_at: str | None, letters: Sequence[str] = LETTERS) -> None:
    """Bind and take some steps; prints what happened as JSON. Runs in a process of its own."""
    rng = random.Random(0)
    words = {
        "".join(rng.choice("abcdehilmnorstxy ") for _ in range(rng.randint(2, 9))) for _ in range(100_000)
    }
    vocabulary = toy_vocabulary(
        [*sorted(words), "日", "é", "😀", *(w for w in {*LETTERS, *letters} if len(w.encode()) > 1)]
    )
    by_bytes = {token: i for i, token in enumerate(vocabulary.tokens)}
    started, steps, refused = time.perf_counter(), 0, None
    try:
        rule = RegexRule(id="heavy", regex=pattern, stop_at=stop_at)
        session = BoundGuard(compile_policy(Policy(name="p", rules=(rule,))), vocabulary).session()
        for _ in range(200 if letters is not LETTERS else 40):
            token = by_bytes[rng.choice(letters).encode()]
            forbidden = session.forbidden_ids()
            if token not in forbidden:
                session.advance(token)
                steps += 1
    except (PatternError, StateLimitError) as error:
        refused = f"{type(error).__name__} of {error.rule_id}"
    print(
        json.dumps(
            {
                "steps": steps,
                "refused": refused,
                "seconds": round(time.perf_counter() - started, 2),
                "mebibytes": peak_mebibytes(),
            }
        )
    )


def measured(
    pattern: str, stop_at: str | None = None, letters: tuple[str, ...] | None = None
) -> dict[str, object]:
    given = f", {letters!r}" if letters else ""
    code = f"from tests.test_pathological import walk; walk({pattern!r}, {stop_at!r}{given})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    print(found)
    return found


def check(found: dict[str, object]) -> None:
    assert found["steps"] or found["refused"]
    assert found["refused"] in (None, "PatternError of heavy", "StateLimitError of heavy")
    assert isinstance(found["mebibytes"], int)
    assert found["mebibytes"] < MEBIBYTES


@pytest.mark.parametrize("name", rest_slow(NAMED, 2))
def test_patterns_known_for_their_cost_work_within_bounds(name: str) -> None:
    """With random letters, and with those that lead deep into the pattern."""
    pattern, letters = NAMED[name]
    for found in (measured(pattern), measured(pattern, letters=letters)):
        assert found["refused"] is None
        assert found["steps"]
        check(found)


@pytest.mark.parametrize("name", rest_slow(QUICK, 3))
def test_a_pathological_pattern_works_or_is_refused_by_name(name: str) -> None:
    check(measured(QUICK[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_worse_one_works_or_is_refused_by_name(name: str) -> None:
    check(measured(LONG[name]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "stop_at"),
    [
        (r"(a|b)*a(a|b){40}c", r"a(a|b){30}"),
        (r"(?:.{0,50}a){5}", r"(?:.{0,50}a){4}"),
        (r"\w{1,500}@\w{1,500}", r"\w@"),
    ],
)
def test_so_does_a_stop_point(pattern: str, stop_at: str) -> None:
    check(measured(pattern, stop_at))


def test_a_pattern_that_may_be_empty_however_nested_is_refused() -> None:
    with pytest.raises(PatternError, match="empty"):
        compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=r"(?:(?:(?:[^a]){,2})+)+"),)))


def test_nesting_is_bounded_with_a_typed_error() -> None:
    with pytest.raises(PatternError) as caught:
        compile_policy(Policy(name="p", rules=(RegexRule(id="deep", regex="(" * 190 + "a" + "b)+" * 190),)))
    assert caught.value.rule_id == "deep"
    flat = "(" * 140 + "a" + ")" * 140 + "b"
    compiled = compile_policy(Policy(name="p", rules=(RegexRule(id="flat", regex=flat),)))
    session = BoundGuard(compiled, toy_vocabulary()).session()
    session.advance(ord("a"))
    assert session.mask()[ord("b")]
    assert re.search(flat, "ab")


def test_what_must_follow_is_found_fast_even_if_it_takes_several_tokens() -> None:
    """After "foo" only "bar" lets the text end; without a token for it, three single bytes have to be found."""
    compiled = compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=r"foo(?!.*bar)"),)))
    session = BoundGuard(compiled, toy_vocabulary(["fo", "ar", "é", "日本", "😀"])).session()
    started = time.perf_counter()
    for token in b"foo":
        assert not session.mask()[token]
        session.advance(token)
    assert not session.may_end
    assert session.mask(remaining=1)[ord("x")]
    assert not session.mask(remaining=1)[ord("b")]
    for token in b"xbar":
        assert not session.mask()[token]
        session.advance(token)
    assert session.may_end
    assert time.perf_counter() - started < SECONDS
