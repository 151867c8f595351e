"""How far a text may be shown while it arrives: however it is cut, what the search of each of its prefixes says."""

from __future__ import annotations

import random

import interegular
import pytest

from nco_guard import AutomatonRule, Policy, RegexRule, StringRule, verify
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.errors import NCOGuardError, RedactionError, ViolationError
from nco_guard.scan import SafeEnds, StreamVerifier
from tests.automata import patterns
from tests.automata.test_span_stream import PIECES, chunks, list_rule
from tests.test_redaction import rule

Rule = StringRule | RegexRule | AutomatonRule
CONTINUATIONS = ("", "a", "b", "k", "1", "é", " ", "\n", "-", "b 1", " a", "00")


def policy_of(*rules: Rule) -> CompiledPolicy:
    return compile_policy(Policy(name="p", rules=rules))


def any_rule(rng: random.Random, name: str) -> Rule:
    """A random rule of any kind, half of them about the prompt too."""
    if rng.random() < 0.2:
        return RegexRule(id=name, regex=r"(?<![\dk])1\d{0,2}(?!k)", checksum="luhn", context="prompt")
    if rng.random() < 0.15:
        fsm = interegular.parse_pattern(rng.choice(["ab+|b1|k", "[^a]b{1,3}1?"])).to_fsm()
        return AutomatonRule(id=name, fsm=fsm, context=rng.choice(["output", "prompt"]))  # type: ignore[arg-type]
    found = rule(rng, name)
    return found.model_copy(update={"context": "prompt"}) if rng.random() < 0.4 else found


def longest_that_may_end(policy: CompiledPolicy, text: str, context: str) -> str:
    """The definition: a search of every prefix."""
    ends = [end for end in range(len(text) + 1) if verify(policy, text[:end], context=context).ok]
    return text[: ends[-1]]


def fed(policy: CompiledPolicy, pieces: list[str], context: str) -> tuple[str, int | None]:
    """What is shown, and how much was fed when a match was complete (None: none was)."""
    ends, shown = SafeEnds(policy, context=context), ""
    for count, piece in enumerate(pieces, 1):
        try:
            shown += ends.feed(piece)
        except RedactionError:
            return shown, sum(map(len, pieces[:count]))
    return shown, None


def raised(policy: CompiledPolicy, text: str, context: str) -> int | None:
    """After how many letters a stream that raises does so."""
    stream = StreamVerifier(policy, action="raise", context=context)
    for count, letter in enumerate(text, 1):
        try:
            stream.feed(letter)
        except ViolationError:
            return count
    return None


def check(rng: random.Random, policy: CompiledPolicy, text: str, context: str) -> None:
    letters, refused = fed(policy, list(text), context)
    if refused is None:
        assert letters == longest_that_may_end(policy, text, context)
    else:
        # Nothing that could follow makes it right.
        assert not any(verify(policy, text[:refused] + m, context=context).ok for m in CONTINUATIONS)
        assert letters == longest_that_may_end(policy, text[: refused - 1], context)
    assert raised(policy, text, context) == refused
    for pieces in ([text], list(chunks(rng, text))):
        shown, at = fed(policy, pieces, context)
        assert (at is None) == (refused is None), "what is refused hangs on how the text is cut"
        assert shown == letters if at is None else letters.startswith(shown)
    ends = SafeEnds(policy, context=context)
    if verify(policy, text, context=context).ok:
        assert ends.feed(text, final=True) == text
    else:
        with pytest.raises(RedactionError):
            ends.feed(text, final=True)


@pytest.mark.parametrize("seed", range(250))
def test_pieces_and_whole_texts_are_shown_as_far_as_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    try:
        policy = policy_of(*(any_rule(rng, f"r{i}") for i in range(rng.randint(1, 3))))
    except NCOGuardError:
        return
    for _ in range(8):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 6)))[:20]
        text = text if rng.random() < 0.4 else patterns.text(rng, 12)
        check(rng, policy, text, patterns.text(rng, 5) if rng.random() < 0.7 else "")


@pytest.mark.parametrize(
    ("regex", "context", "text", "shown"),
    [
        # The match in the prompt ends there; the one at the end of the text may still come to nothing.
        (r"ab?(?=b)|a$", "a", "b ca", "b c"),
        (r"\bass\b", "an ass", " is an ass", " is an as"),
        (r"a(?=\s*$)", "a", " ", " "),
        (r"a(?=b)|b$", "a", "b", ""),
    ],
)
def test_a_match_that_ends_in_the_prompt_says_nothing_about_the_text(
    regex: str, context: str, text: str, shown: str
) -> None:
    policy = policy_of(RegexRule(id="r", regex=regex, context="prompt"))
    assert longest_that_may_end(policy, text, context) == shown
    assert fed(policy, [text], context) == fed(policy, list(text), context) == (shown, None)


@pytest.mark.parametrize("seed", range(40))
def test_lists_of_strings_that_overlap(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        found = list_rule(rng).rule.model_copy(update={"context": rng.choice(["output", "prompt"])})
        policy = policy_of(found)
        letters = "".join(found.strings) + "ab -k"  # type: ignore[union-attr]
        text, context = (
            "".join(rng.choice(letters) for _ in range(rng.randint(0, size))) for size in (12, 5)
        )
        check(rng, policy, text, context)
