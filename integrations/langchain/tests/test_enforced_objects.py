"""Objects of a schema, whatever the model would rather write: every form of schema, every method, every route."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import torch
from checks import check_everything, violated_rules
from langchain_core.caches import InMemoryCache
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from pydantic import BaseModel, Field, RootModel, TypeAdapter, ValidationError, create_model, field_validator
from pydantic.v1 import BaseModel as BaseModelV1
from typing_extensions import TypedDict

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import (
    ArgumentError,
    ContradictionError,
    DeadEndError,
    ShapeError,
    UnsupportedError,
    ViolationError,
)

QUESTION = "How can I reach Daniel Cohen?"
DIGITS = Policy(name="digits", rules=(RegexRule(id="three", regex=r"\d{3}"),))


class Ticket(BaseModel):
    """What somebody wants."""

    subject: str = Field(max_length=20)
    priority: Literal["low", "high"]
    days: int = Field(ge=0, le=500)
    note: str | None = None


class OldTicket(BaseModelV1):
    """The same, as pydantic 1 has it."""

    subject: str
    days: int


class TypedTicket(TypedDict):
    """The same, without a class of its own."""

    subject: Annotated[str, ..., "what it is about"]
    days: Annotated[int, ..., "how long it may take"]


@dataclass
class PlainTicket:
    """The same, as a dataclass."""

    subject: str
    days: int = 3


class Tree(BaseModel):
    """A schema that refers to itself."""

    name: str = Field(max_length=6)
    below: list[Tree] = Field(max_length=1)


FORMS: dict[str, Any] = {
    "pydantic": Ticket,
    "pydantic 1": OldTicket,
    "typed": TypedTicket,
    "dataclass": PlainTicket,
    "schema": {**Ticket.model_json_schema(), "description": "What somebody wants."},
    "tool": {
        "type": "function",
        "function": {"name": "ticket", "description": "x", "parameters": Ticket.model_json_schema()},
    },
    "named": {"name": "ticket", "description": "x", "parameters": Ticket.model_json_schema()},
    "refers to itself": Tree,
}
METHODS = ("json_schema", "json_mode", "function_calling")


def check_form(form: str, answer: Any) -> None:
    """Whether an answer is what a schema of this form makes of a model's text."""
    schema = FORMS[form]
    if isinstance(schema, dict):
        Ticket.model_validate(answer, strict=True)
        assert set(answer) <= set(Ticket.model_fields)
    elif form in ("typed", "dataclass"):
        assert isinstance(answer, dict)
        TypeAdapter(schema).validate_python(answer, strict=form == "typed")
    else:
        assert isinstance(answer, schema)


