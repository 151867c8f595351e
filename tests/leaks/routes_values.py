"""Routes of the one room for values: a `Cleaner`, asked directly."""

from __future__ import annotations

import json
from typing import Any

from nco_guard.audit import RunRecorder
from nco_guard.errors import ViolationError
from nco_guard.replies import Reasoning, ReplyReader, Text, ToolCall, shipped_formats
from nco_guard.values import Cleaner, Role, texts_of
from tests.leaks.routes import Route, Run, route, routes

__all__ = ["ROUTES"]

ROUTES: list[Route] = []


def _of(*names: str, kind: str = "Cleaner") -> list[str]:
    """A class of the room, and methods of it."""
    return [f"nco_guard.values.{kind}", *(f"nco_guard.values.{kind}.{name}" for name in names)]


def _cleaner(run: Run, action: Any = "redact") -> Cleaner:
    return Cleaner(run.guard(), action, record=RunRecorder(run.sink))


@route(ROUTES, "Cleaner.value", carries=["value", "text"], covers=_of("value"), unchanged=True)
def value(run: Run) -> None:
    given = run.value()
    cleaned = run.places.returned(_cleaner(run).value(given))
    if run.shape.same and run.secret.name == "clean" and cleaned is not given:
        raise AssertionError("another object, though nothing was found")


@route(ROUTES, "Cleaner.value, raise", carries=["value", "text"], covers=_of("value", "at"), unchanged=True)
def refused(run: Run) -> None:
    try:
        run.places.returned(_cleaner(run, "raise").at("a place").value(run.value()))
    except ViolationError as error:
        run.places.failed(error)


@route(ROUTES, "Cleaner.value, report", carries=["value", "text"], covers=_of("value"), silent=True)
def reported(run: Run) -> None:
    # Shown is what it records; the value is the caller's.
    _cleaner(run, "report").value(run.value())


@route(
    ROUTES,
    "Cleaner.rules",
    carries=["value", "text"],
    covers=[*_of("rules"), "nco_guard.values.texts_of"],
    silent=True,
)
def rules(run: Run) -> None:
    found = run.places.add("rules", _cleaner(run).rules(run.value()))
    if run.shape.same and bool(found) != (run.secret.name == "secret" and run.policy.name == "canaries"):
        raise AssertionError(f"rules {found}")
    list(texts_of(run.value()))


@route(ROUTES, "Cleaner.metadata", carries=["value"], covers=_of("metadata"))
def metadata(run: Run) -> None:
    run.places.returned(_cleaner(run, "raise").metadata(run.value()))


@routes(
    ROUTES, "Cleaner.field, {}", ["blocks", "json", "text"], carries=["value", "text"], covers=_of("field")
)
def field(run: Run, role: str) -> None:
    run.places.returned(_cleaner(run).field(run.value(), Role(role)), parsed=role == "json")


@route(ROUTES, "Cleaner.text", carries=["text"], covers=_of("text"), unchanged=True)
def text(run: Run) -> None:
    run.places.returned(_cleaner(run).text(run.value()))


@route(ROUTES, "Cleaner.texts", carries=["text"], covers=_of("texts"))
def texts(run: Run) -> None:
    whole = run.value()
    pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    kept = run.places.returned(_cleaner(run).texts(pieces))
    run.places.joined(kept)
    if len(kept) != len(pieces):
        raise AssertionError("pieces were lost")


@route(ROUTES, "Cleaner.identifier", carries=["text"], covers=_of("identifier"), unchanged=True)
def identifier(run: Run) -> None:
    one = _cleaner(run).identifier(run.value())
    if one != _cleaner(run).identifier(run.value()):
        raise AssertionError("not the same twice")
    run.places.returned(one)


@route(ROUTES, "Cleaner.name", carries=["text"], covers=_of("name"), unchanged=True, raises=(ViolationError,))
def name(run: Run) -> None:
    run.places.returned(_cleaner(run).name(run.value()))


@route(ROUTES, "Cleaner.json_text", carries=["json", "text"], covers=_of("json_text"), unchanged=True)
def json_text(run: Run) -> None:
    run.places.returned(_cleaner(run).json_text(run.value()), parsed=True)


@route(
    ROUTES,
    "Cleaner.json_text of what was parsed",
    carries=["json"],
    covers=_of("json_text"),
    skips=["same key twice"],
)
def parsed(run: Run) -> None:
    cleaned = _cleaner(run).json_text(run.value())
    try:
        run.places.returned(json.loads(cleaned), parsed=True)
    except ValueError:
        run.places.returned(cleaned, parsed=True)


