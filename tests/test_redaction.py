"""Redaction of finished text, and a stream of pieces that comes to the same."""

from __future__ import annotations

import random

import pytest

from nco_guard import Guard, Policy, RegexRule, StringRule, verify
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.errors import ArgumentError, NCOGuardError, PolicyError, RedactionError, ViolationError
from nco_guard.scan import REDACTED, StreamVerifier, default_replacement, redact, require
from nco_guard.scan.definition import verify_by_definition
from tests.automata import patterns
from tests.automata.test_span_stream import PIECES, chunks

EMAIL = RegexRule(id="email", regex=r"[\w.]+@\w+\.[a-z]{2,}")
SSN = RegexRule(id="ssn", regex=r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)")


def policy_of(*rules: StringRule | RegexRule) -> CompiledPolicy:
    return compile_policy(Policy(name="p", rules=rules))


POLICY = policy_of(EMAIL, SSN, StringRule(id="word", strings=("darn",), whole_word=True, case="fold"))


def streamed(
    rng: random.Random, policy: CompiledPolicy, text: str, action: str, context: str = ""
) -> tuple[str | None, StreamVerifier]:
    """What a reader of a stream ends up with (None: an error); at no moment does it hold a match."""
    stream = StreamVerifier(policy, action=action, replacement="[x]", context=context)  # type: ignore[arg-type]
    shown = ""
    try:
        for chunk in chunks(rng, text):
            piece = stream.feed(chunk)
            shown += piece
            assert verify(policy, shown, context=context).ok or action == "report"
        shown += stream.finish()
    except (ViolationError, RedactionError):
        assert verify(policy, shown, context=context).ok
        return None, stream
    return shown, stream


def finished(policy: CompiledPolicy, text: str, action: str, context: str = "") -> str | None:
    """The definition."""
    if action == "report":
        return text
    try:
        if action == "raise":
            require(policy, text, context=context)
            return text
        return redact(policy, text, replacement="[x]", context=context).text
    except (ViolationError, RedactionError):
        return None


def rule(rng: random.Random, name: str) -> StringRule | RegexRule:
    extras: dict[str, object] = {}
    if rng.random() < 0.3:
        extras["context"] = "prompt"
    if rng.random() < 0.2:
        extras["monitor"] = True
    if rng.random() < 0.15:
        extras |= {"normalize": "nfkc", "ignore": ("_", "zero-width")}
    if rng.random() < 0.15:
        extras["json_escapes"] = True
    if rng.random() < 0.4:
        strings = ("".join(rng.choice("abk1é") for _ in range(rng.randint(1, 3))) for _ in range(2))
        return StringRule(id=name, strings=tuple(strings), whole_word=rng.random() < 0.5, **extras)  # type: ignore[arg-type]
    return RegexRule(id=name, regex=patterns.valid_pattern(rng, 3)[0], **extras)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(250))
def test_a_stream_shows_what_redaction_of_the_whole_text_shows(seed: int) -> None:
    rng = random.Random(seed)
    try:
        policy = policy_of(*(rule(rng, f"r{i}") for i in range(rng.randint(1, 3))))
        redact(policy, "", replacement="[x]")
    except NCOGuardError:
        return
    for _ in range(8):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 8)))
        text = text if rng.random() < 0.5 else patterns.text(rng, 16)
        context = patterns.text(rng, 4) if rng.random() < 0.3 else ""
        for action in ("redact", "raise", "report"):
            shown, stream = streamed(rng, policy, text, action, context)
            assert shown == finished(policy, text, action, context), action
            if shown is not None:
                assert stream.report == verify(policy, text, context=context)
                assert stream.held == 0


def redacted_by_definition(policy: Policy, text: str, context: str) -> str | None:
    """Stretches are what no place between two matches parts; None: what is left forms a match."""
    found = verify_by_definition(policy, text, context=context).violations
    within = {place for each in found for place in range(each.start + 1, each.end)}
    order = [rule.id for rule in policy.rules]
    pieces, position = [], 0
    ends = sorted({each.end for each in found} - within)
    for start, end in zip(sorted({each.start for each in found} - within), ends, strict=True):
        first = [each for each in found if each.start == start]
        named = min(first, key=lambda each: (-each.end, order.index(each.rule_id)))
        pieces += text[position:start], f"<{named.rule_id}>"
        position = end
    result = "".join(pieces) + text[position:]
    return result if verify_by_definition(policy, result, context=context).ok else None


@pytest.mark.parametrize("seed", range(60))
def test_what_is_redacted_is_what_the_definition_finds(seed: int) -> None:
    rng = random.Random(seed)
    try:
        policy = policy_of(*(rule(rng, f"r{i}") for i in range(rng.randint(1, 3))))
        redact(policy, "", replacement="<{}>".format)
    except NCOGuardError:
        return
    for _ in range(8):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 8)))
        context = patterns.text(rng, 4) if rng.random() < 0.3 else ""
        expected = redacted_by_definition(policy, text, context)
        if expected is None:
            with pytest.raises(RedactionError):
                redact(policy, text, replacement="<{}>".format, context=context)
        else:
            report = verify_by_definition(policy, text, context=context)
            found = redact(policy, text, replacement="<{}>".format, context=context)
            assert (found.text, found.report) == (expected, report)
            assert verify(policy, text, context=context) == report


def pieces_of(stream: StreamVerifier, text: str) -> list[str]:
    return [*(stream.feed(character) for character in text), stream.finish()]


def test_text_is_held_exactly_while_a_match_could_be_completed() -> None:
    stream = StreamVerifier(policy_of(SSN))
    shown = pieces_of(stream, "tel 078-05-1x 078-05-1120.")
    assert shown == [
        *"tel ", "", "", "", "", "", "", "", "", "078-05-1x", " ",
        *[""] * 11, "[redacted].", "",
    ]  # fmt: skip