async def every_route(chat: Any, question: Any) -> list[Any]:
    """What each route gives, whole: they are to agree."""
    return [
        chat.invoke(question),
        await chat.ainvoke(question),
        [*chat.stream(question)][-1],
        [part async for part in chat.astream(question)][-1],
        *chat.batch([question, question]),
        *await chat.abatch([question]),
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
async def test_every_form_of_schema_on_every_route(
    local: Any, policy: Policy, method: Any, form: str
) -> None:
    chat = local(policy, max_tokens=64).with_structured_output(FORMS[form], method=method)
    answers = await every_route(chat, QUESTION)
    for answer in answers:
        check_form(form, answer)
        check_everything(policy, answer)
    assert answers == answers[:1] * len(answers)


@pytest.mark.parametrize("method", METHODS)
async def test_the_message_comes_along_where_that_is_asked_for(
    local: Any, policy: Policy, method: Any
) -> None:
    chat = local(policy, max_tokens=64).with_structured_output(Ticket, method=method, include_raw=True)
    for result in (chat.invoke(QUESTION), await chat.ainvoke(QUESTION)):
        assert set(result) == {"raw", "parsed", "parsing_error"}
        assert isinstance(result["raw"], AIMessage)
        assert isinstance(result["parsed"], Ticket)
        assert result["parsing_error"] is None
        check_everything(policy, result)
    parts = list(chat.stream(QUESTION))
    assert [part["parsed"] for part in parts if "parsed" in part][-1] == result["parsed"]


def test_without_the_shape_it_is_talk(local: Any) -> None:
    """So that the tests above can fail."""
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(local().invoke(QUESTION).text)


# -- random schemas ----------------------------------------------------------------------------------------------

RULES = (
    RegexRule(id="mail", regex=r"[\w.]+@\w+\.[a-z]{2,}"),
    RegexRule(id="three", regex=r"\d{3}"),
    RegexRule(id="even", regex=r"(?<!\d)\d*[02468](?!\d)"),
    RegexRule(id="vowels", regex=r"[aeiou]{3}"),
    StringRule(id="word", strings=("reach", "Daniel"), whole_word=True, case="fold"),
    StringRule(id="true", strings=("true",)),
    RegexRule(id="capitals", regex=r"[A-Z]{2}"),
)


def drawn_class(draw: random.Random, depth: int = 0) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for number in range(draw.randint(1, 4)):
        kind = drawn_type(draw, depth)
        fields[f"k{number}"] = (kind | None, None) if draw.random() < 0.3 else (kind, ...)
    return create_model("Drawn" + "Within" * depth, **fields)


def drawn_type(draw: random.Random, depth: int) -> Any:
    low = draw.randint(-5, 200)
    kinds: list[Callable[[], Any]] = [
        lambda: str,
        lambda: Annotated[str, Field(max_length=draw.randint(0, 9))],
        lambda: Annotated[str, Field(pattern=draw.choice(["^[a-z]{2,4}$", r"^[A-Z]-\d+$", "^(yes|no)$"]))],
        lambda: int,
        lambda: Annotated[int, Field(ge=low, le=low + draw.choice([0, 3, 900]))],
        lambda: float,
        lambda: bool,
        lambda: Literal["low", "reach", "7", "true"],
    ]
    if depth < 2:
        kinds += [
            lambda: drawn_class(draw, depth + 1),
            lambda: Annotated[list[drawn_type(draw, depth + 1)], Field(max_length=2)],  # type: ignore[misc]
        ]
    return draw.choice(kinds)()


@pytest.mark.parametrize("seed", range(24))
def test_objects_of_random_classes_under_random_policies(loaded: tuple[Any, Any], seed: int) -> None:
    draw = random.Random(seed)
    schema = drawn_class(draw)
    policy = Policy(name=f"drawn-{seed}", rules=tuple(draw.sample(RULES, draw.randint(1, 3))))
    chat = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=policy, max_tokens=64, temperature=1.5)
    method: Any = draw.choice(METHODS)
    named: tuple[str, ...] = ()
    try:
        structured = chat.with_structured_output(schema, method=method, include_raw=True)
    except ContradictionError as error:
        named = error.rule_ids
    if named:
        assert {name.removesuffix(":json") for name in named} <= {rule.id for rule in policy.rules}
        return
    torch.manual_seed(seed)
    for result in structured.batch([QUESTION, "Hello"]):
        assert result["parsing_error"] is None
        assert isinstance(result["parsed"], schema)
        check_everything(policy, [result["parsed"].model_dump(exclude_unset=True), result["raw"].text])
        assert violated_rules(Guard(policy).verifier.compiled, result["raw"].text) == ()


# -- what does not fit is never silent -----------------------------------------------------------------------------


MISFITS = (OutputParserException, ValidationError)


class NineDigits(BaseModel):
    """What the policy does not allow."""

    name: str
    number: str = Field(pattern="^[0-9]{9}$")


class Several(BaseModel):
    """What nobody enforces exactly."""

    kinds: set[str]


@pytest.mark.parametrize("method", METHODS)
def test_what_schema_and_policy_contradict_is_said_before_anything_is_written(
    local: Any, method: Any
) -> None:
    with pytest.raises(ContradictionError) as caught:
        local(DIGITS).with_structured_output(NineDigits, method=method)
    assert caught.value.rule_ids == ("three",)
    assert str(caught.value.place).endswith("/properties/number")


def test_a_guard_of_the_call_contradicts_before_anything_is_written(local: Any) -> None:
    asked = local().with_structured_output(NineDigits, method="json_schema")
    written: list[Any] = []
    for call in (
        lambda: (asked.first.bind(guard=DIGITS) | asked.last).invoke("x"),
        lambda: asked.first.bind(guard=DIGITS, on_step=written.append).invoke("x"),
    ):
        with pytest.raises(ContradictionError, match="#/properties/number"):
            call()
    assert written == []
    for include_raw in (False, True):
        asked = local().with_structured_output(NineDigits, method="json_schema", include_raw=include_raw)
        for ask in (asked.invoke, asked.stream, asked.batch):
            with pytest.raises(ContradictionError, match="#/properties/number"):
                [*ask(["x"] if ask == asked.batch else "x", guard=DIGITS)]  # type: ignore[operator]


@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_enforced_says_where_and_what_to_do(local: Any, method: Any) -> None:
    with pytest.raises(ShapeError, match="strict=False") as caught:
        local().with_structured_output(Several, method=method)
    assert str(caught.value.place).endswith("/properties/kinds")


