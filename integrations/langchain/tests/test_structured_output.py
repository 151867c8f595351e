"""Structured output of verified models keeps the method of the model inside, and what is parsed is verified, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from checks import check_everything
from inner_models import Delegating, Fails
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.runnables import ConfigurableField, RunnableLambda
from places import Everything
from pydantic import BaseModel, computed_field, field_validator

from langchain_nco_guard import ChatNCOGuard, VerifiedChatModel
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy, RegexRule
from nco_guard.errors import RedactionError, UnsupportedError, ViolationError


class Contact(BaseModel):
    """How to get in touch."""

    way: str


class Hosted(ScriptedChatModel):
    """Asks for JSON by a setting of the call, as providers do, and writes down how it was asked."""

    settings: list[dict[str, Any]] = []

    def with_structured_output(self, schema: Any, *, include_raw: bool = False, **kwargs: Any) -> Any:
        method = kwargs.get("method", "json_schema")
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw)
        parser = (
            PydanticOutputParser(pydantic_object=schema) if isinstance(schema, type) else JsonOutputParser()
        )
        return self.bind(response_format={"type": method}) | parser

    def _next(self, messages: Any) -> Any:
        return super()._next(messages)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        self.settings.append(kwargs)
        return super()._generate(messages, stop, run_manager, **kwargs)

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        self.settings.append(kwargs)
        yield from super()._stream(messages, stop, run_manager, **kwargs)


def saying(text: str) -> Hosted:
    call = {"name": "Contact", "args": json.loads(text), "id": "1", "type": "tool_call"}
    return Hosted(script=[AIMessage(text, tool_calls=[call])], settings=[])


TEXTS = {
    "plain": '{"way": "maria@example.com"}',
    "escaped": r'{"way": "maria\u0040example.com"}',
    "escaped twice": r'{"way": "\u006daria\u0040example\u002ecom"}',
}


@pytest.mark.parametrize("text", list(TEXTS))
@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
async def test_every_method_is_kept_and_verified(policy: Policy, method: Any, text: str) -> None:
    inner = saying(TEXTS[text])
    seen = Everything()
    config: Any = {"callbacks": [seen]}
    model = VerifiedChatModel.over(inner, policy, action="redact").with_structured_output(
        Contact, method=method
    )
    shown = [model.invoke("x", config), await model.ainvoke("x", config), *model.stream("x", config)]
    assert shown == [Contact(way="[redacted]")] * 3
    asked = {"tools" if "tools" in kwargs else kwargs["response_format"]["type"] for kwargs in inner.settings}
    assert asked == {"tools" if method == "function_calling" else method}
    check_everything(policy, seen.seen)
    for one in seen.seen:
        assert "maria" not in repr(one)
    raw = VerifiedChatModel.over(inner, policy, action="redact").with_structured_output(
        Contact, method=method, include_raw=True
    )
    result = raw.invoke("x")
    assert (result["parsed"], result["parsing_error"]) == (Contact(way="[redacted]"), None)
    check_everything(policy, result)
    blocked = VerifiedChatModel.over(inner, policy).with_structured_output(Contact, method=method)
    with pytest.raises(ViolationError):
        blocked.invoke("x")


class Cast(Contact):
    """Casts clean text to what is forbidden."""

    @field_validator("way")
    @classmethod
    def _cast(cls, way: str) -> str:
        return f"{way}@example.com"


class Refuses(Contact):
    """Quotes what is forbidden where it refuses."""

    @field_validator("way")
    @classmethod
    def _refuse(cls, way: str) -> str:
        raise ValueError(f"no {way}@example.com here")


class Computes(Contact):
    """Computes what is forbidden of clean text."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def address(self) -> str:
        return f"{self.way}@example.com"


def configurable(inner: ScriptedChatModel) -> Any:
    """Which model answers is known with a call."""
    return inner.configurable_fields(script=ConfigurableField(id="script"))


