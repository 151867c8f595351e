"""What an error shows: itself, and all that led to it."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nco_guard.errors import ViolationError
from nco_guard.policy import Policy, StringRule
from nco_guard.scan import REDACTED
from nco_guard.values import Cleaner
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


SECRET = "jane.doe@example.com"
POLICY = Policy(name="p", rules=(StringRule(id="mail", strings=(SECRET,)),))


class Slotted(Exception):
    __slots__ = ("__mail",)

    def __init__(self) -> None:
        super().__init__("x")
        self.__mail = SECRET


class Wrapping(Exception):
    def __init__(self, orig: BaseException) -> None:
        super().__init__("failed")
        self.orig = orig


class Abort(BaseException):
    pass


class Short(BaseModel):
    number: int


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def refused_input() -> ValidationError:
    try:
        Short.model_validate({"number": "a" * 40 + SECRET + "a" * 40})
    except ValidationError as error:
        return error
    raise AssertionError


HELD: dict[str, Callable[[], Exception]] = {
    "attribute": lambda: Wrapping(ValueError(SECRET)),
    "attribute's cause": lambda: Wrapping(caused(ValueError("x"), KeyError(SECRET))),
    "attribute's attribute": lambda: Wrapping(Wrapping(ImportError("x", path=SECRET))),
    "name": lambda: ImportError("x", name=SECRET),
    "name that is missing": lambda: NameError("x", name=SECRET),
    "slot": Slotted,
    "file": lambda: OSError(2, "no such file", SECRET),
    "value": lambda: StopIteration(SECRET),
    "bytes": lambda: UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, "x"),
    "source": lambda: SyntaxError("x", ("file", 1, 1, SECRET)),
    "class": lambda: type(SECRET, (Exception,), {})("x"),  # type: ignore[no-any-return]
    "input": refused_input,
    "member": lambda: ExceptionGroup("g", [ExceptionGroup("h", [ImportError("x", name=SECRET)])]),
}


def everything(error: Any) -> str:
    """All that can be got at, without the code that is under test."""
    seen: dict[int, Any] = {}
    left, found = [error], list[str]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        found.append(repr(one))
        if isinstance(one, BaseException):
            found += [type(one).__qualname__, *traceback.format_exception(one)]
            left += [*one.args, *vars(one).values(), one.__cause__, one.__context__]
            names = (
                "name",
                "path",
                "obj",
                "filename",
                "value",
                "object",
                "text",
                "exceptions",
                "_Slotted__mail",
            )
            left += [getattr(one, name, None) for name in names]
            left += [error["input"] for error in one.errors()] if isinstance(one, ValidationError) else []
        elif isinstance(one, (list, tuple)):
            left += one
    return " ".join(found)


@pytest.mark.parametrize("where", list(HELD))
def test_all_that_an_error_holds_is_read(where: str) -> None:
    assert SECRET in everything(HELD[where]())
    cleaner = Cleaner(POLICY)
    shown = cleaner.error(HELD[where](), RuntimeError)
    assert type(shown) is RuntimeError
    assert SECRET not in everything(shown)
    assert isinstance(Cleaner(POLICY, "raise").error(HELD[where](), RuntimeError), ViolationError)
    assert SECRET not in everything(cleaner.value([HELD[where]()]))
    with pytest.raises(ViolationError):
        Cleaner(POLICY, "raise").value([HELD[where]()])


def test_errors_among_results_are_clean_and_of_a_class_that_says_the_same() -> None:
    async def fails(error: BaseException) -> None:
        raise error

    async def gathered() -> list[Any]:
        return await asyncio.gather(*map(fails, made), return_exceptions=True)

    made = ValueError("fine"), ValueError(f"no {SECRET}"), caused(KeyError("x"), OSError(SECRET)), Slotted()
    clean = Cleaner(POLICY).value(asyncio.run(gathered()))
    assert clean[0] is made[0]
    assert [type(one) for one in clean] == [ValueError, ValueError, KeyError, Exception]
    assert str(clean[1]) == "no [redacted]"
    assert clean[2].__cause__ is None
    assert SECRET not in everything(clean)


def test_the_object_that_lacked_an_attribute_is_not_looked_into_but_let_go() -> None:
    class Deep:
        @property
        def huge(self) -> object:
            raise AssertionError("nobody asks")

    for about in (Deep(), SECRET):
        error = AttributeError("no such thing", name="x", obj=about)
        assert Cleaner(POLICY).error(error, RuntimeError) is error
        assert error.obj is None
        inner = AttributeError("no such thing", name="x", obj=about)
        outer = Wrapping(inner)
        assert Cleaner(POLICY).error(outer, RuntimeError) is outer
        assert inner.obj is None
        kept = AttributeError("no such thing", name="x", obj=about)
        shown = Cleaner(POLICY).value([kept])[0]
        assert (type(shown), str(shown), shown.obj) == (AttributeError, "no such thing", None)
        assert kept.obj is about


@pytest.mark.parametrize("action", ["redact", "raise"])
def test_what_cancels_or_ends_does_so_still(action: Any) -> None:
    cleaner = Cleaner(POLICY, action)
    for kind in (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, SystemExit):
        same = kind("scope 1")
        assert cleaner.error(same, RuntimeError) is same
        shown = cleaner.error(kind(f"by {SECRET}"), RuntimeError)
        assert type(shown) is kind
        assert SECRET not in everything(shown)
        assert (
            shown.args == {"redact": ("by [redacted]",), "raise": (1,) if kind is SystemExit else ()}[action]
        )
        noted = kind(3)
        noted.add_note(SECRET)
        assert cleaner.error(noted, RuntimeError).args == (3,)
        parted = caused(kind(), ValueError(SECRET))
        assert cleaner.error(parted, RuntimeError) is parted
        assert parted.__cause__ is None
    assert type(cleaner.error(Abort(SECRET), RuntimeError)) is BaseException


@pytest.mark.parametrize("action", ["redact", "raise"])
def test_groups_with_something_that_ends_keep_it(action: Any) -> None:
    fine = KeyboardInterrupt()
    group = BaseExceptionGroup(
        f"of {SECRET}", [ValueError(SECRET), fine, BaseExceptionGroup("g", [Abort(SECRET)])]
    )
    shown = Cleaner(POLICY, action).error(group, RuntimeError)
    assert isinstance(shown, BaseExceptionGroup)
    assert not isinstance(shown, Exception)
    assert shown.exceptions[1] is fine
    assert type(shown.exceptions[0]) is (RuntimeError if action == "redact" else ViolationError)
    assert SECRET not in everything(shown)