@pytest.mark.parametrize("include_raw", [False, True])
@pytest.mark.parametrize("method", METHODS)
async def test_not_strict_is_any_object_and_what_does_not_fit_is_an_error(
    local: Any, method: Any, include_raw: bool
) -> None:
    """The model that ships knows no such keys."""
    chat = local().with_structured_output(NineDigits, method=method, strict=False, include_raw=include_raw)
    if include_raw:
        result = chat.invoke(QUESTION)
        said = [call["args"] for call in result["raw"].tool_calls] or [json.loads(result["raw"].text)]
        assert isinstance(said[0], dict)
        assert result["parsed"] is None
        assert isinstance(result["parsing_error"], MISFITS)
        return
    with pytest.raises(MISFITS):
        chat.invoke(QUESTION)
    with pytest.raises(MISFITS):
        list(chat.stream(QUESTION))
    with pytest.raises(MISFITS):
        [part async for part in chat.astream(QUESTION)]


class Picky(BaseModel):
    """Checks what no schema says."""

    word: str

    @field_validator("word")
    @classmethod
    def _none(cls, word: str) -> str:
        raise ValueError("never")


@pytest.mark.parametrize("method", METHODS)
async def test_what_only_a_class_checks_is_an_error_on_every_route(local: Any, method: Any) -> None:
    chat = local().with_structured_output(Picky, method=method)
    for call in (
        lambda: chat.invoke("x"),
        lambda: list(chat.stream("x")),
        lambda: chat.batch(["x"]),
        lambda: asyncio.run(chat.ainvoke("x")),
    ):
        with pytest.raises(ValueError, match="never"):
            await asyncio.to_thread(call)


@pytest.mark.parametrize("method", METHODS)
def test_a_schema_without_room_says_what_to_raise(local: Any, method: Any) -> None:
    chat = local(max_tokens=6).with_structured_output(Ticket, method=method)
    with pytest.raises(DeadEndError, match="max_new_tokens"):
        chat.invoke("x")
    with pytest.raises(DeadEndError, match="max_new_tokens"):
        list(chat.stream("x"))


@pytest.mark.parametrize("method", METHODS)
def test_a_schema_with_just_enough_room_is_closed(local: Any, method: Any) -> None:
    """Each length from the first one that has room."""
    closed = []
    for room in range(10, 60, 3):
        try:
            answer = local(max_tokens=room).with_structured_output(Ticket, method=method).invoke("x")
        except DeadEndError:
            assert not closed
            continue
        closed.append(room)
        assert isinstance(answer, Ticket)
    assert len(closed) > 6


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"schema": 3}, ArgumentError, "schema: "),
    ({"schema": int}, ArgumentError, "schema: "),
    ({"schema": "Ticket"}, ArgumentError, "schema: "),
    ({"schema": [Ticket]}, ArgumentError, "schema: "),
    ({"schema": None}, ArgumentError, "schema: "),
    ({"schema": {"type": "strin"}}, ShapeError, "#: "),
    ({"schema": Ticket, "strict": "yes"}, ArgumentError, "strict: "),
    ({"schema": Ticket, "method": "xml"}, ArgumentError, "method 'xml': "),
    ({"schema": Ticket, "flavour": "sweet"}, UnsupportedError, "flavour: "),
    ({"schema": Ticket, "max_tokens": 3}, UnsupportedError, "max_tokens: "),
]


@pytest.mark.parametrize(("given", "error", "match"), WRONG, ids=str)
def test_what_cannot_be_meant_is_refused_by_name(
    local: Any, given: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=f"^{match}"):
        local().with_structured_output(**{"method": "json_schema", **given})


# -- response_format of a call ---------------------------------------------------------------------------------------


def asked_for(schema: Any, **named: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **named}}


def test_a_call_asks_for_a_shape_as_hosted_models_are_asked(local: Any, policy: Policy) -> None:
    chat: ChatNCOGuard = local(policy, max_tokens=48)
    schema = Ticket.model_json_schema()
    for given in (asked_for(schema), asked_for(schema, strict=True)):
        Ticket.model_validate_json(chat.invoke(QUESTION, response_format=given).text, strict=True)
    for given in ({"type": "json_object"}, asked_for(schema, strict=False)):
        assert isinstance(json.loads(chat.invoke(QUESTION, response_format=given).text), dict)
    plain = chat.invoke(QUESTION)
    for given in (None, {"type": "text"}):
        assert chat.invoke(QUESTION, response_format=given).text == plain.text