@route(ROUTES, "Cleaner.error", carries=["error"], covers=_of("error"))
def error(run: Run) -> None:
    run.places.failed(_cleaner(run).error(run.value(), RuntimeError))


@route(ROUTES, "Cleaner.error, raise", carries=["error"], covers=_of("error"))
def error_refused(run: Run) -> None:
    run.places.failed(_cleaner(run, "raise").error(run.value(), RuntimeError))


# -- values in pieces ------------------------------------------------------------------------------------------


class Addable(dict[str, Any]):
    """A dictionary whose pieces are joined by `+`, key by key. What nothing joins is a value of its own."""

    def __add__(self, other: dict[str, Any]) -> Addable:
        return Addable({name: self[name] + other[name] if name in self else other[name] for name in other})


_PIECES: dict[str, Any] = {
    "texts": lambda piece: piece,
    "dicts": lambda piece: Addable(answer=piece),
    "dicts of two": lambda piece: Addable(answer=piece, other=Addable(text=piece)),
    "blocks with an index": lambda piece: [{"type": "text", "text": piece, "index": 0}],
    "blocks without index": lambda piece: [{"type": "text", "text": piece}],
    "blocks without a type": lambda piece: [{"text": piece}],
    "second texts of blocks": lambda piece: [{"type": "x", "text": "a", "quote": piece}],
    "pieces of a call": lambda piece: [{"type": "tool_call_chunk", "args": piece, "index": 0}],
    "tokens under a key": lambda piece: Addable(logprobs=[{"token": piece}]),
    "blocks in tuples": lambda piece: ({"text": piece},),
    "reasoning blocks": lambda piece: [{"type": "reasoning", "reasoning": piece, "index": 0}],
}


@routes(
    ROUTES,
    "ValueStream of {}, {}",
    [(name, action) for name in _PIECES for action in ("redact", "raise")],
    carries=["text"],
    covers=[*_of("stream", "recorded", "unrecorded"), *_of("feed", "finish", kind="ValueStream")],
    skips=["long"],
)
def streamed(run: Run, name: str, action: Any) -> None:
    stream, text = _cleaner(run, action).stream(), run.value()
    shown: list[Any] = []
    try:
        for at in range(0, len(text), 4):
            shown += stream.feed(_PIECES[name](text[at : at + 4]))
        shown += stream.finish()
    finally:
        run.places.chunks(shown)


@route(
    ROUTES,
    "ValueStream of one value",
    carries=["value", "text"],
    covers=_of("feed", "finish", kind="ValueStream"),
    unchanged=True,
    # A text that comes in one piece is still a stream of texts, and those are plain ones.
    skips=["text of its own class", "numpy text", "StrEnum"],
)
def streamed_whole(run: Run) -> None:
    stream = _cleaner(run).stream()
    shown = [*stream.feed(run.value()), *stream.finish()]
    if len(shown) > 1:
        run.places.chunks(shown)
    run.places.returned("".join(shown) if all(type(one) is str for one in shown) else shown[0])


@route(
    ROUTES,
    "ReplyReader",
    carries=["called", "text"],
    covers=[
        "nco_guard.replies.ReplyReader",
        *(
            f"nco_guard.replies.ReplyReader.{name}"
            for name in ("feed", "finish", "content", "reasoning", "calls")
        ),
        *(f"nco_guard.replies.{name}" for name in ("Event", "Text", "Reasoning", "ToolCall", "InvalidCall")),
    ],
)
def replies(run: Run) -> None:
    reader, text = ReplyReader(run.guard(), form=shipped_formats()["hermes"], tools=[]), run.value()
    shown: list[Any] = []
    try:
        for at in range(0, len(text), 3):
            shown += reader.feed(text[at : at + 3])
        shown += reader.finish()
    finally:
        for event in shown:
            run.places.add("event", event, parsed=isinstance(event, ToolCall))
        run.places.joined([event.text for event in shown if isinstance(event, Text)], "texts")
        run.places.joined([event.text for event in shown if isinstance(event, Reasoning)], "reasoning")
        run.places.add("content", reader.content)
        run.places.add("all reasoning", reader.reasoning)
        run.places.add("calls", reader.calls, parsed=True)
