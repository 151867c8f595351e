"""Tools and the choice among them, as `bind_tools` and calls take them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from langchain_nco_guard._response_format import unless_strict
from nco_guard import arguments
from nco_guard.engines.calls import chosen_tool
from nco_guard.engines.hf.reply_calls import Reply
from nco_guard.errors import UnsupportedError
from nco_guard.replies import ReplyFormat
from nco_guard.replies.enforcing import calls_shape, required_calls
from nco_guard.replies.offering import offered_tools
from nco_guard.shapes import Shape

__all__ = ["Tools", "begun_by_call", "described_tools"]


_ANY_ARGUMENTS = "arguments may be any JSON object"


@dataclass(frozen=True, slots=True)
class Tools:
    """What a call says about tools.

    choice: as `chosen_tool` has it. single: one call at most. strict: whether calls are of their schemas; None: where a
    call is required, or a tool says so itself.
    """

    offered: list[dict[str, Any]]
    choice: str | None
    single: bool
    strict: bool | None

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Tools:
        """Take out of a call's options those about tools, and check them. Errors: typed, naming the option."""
        offered = offered_tools(given.pop("tools", None))
        names = [str(tool["function"]["name"]) for tool in offered]
        choice = chosen_tool(given.pop("tool_choice", None), names)
        several = given.pop("parallel_tool_calls", None)
        strict = given.pop("strict", None)
        for name, value in (("parallel_tool_calls", several), ("strict", strict)):
            if value is not None:
                arguments.truth(name, value)
        return cls([] if choice == "none" else offered, choice, several is False, strict)

    @property
    def enforced(self) -> bool:
        """Whether a shape holds calls to something: to be there, or to be of their schemas."""
        says = (tool["function"].get("strict") is True for tool in self.offered)
        return bool(self.offered) and (self.choice is not None or self.strict is True or any(says))

    def shape(self, form: ReplyFormat) -> Shape:
        """What holds calls to it, whatever prompt they follow. Errors: as `calls_shape`."""
        with unless_strict(_ANY_ARGUMENTS):
            return calls_shape(form, self._constrained(), choice=self.choice, parallel=not self.single)

    def required(self, form: ReplyFormat, prompt: str) -> tuple[str, Shape]:
        """As `required_calls`, also where none is required: what a prompt goes on with, and the shape of the reply."""
        tools, several = self._constrained(), not self.single
        with unless_strict(_ANY_ARGUMENTS):
            if self.choice is not None:
                return required_calls(form, prompt, tools, self.choice, parallel=several)
            return "", calls_shape(form, tools, parallel=several, prompt=prompt)

    def _constrained(self) -> list[dict[str, Any]]:
        """The tools as shapes take them, strict where the call says so."""
        said = {} if self.strict is None else {"strict": self.strict}
        return [{**tool, "function": {**said, **tool["function"]}} for tool in self.offered]


def described_tools(
    tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], name: str = "tools[{}]"
) -> list[dict[str, Any]]:
    """Tools of LangChain as OpenAI's APIs have them. Errors: `UnsupportedError`, which names the tool by its place.

    name: what the place is called.
    """
    if isinstance(tools, BaseModel | Mapping | str | type) or not isinstance(tools, Iterable):
        raise UnsupportedError(f"tools: give a list of tools, not a {type(tools).__name__}")
    described = []
    for number, tool in enumerate(tools):
        try:
            described.append(_described(tool))
        except (TypeError, ValueError) as error:
            raise UnsupportedError(
                f"{name.format(number)}: a {type(tool).__name__} that LangChain cannot describe; give a tool, a "
                "function, a pydantic class or a schema with a title"
            ) from error
    return offered_tools(described)


def _described(tool: Any) -> dict[str, Any]:
    """A tool, whose schema refers to itself where the class does: LangChain lets anything be there."""
    described = convert_to_openai_tool(tool)
    given = tool.tool_call_schema if isinstance(tool, BaseTool) else tool
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        return described
    schema = given.model_json_schema()
    defined = schema.get("$defs", {})
    if not any(_refers_to(name, defined[name], defined) for name in defined):
        return described
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    whole = {**defined.get(name, {}), **schema}
    parameters = {key: whole[key] for key in whole if key not in ("$ref", "title", "description")}
    return {**described, "function": {**described["function"], "parameters": parameters}}


def _refers_to(name: str, schema: Any, defined: Mapping[str, Any], met: frozenset[str] = frozenset()) -> bool:
    """Whether something in a schema refers to a definition, by others as well."""
    if isinstance(schema, list):
        return any(_refers_to(name, each, defined, met) for each in schema)
    if not isinstance(schema, Mapping):
        return False
    referred = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if referred == name:
        return True
    if referred in defined and referred not in met:
        return _refers_to(name, defined[referred], defined, met | {referred})
    return any(_refers_to(name, each, defined, met) for each in schema.values())


def begun_by_call(replies: Iterator[Reply]) -> Iterator[Reply] | None:
    """A growing reply, as it came, if it begins with a call; None, and nothing more is written, if with text.

    Reasoning before it is no text.
    """
    heard: list[Reply] = []
    for reply in replies:
        heard.append(reply)
        if reply.calls or reply.invalid_calls:
            return chain(heard, replies)
        if reply.content.strip():
            break
    if isinstance(replies, Generator):
        replies.close()
    return None