def test_pieces_of_json_joined_are_the_whole(local: Any, policy: Policy) -> None:
    asked = local(policy, max_tokens=48).bind(response_format=asked_for(Ticket.model_json_schema()))
    pieces = [chunk.text for chunk in asked.stream(QUESTION)]
    whole = asked.invoke(QUESTION)
    assert "".join(pieces) == whole.text
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    assert whole.tool_calls == whole.invalid_tool_calls == []


@pytest.mark.parametrize(
    "given",
    [
        3,
        "json",
        Ticket,
        {},
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": 3},
    ],
    ids=str,
)
def test_another_response_format_is_refused(local: Any, given: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"^response_format: "):
        local().invoke("x", response_format=given)


def test_other_json_than_objects(local: Any) -> None:
    class Numbers(RootModel[list[int]]):
        """A list."""

    assert isinstance(local().with_structured_output(Numbers, method="json_schema").invoke("x"), Numbers)
    listed = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}
    answer = local().with_structured_output(listed, method="json_schema").invoke("x")
    assert len(answer) in (2, 3)
    assert all(type(each) is bool for each in answer)
    assert isinstance(local().with_structured_output(None, method="json_mode").invoke("x"), dict)


def test_a_text_of_a_shape_has_no_stop_strings(local: Any) -> None:
    chat = local(stop=["}"]).with_structured_output(Ticket, method="json_schema")
    with pytest.raises(UnsupportedError, match=r"^stop: "):
        chat.invoke("x")


def test_caches_tell_shapes_apart(local: Any, cache: InMemoryCache) -> None:
    chat: ChatNCOGuard = local(max_tokens=48)
    formats = [
        None,
        {"type": "json_object"},
        asked_for(Ticket.model_json_schema()),
        asked_for({"type": "null"}),
    ]
    texts = [chat.invoke(QUESTION, response_format=each).text for each in formats]
    assert len(set(texts)) == len(formats)
    assert texts == [chat.invoke(QUESTION, response_format=each).text for each in formats]


class Loud(BaseModel):
    """Casts to what no text said."""

    word: str = Field(max_length=4)

    @field_validator("word")
    @classmethod
    def _loud(cls, word: str) -> str:
        return f"{word} zebra"


@pytest.mark.parametrize("method", METHODS)
def test_what_a_cache_answers_is_made_an_object_under_the_guard_of_the_call(
    local: Any, cache: InMemoryCache, method: Any
) -> None:
    """Another object of the same model may have asked: the answer is the cache's, the guard the call's."""
    zebra = Policy(name="zebra", rules=(StringRule(id="zebra", strings=("zebra",)),))
    for _ in range(2):
        asked = local().with_structured_output(Loud, method=method)
        assert asked.invoke("x").word.endswith("zebra")
        with pytest.raises(ViolationError, match="zebra"):
            asked.invoke("x", guard=zebra)
    answer = asked.first.invoke("x", guard=zebra)
    elsewhere = local().with_structured_output(Loud, method=method)
    unknown = answer.model_copy(update={"response_metadata": {"policy_digest": "0" * 64}})
    assert len(unknown.response_metadata["policy_digest"]) == len(answer.response_metadata["policy_digest"])
    with pytest.raises(UnsupportedError, match="policy_digest: the answer was written under another policy"):
        elsewhere.last.invoke(unknown)


def test_what_parsing_alone_brings_out_is_still_an_error(local: Any) -> None:
    """A rule that looks around: alone the value is a match, between its quotes it is none."""
    alone = Policy(name="alone", rules=(RegexRule(id="alone", regex=r'(?<!")\blow\b(?!")'),))
    schema = {"type": "object", "properties": {"x": {"enum": ["low"]}}, "required": ["x"]}
    with pytest.raises((ContradictionError, ViolationError)):
        local(alone).with_structured_output(schema, method="json_schema").invoke("x")


def test_the_profile_says_so(local: Any) -> None:
    assert local().profile["structured_output"] is True


# -- the same on a model that writes -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_schema_on_smollm2(
    smollm2: tuple[Any, Any], policy: Policy, method: Any, form: str
) -> None:
    model, tokenizer = smollm2
    chat = ChatNCOGuard(model=model, tokenizer=tokenizer, guard=policy, max_tokens=96, temperature=0)
    structured = chat.with_structured_output(FORMS[form], method=method)
    answers = [
        structured.invoke(QUESTION),
        await structured.ainvoke(QUESTION),
        [*structured.stream(QUESTION)][-1],
    ]
    for answer in answers:
        check_form(form, answer)
        check_everything(policy, answer)
    assert answers == answers[:1] * 3