def test_there_is_no_window_however_long_a_match_takes() -> None:
    stream = StreamVerifier(policy_of(RegexRule(id="key", regex="BEGIN KEY[^.]{0,5000}END KEY")))
    held = "BEGIN KEY" + "a" * 4000
    assert stream.feed("x " + held) == "x "
    assert stream.held == len(held)
    assert stream.feed("END KEY") == ""
    assert stream.feed(". y") + stream.finish() == "[redacted]. y"


def test_text_that_begins_no_match_passes_at_once() -> None:
    stream = StreamVerifier(POLICY)
    assert stream.feed("What a day! (") == "What a day! ("
    assert stream.held == 0


def test_a_word_is_shown_once_it_is_no_match_any_more() -> None:
    stream = StreamVerifier(policy_of(StringRule(id="w", strings=("ass",), whole_word=True)))
    assert [stream.feed("a ass"), stream.feed("ist"), stream.feed(" ass"), stream.finish()] == [
        "a ", "assist", " ", "[redacted]",
    ]  # fmt: skip


def test_matches_that_overlap_are_replaced_once_by_the_first() -> None:
    policy = policy_of(StringRule(id="a", strings=("abc",)), StringRule(id="b", strings=("cde", "c")))

    def named(rule: str) -> str:
        return f"<{rule.upper()}>"

    assert redact(policy, "xabcdex c", replacement=named).text == "x<A>x <B>"
    # In a stream the first may be shown as replaced before the second is known.
    assert "".join(pieces_of(StreamVerifier(policy, replacement=named), "xabcdex c")) == "x<A>x <B>"
    late = StreamVerifier(
        policy_of(StringRule(id="a", strings=("abc",)), StringRule(id="b", strings=("cdefg",)))
    )
    assert pieces_of(late, "abcdefg.") == ["", "", "[redacted]", "", "", "", "", ".", ""]


def test_raise_names_the_rules_and_not_the_text() -> None:
    stream = StreamVerifier(POLICY, action="raise", where="model output")
    assert stream.feed("hello ") == "hello "
    with pytest.raises(ViolationError, match="model output: matches of 'email'") as caught:
        stream.feed("john@enron.com")
    assert caught.value.rule_ids == ("email",)
    assert "john" not in str(caught.value)
    with pytest.raises(ValueError, match="is over"):
        stream.feed("x")


def test_a_replacement_that_is_forbidden_is_refused_when_it_is_named() -> None:
    with pytest.raises(PolicyError, match="replacement itself matches 'email'"):
        StreamVerifier(POLICY, replacement="hidden@example.com")
    with pytest.raises(PolicyError, match="replacement itself"):
        redact(POLICY, "fine", replacement=lambda rule: f"<darn {rule}>")


@pytest.mark.parametrize(
    ("forbidden", "expected"),
    [
        ("redacted", "[removed]"),
        (r"redacted|removed", "***"),
        (r"[\[\]]|\*", "---"),
        (r"[^a-z]|bad", ""),
        ("bad", "[redacted]"),
    ],
)
def test_the_default_replacement_is_one_that_the_policy_allows(forbidden: str, expected: str) -> None:
    policy = policy_of(RegexRule(id="it", regex=forbidden), StringRule(id="bad", strings=("bad",)))
    assert default_replacement(policy) == default_replacement(policy.policy) == expected
    assert redact(policy, "bad").text == Guard(policy.policy).redact("bad").text == expected
    assert "".join(pieces_of(StreamVerifier(policy), "sobadly")) == f"so{expected}ly"
    for action in ("raise", "report"):
        stream = StreamVerifier(policy, action=action)  # type: ignore[arg-type]
        assert stream.feed("fine") + stream.finish() == "fine"
    if expected != REDACTED:
        with pytest.raises(PolicyError, match="replacement itself"):
            StreamVerifier(policy, replacement=REDACTED)


@pytest.mark.parametrize("wrong", [3, b"x", ["x"], lambda rule: None])
def test_a_replacement_that_is_no_text_is_refused(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="replacement"):
        redact(POLICY, "fine", replacement=wrong)  # type: ignore[arg-type]


def test_text_that_joins_with_a_replacement_to_a_match_is_an_error_and_not_shown() -> None:
    policy = policy_of(StringRule(id="x", strings=("x",)), RegexRule(id="foo", regex=r"\bfoo"))
    with pytest.raises(RedactionError):
        redact(policy, "xfoo", replacement="-")
    stream = StreamVerifier(policy, replacement="-")
    with pytest.raises(RedactionError):
        pieces_of(stream, "xfoo")


def test_a_guard_redacts_and_gives_stream_verifiers() -> None:
    guard = Guard(POLICY.policy)
    assert guard.redact("mail john@enron.com").text == "mail [redacted]"
    stream = guard.stream_verifier(replacement=lambda rule: f"[{rule}]")
    assert "".join(pieces_of(stream, "mail john@enron.com now")) == "mail [email] now"


def test_many_threads_may_verify_and_redact_with_one_policy() -> None:
    from concurrent.futures import ThreadPoolExecutor

    policy = compile_policy(Policy.from_presets("pii", "secrets"))
    texts = [f"{i} john{i}@enron.com 078-05-1{i % 1000:03d} 192.0.2.{i} é {'a' * i}" for i in range(120)]

    def whole(text: str) -> tuple[str, str]:
        stream = StreamVerifier(policy)
        return redact(policy, text).text, "".join(pieces_of(stream, text))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(whole, texts))
    again = compile_policy(policy.policy)
    assert found == [(text, text) for text in (redact(again, text).text for text in texts)]
