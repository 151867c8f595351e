"""What one call asks of a reply beside its text: tools, which of them, how many calls, a shape; how it is enforced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nco_guard import arguments
from nco_guard.engines.calls import chosen_tool
from nco_guard.errors import ContradictionError, ShapeError, UnsupportedError
from nco_guard.replies import ReplyFormat
from nco_guard.replies.enforcing import calls_shape, required_calls
from nco_guard.replies.offering import offered_tools
from nco_guard.replies.writing import begun_answer
from nco_guard.shapes import Shape, as_shape

__all__ = ["Asked", "advised", "strict_in"]


@dataclass(frozen=True)
class Asked:
    """What a call asks for; `options` are the rest, for `model.generate`.

    choice: None, "any" or a tool's name, as of `chosen_tool`. single_call: one call counts. strict: True: the arguments
    of every call are of the tool's schema; None: where a call is required, or the tool itself says `strict`; False:
    they are any object.
    """

    options: dict[str, Any]
    tools: list[dict[str, Any]] = field(default_factory=list)
    choice: str | None = None
    single_call: bool = False
    shape: Shape | None = None
    strict: bool | None = None

    @classmethod
    def of_text(cls, kwargs: Mapping[str, Any]) -> Asked:
        """Of a call that goes on with a text. Errors: those of `Shape.json`."""
        options = dict(kwargs)
        return cls(options, shape=_shape_in(options))

    @classmethod
    def of_chat(cls, kwargs: Mapping[str, Any], default: bool | None = None) -> Asked:
        """Of a call that answers messages; `default` in place of a `strict` that is not given.

        Errors: those of `Shape.json`; `UnsupportedError` and `ArgumentError` for tools, choices and flags that cannot
        be meant, and for a shape beside tools that may be called.
        """
        options = dict(kwargs)
        tools = offered_tools(options.pop("tools", None))
        names = [str(tool["function"]["name"]) for tool in tools]
        choice = chosen_tool(options.pop("tool_choice", None), names)
        if arguments.truth("tool_required", options.pop("tool_required", False)):
            if choice == "none":
                raise UnsupportedError("tool_choice='none' and tool_required=True contradict each other")
            choice = choice or chosen_tool("required", names)
        several = options.pop("allow_parallel_tool_calls", True)
        single = not arguments.truth("allow_parallel_tool_calls", several)
        strict, shape = strict_in(options, default), _shape_in(options)
        if shape is not None and strict is False:
            raise UnsupportedError("strict=False: a shape is enforced; leave one of them out")
        if choice == "none":
            tools, choice = [], None
        if tools and shape is not None:
            raise UnsupportedError(
                "shape: a reply of a shape calls no tools; leave tools or shape out, or say tool_choice='none'"
            )
        return cls(options, tools, choice, single, shape, strict)

    def enforced(self, form: ReplyFormat | None, prompt: str) -> tuple[str, Shape | None]:
        """What the prompt goes on with, and the shape of the reply, if any.

        Errors: `ShapeError` for a schema that cannot be enforced; those of `required_calls`.
        """
        if form is None:
            return "", self.shape
        if self.shape is not None:
            return begun_answer(form, prompt), self.shape
        tools, parallel = [self._told(tool) for tool in self.tools], not self.single_call
        strict = any(tool["function"].get("strict") is True for tool in tools)
        if not tools or (self.choice is None and not strict):
            return "", None
        with advised():
            if self.choice is not None:
                return required_calls(form, prompt, tools, self.choice, parallel=parallel)
            return "", calls_shape(form, tools, parallel=parallel, prompt=prompt)

    def _told(self, tool: dict[str, Any]) -> dict[str, Any]:
        """A tool with what the call says of `strict`, which the chat template is not shown."""
        if self.strict is None:
            return tool
        return {**tool, "function": {**tool["function"], "strict": self.strict}}


@contextmanager
def advised() -> Iterator[None]:
    """A `ShapeError` of what cannot be enforced says what to do."""
    try:
        yield
    except ContradictionError:
        raise
    except ShapeError as error:
        raise ShapeError(
            f"{error.message}; change the schema there, or ask for it without enforcing it (strict=False)",
            place=error.place,
        ) from None


def strict_in(options: dict[str, Any], default: bool | None = None) -> bool | None:
    """What is said of `strict`, which is taken out of the options."""
    strict = options.pop("strict", None)
    return default if strict is None else arguments.truth("strict", strict)


def _shape_in(options: dict[str, Any]) -> Shape | None:
    given = options.pop("shape", None)
    return None if given is None else as_shape(given)
