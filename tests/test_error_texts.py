"""What an error shows: itself, and all that led to it."""

from __future__ import annotations

from nco_guard.redaction import texts_of_error


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
    assert texts_of_error(error) == (["shown", "ValueError('shown')"], ["'hidden'", "KeyError('hidden')"])
