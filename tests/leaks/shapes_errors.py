"""Shapes of errors: the ways in which one quotes what it was given."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pydantic

from tests.leaks.canaries import Secret
from tests.leaks.shapes import Shape, shapes
from tests.leaks.shapes_values import StrictModel

__all__ = ["ERRORS"]


class APIError(Exception):
    """As clients of hosted models have them: the answer is kept beside the message."""

    def __init__(self, message: str, body: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.body = body


class Quiet(Exception):
    """Its text is made when it is asked for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __str__(self) -> str:
        return f"no {self.text}"


class Odd(Exception):
    """Cannot be made from a text alone."""

    def __init__(self, *, code: int, detail: str) -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


def noted(s: Secret) -> Exception:
    error = ValueError("no such customer")
    error.add_note(f"asked for {s.text}")
    return error


def caused(s: Secret, *, hidden: bool = False, context: bool = False) -> Exception:
    try:
        try:
            raise KeyError(s.text)
        except KeyError as error:
            if context:
                raise ValueError("no such customer") from None if hidden else error
            raise ValueError("no such customer")  # noqa: B904
    except ValueError as error:
        return error


def validated(s: Secret) -> Exception:
    try:
        StrictModel.model_validate({"card": s.text})
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


def undecoded(s: Secret) -> Exception:
    try:
        (s.text.encode() + b"\xff").decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def unparsed(s: Secret) -> Exception:
    try:
        json.loads(f'{{"m": "{s.text}')
    except json.JSONDecodeError as error:
        return error
    raise AssertionError


ERRORS: list[Shape] = shapes(
    "error",
    {
        "text": lambda s: ValueError(f"no {s.text} here"),
        "number": lambda s: ValueError(s.number),
        "arguments": lambda s: RuntimeError("no", {"mail": [s.text]}),
        "key": lambda s: KeyError(s.text),
        "note": noted,
        "cause": lambda s: caused(s, context=True),
        "context": caused,
        "suppressed context": lambda s: caused(s, context=True, hidden=True),
        "group": lambda s: ExceptionGroup("all", [OSError(s.text), ValueError("b")]),
        "nested group": lambda s: ExceptionGroup("all", [ExceptionGroup("in", [caused(s, context=True)])]),
        "group's title": lambda s: ExceptionGroup(s.text, [OSError("a")]),
        "answer of a host": lambda s: APIError(
            "400", {"error": {"failed_generation": f'{{"m": "{s.text}"}}'}}
        ),
        "answer of a host, escaped": lambda s: APIError(f'400: {{"failed_generation": "{s.text}"}}'),
        "attribute": lambda s: APIError("400", s.text.encode()),
        "text made late": lambda s: Quiet(s.text),
        "keywords only": lambda s: Odd(code=1, detail=s.text),
        "file": lambda s: FileNotFoundError(2, "No such file", f"/home/{s.text}"),
        "output of a process": lambda s: subprocess.CalledProcessError(1, ["mail", s.text], output=s.text),
        "pydantic": validated,
        "bytes that do not decode": undecoded,
        "JSON that does not parse": unparsed,
        "date": lambda s: ValueError(f"not on {s.date}"),
    },
    same=False,
)