@pytest.mark.parametrize("include_raw", [False, True])
@pytest.mark.parametrize("schema", [Cast, Refuses, Computes])
@pytest.mark.parametrize("around", [lambda inner: inner, configurable], ids=["model", "no model"])
async def test_objects_are_verified_before_anybody_is_told(
    policy: Policy, around: Any, schema: Any, include_raw: bool
) -> None:
    call = {"name": schema.__name__, "args": {"way": "maria"}, "id": "1", "type": "tool_call"}
    inner = around(ScriptedChatModel(script=[AIMessage("", tool_calls=[call])]))
    expected = {Cast: None, Refuses: OutputParserException, Computes: RedactionError}[schema]
    actions: dict[Any, Any] = {"redact": expected, "raise": ViolationError}
    for action, raised in actions.items():
        model = VerifiedChatModel.over(inner, policy, action=action)
        seen, structured = Everything(), model.with_structured_output(schema, include_raw=include_raw)
        config: Any = {"callbacks": [seen]}
        (batched,) = structured.batch(["x"], config, return_exceptions=True)
        (later,) = await structured.abatch(["x"], config, return_exceptions=True)
        for found in (batched, later):
            if include_raw:
                check_everything(policy, found["raw"])
                found = found["parsing_error" if raised else "parsed"]
            assert type(found) is (raised or schema)
            check_everything(policy, [str(found), *vars(found).values()])
        for one in seen.seen:
            assert "@" not in repr(one)


def test_the_models_own_default_is_kept(policy: Policy) -> None:
    inner = saying('{"way": "none"}')
    assert VerifiedChatModel.over(inner, policy).with_structured_output(Contact).invoke("x") == Contact(
        way="none"
    )
    assert inner.settings[-1]["response_format"] == {"type": "json_schema"}


def test_numbers_that_only_parsing_brings_out() -> None:
    digits = Policy(name="d", rules=(RegexRule(id="digits", regex=r"\d{15}"),))
    inner = saying('{"way": 4e15}')
    model = VerifiedChatModel.over(inner, digits, action="redact")
    found = model.with_structured_output({"title": "c", "type": "object"}, method="json_mode").invoke("x")
    assert found == {"way": "[redacted]"}
    assert list(model.with_structured_output({"title": "c"}, method="json_mode").stream("x"))[-1] == found


async def test_models_behind_runnables_keep_their_methods(policy: Policy) -> None:
    first, second = saying(TEXTS["plain"]), saying(TEXTS["escaped"])
    for inner in (first.bind(stop=["x"]), first.with_retry(), Broken(script=[]).with_fallbacks([second])):
        model = VerifiedChatModel.over(inner, policy, action="redact")
        structured = model.with_structured_output(Contact, method="json_mode")
        assert structured.invoke("x") == Contact(way="[redacted]")
        assert await structured.ainvoke("x") == Contact(way="[redacted]")
    assert second.settings[-1]["response_format"] == {"type": "json_mode"}
    chain = RunnableLambda(lambda x: x) | first
    with pytest.raises(UnsupportedError, match="'function_calling'"):
        VerifiedChatModel.over(chain, policy).with_structured_output(Contact, method="json_mode")
    mixed = VerifiedChatModel.over(Delegating(other=None).with_fallbacks([first]), policy)
    with pytest.raises((UnsupportedError, NotImplementedError)):
        mixed.with_structured_output(Contact)
    assert Fails


class Broken(Hosted):
    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no host")

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no host")
        yield


@pytest.mark.parametrize(
    "given", [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": {}}}]
)
def test_a_local_model_guards_what_its_json_reads(local: Any, given: dict[str, Any]) -> None:
    digits = Guard(Policy(name="d", rules=(RegexRule(id="digits", regex=r"\d{15}|secret"),)))
    chat: ChatNCOGuard = local(digits)
    call = chat._prepare([HumanMessage("x")], None, {"response_format": given})
    assert {rule.id for rule in call.guard.policy.rules} == {"digits", "digits:json"}
    with pytest.raises(ViolationError, match="read as JSON"):
        call.reading().whole('{"n": 4e15}')
    own = Guard(Policy(name="own", rules=(RegexRule(id="own", regex=r"\d{12}"),)))
    call = chat._prepare([HumanMessage("x")], None, {"response_format": given, "guard": own})
    with pytest.raises(ViolationError, match="read as JSON"):
        call.reading().whole('{"n": 4e11}')
