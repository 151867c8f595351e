"""What an error shows: itself, and all that led to it."""

from __future__ import annotations

from nco_guard.errors import ViolationError
from nco_guard.policy import Policy, StringRule
from nco_guard.redaction import REDACTED
from nco_guard.values.faults import clean_error, texts_of_error
from nco_guard.values.finding import Finder


def raised(make: object) -> BaseException:
    try:
        make()  # type: ignore[operator]
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_text_notes_and_members_are_its_own_and_causes_and_contexts_led_to_it() -> None:
    def fail() -> None:
        try:
            raise KeyError("context")
        except KeyError:
            member = ValueError("member")
            member.__cause__ = OSError("cause of a member")
            error = ExceptionGroup("group", [member, ExceptionGroup("inner", [TypeError("deep")])])
            error.add_note("note")
            raise error from RuntimeError("cause")

    own, causes = texts_of_error(raised(fail))
    for text in ("note", "member", "cause of a member", "deep"):
        assert text in own
    assert any("group" in text for text in own)
    assert {"cause", "'context'"} <= set(causes)
    assert not {"cause", "'context'"} & set(own)


def test_what_from_none_hides_is_found_and_circles_end() -> None:
    def fail() -> None:
        try:
            raise KeyError("hidden")
        except KeyError:
            raise ValueError("shown") from None

    error = raised(fail)
    assert "'hidden'" in texts_of_error(error)[1]
    assert error.__context__ is not None
    error.__context__.__context__ = error
    own, causes = texts_of_error(error)
    assert {"shown", "ValueError('shown')"} <= set(own)
    assert {"'hidden'", "KeyError('hidden')", "hidden"} <= set(causes)
    assert not {"shown", "hidden"} <= set(own)


def test_an_error_is_replaced_parted_from_what_led_to_it_or_left_as_it_is() -> None:
    finder = Finder(Policy(name="p", rules=(StringRule(id="r", strings=("secret",)),)), REDACTED)

    def cleaned(error: Exception) -> Exception:
        return clean_error(error, finder, lambda text, rules: text.replace("secret", "-"), RuntimeError)

    fine = ValueError("fine")
    assert cleaned(fine) is fine
    shown = cleaned(ValueError("a secret"))
    assert isinstance(shown, RuntimeError)
    assert str(shown) == "a -"
    noted = ValueError("fine")
    noted.add_note("a secret")
    assert isinstance(cleaned(noted), RuntimeError)
    led = ValueError("fine")
    led.__cause__ = KeyError("secret")
    assert cleaned(led) is led
    assert led.__cause__ is None
    assert led.__context__ is None

    def refuse(text: str, rules: tuple[str, ...]) -> str:
        raise ViolationError(rules, "a tool")

    refused = clean_error(ValueError("a secret"), finder, refuse, RuntimeError)
    assert isinstance(refused, ViolationError)
    assert refused.__context__ is None
