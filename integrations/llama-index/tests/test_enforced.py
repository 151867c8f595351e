"""Shapes of whole replies: `shape=` on every route, and objects that a model writes, as its text or by a call.

Every class is random, and so is what the model is drawn to; what is looked at is what the user gets.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any, Literal

import pytest
from llama_index.core import Document, SummaryIndex
from llama_index.core.llms import ChatMessage
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.types import PydanticProgramMode
from llama_index.llms.nco_guard import NCOGuardLLM
from pydantic import BaseModel, Field, create_model, field_validator
from pydantic.fields import FieldInfo

from nco_guard import Policy, RegexRule, Shape, StringRule
from nco_guard.errors import (
    ArgumentError,
    ContradictionError,
    DeadEndError,
    GenerationError,
    ShapeError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio
Routes = dict[str, Callable[..., Any]]
ASK = [ChatMessage(role="user", content="Which card was used for order K-5120?")]
PROMPT = PromptTemplate("Please check order {order}.")
POLICY = Policy(
    name="small",
    rules=[
        RegexRule(id="digits", regex=r"\d{3}"),
        RegexRule(id="mail", regex=r"\w+@\w+"),
        StringRule(id="words", strings=["ship", "will", "file"]),
    ],
)


class Order(BaseModel):
    """An order."""

    order_id: str = Field(max_length=12)
    status: Literal["shipped", "lost", "open"]
    items: int


@pytest.fixture(scope="module")
def small(pair: tuple[Any, Any]) -> NCOGuardLLM:
    return NCOGuardLLM(*pair, guard=POLICY, max_new_tokens=96, generate_kwargs={"do_sample": True})


@pytest.fixture(scope="module")
def by_text(small: NCOGuardLLM) -> NCOGuardLLM:
    """Objects by its text, not by calls of tools."""
    return small.model_copy(update={"pydantic_program_mode": PydanticProgramMode.LLM})


@pytest.fixture(params=["text", "call"])
def maker(request: pytest.FixtureRequest) -> NCOGuardLLM:
    """Objects in either way."""
    found: NCOGuardLLM = request.getfixturevalue("by_text" if request.param == "text" else "small")
    return found


def free_of_matches(value: Any) -> None:
    """No rule matches any key, text or number of a value as it was parsed."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        for key, part in value.items():
            free_of_matches([key, part])
    elif isinstance(value, list):
        for part in value:
            free_of_matches(part)
    else:
        assert not re.search(r"\d{3}|\w+@\w+|ship|will|file", str(value)), value


async def last(chunks: Any) -> Any:
    """The last of a stream, whose pieces joined are its text."""
    found = [chunk async for chunk in chunks] if hasattr(chunks, "__aiter__") else [*chunks]
    text = found[-1].text if hasattr(found[-1], "text") else found[-1].message.content
    assert "".join(chunk.delta or "" for chunk in found) == text
    return found[-1]


async def texts(llm: NCOGuardLLM, **options: Any) -> list[str]:
    """What all routes answer."""
    return [
        llm.complete("Hello", **options).text,
        (await llm.acomplete("Hello", **options)).text,
        (await last(llm.stream_complete("Hello", **options))).text,
        (await last(await llm.astream_complete("Hello", **options))).text,
        llm.chat(ASK, **options).message.content or "",
        (await llm.achat(ASK, **options)).message.content or "",
        (await last(llm.stream_chat(ASK, **options))).message.content,
        (await last(await llm.astream_chat(ASK, **options))).message.content,
    ]


@pytest.mark.parametrize("shape", [Order, Order.model_json_schema(), Shape.json(Order, whitespace="none")])
async def test_replies_of_every_route_are_of_the_shape(small: NCOGuardLLM, shape: Any) -> None:
    for text in await texts(small, shape=shape):
        free_of_matches(Order.model_validate_json(text))
        free_of_matches(json.loads(text))


async def test_replies_are_of_a_regular_expression_or_a_grammar(small: NCOGuardLLM) -> None:
    for text in await texts(small, shape=Shape.regex(r"[A-Z]{2}-\d{1,4}")):
        assert re.fullmatch(r"[A-Z]{2}-\d{1,2}", text)  # three digits are forbidden
    assert set(await texts(small, shape=Shape.lark('start: "shipped" | "lost"'))) == {"lost"}


def test_replies_of_a_shape_are_the_same_whole_and_streamed(pair: tuple[Any, Any], keeps: Any) -> None:
    llm = NCOGuardLLM(*pair, guard="pii", max_new_tokens=48, generate_kwargs={"do_sample": False})
    whole = llm.chat(ASK, shape=Order)
    pieces = [*llm.stream_chat(ASK, shape=Order)]
    assert keeps(piece.delta for piece in pieces) == whole.message.content
    assert len(pieces) > 5
    assert Order.model_validate_json(whole.message.content or "")
    assert pieces[-1].raw["policy_digest"] == whole.raw["policy_digest"] != llm.policy_digest


KINDS: list[Any] = [
    (str, ...),
    (int, ...),
    (float, ...),
    (bool, ...),
    (list[int], Field(max_length=2)),
    (list[str], []),
    (str | None, None),
    (Literal["shipped", "lost", 'a "quoted" {word}'], ...),
    (Order, ...),
    (dict[str, bool], {}),
    (str, Field(pattern="^[a-z]{1,4}$")),
    (int, Field(ge=0, le=120)),
]


def drawn(seed: int) -> type[BaseModel]:
    """A random class; objects of it fit into some sixty tokens."""
    draw = random.Random(seed)
    names = draw.sample(["name", "status", "age", "e-mail", "note", 'qu"ote', "b{race"], 2)
    made: Any = {}
    for name, (annotation, default) in zip(names, draw.sample(KINDS, 2), strict=True):
        field = f"f{len(made)}"
        if isinstance(default, FieldInfo):
            made[field] = (annotation, default)
        else:
            made[field] = (annotation, Field(default, alias=name))
    return create_model(f"Drawn{seed}", **made)


WAYS: Routes = {
    "predict": lambda llm, kind, **more: llm.structured_predict(kind, PROMPT, more, order="K-5120"),
    "stream": lambda llm, kind, **more: [*llm.stream_structured_predict(kind, PROMPT, more, order="K-5120")][
        -1
    ],
    "chat": lambda llm, kind, **more: llm.as_structured_llm(kind).chat(ASK, **more).raw,
    "stream_chat": lambda llm, kind, **more: [*llm.as_structured_llm(kind).stream_chat(ASK, **more)][-1].raw,
}


@pytest.mark.parametrize("seed", range(10))
def test_objects_of_random_classes(maker: NCOGuardLLM, seed: int) -> None:
    kind = drawn(seed)
    for way in WAYS.values():
        found = way(maker, kind, max_new_tokens=120)
        assert type(found) is kind
        free_of_matches(found)


async def test_objects_for_an_event_loop(maker: NCOGuardLLM) -> None:
    for found in (
        await maker.astructured_predict(Order, PROMPT, order="K-5120"),
        [one async for one in await maker.astream_structured_predict(Order, PROMPT, order="K-5120")][-1],
        (await maker.as_structured_llm(Order).achat(ASK)).raw,
        [one async for one in await maker.as_structured_llm(Order).astream_chat(ASK)][-1].raw,
    ):
        assert type(found) is Order
        free_of_matches(found)


async def test_programs_are_given_the_shape(by_text: NCOGuardLLM) -> None:
    def program(llm: Any) -> Any:
        return LLMTextCompletionProgram.from_defaults(
            output_cls=Order, prompt_template_str="Check {order}.", llm=llm
        )

    given: dict[str, Any] = {"shape": Order}
    asked = {"order": "K-5120"}
    for found in (
        program(by_text)(llm_kwargs=given, **asked),
        await program(by_text).acall(llm_kwargs=given, **asked),
        program(by_text.as_structured_llm(Order))(**asked),
    ):
        assert type(found) is Order
        free_of_matches(found)


@pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize", "accumulate"])
async def test_query_engines_answer_by_objects(maker: NCOGuardLLM, mode: str) -> None:
    index = SummaryIndex.from_documents(
        [Document(text="Order K-5120 was shipped."), Document(text="It is lost.")]
    )
    by_class = index.as_query_engine(llm=maker, output_cls=Order, response_mode=mode)
    engines = [by_class]
    if mode != "accumulate":  # which joins answers as texts
        engines.append(index.as_query_engine(llm=maker.as_structured_llm(Order), response_mode=mode))
    for engine in engines:
        for answer in (engine.query("Where is it?"), await engine.aquery("Where is it?")):
            found = answer.response
            if mode == "accumulate":
                assert "order_id" in str(found)
                continue
            assert type(found) is Order
            free_of_matches(found)


class Drawn:
    """Draws the model to a text; where that is forbidden it goes its own way."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self._tokenizer, self._text = tokenizer, text
        self._begin = -1

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self._begin < 0:
            self._begin = input_ids.shape[1]
            said = self._tokenizer.decode(input_ids[0])  # the prompt may begin it
            begun = next(n for n in range(len(self._text), -1, -1) if said.endswith(self._text[:n]))
            rest = self._tokenizer(self._text[begun:], add_special_tokens=False)["input_ids"]
            self._ids = [*rest, self._tokenizer.eos_token_id]
        at = input_ids.shape[1] - self._begin
        if at < len(self._ids):
            scores[:, self._ids[at]] += 1e4
        return scores


def said_by(llm: NCOGuardLLM, kind: type[BaseModel], text: str) -> str:
    """What an object's JSON is written as."""
    if llm.pydantic_program_mode == PydanticProgramMode.LLM:
        return text
    return f'<tool_call>{{"name": "{kind.__name__}", "arguments": {text}}}</tool_call>'


class Note(BaseModel):
    """A note."""

    said: str


@pytest.mark.parametrize("said", ['say "hi', "a { b", '"}{', "back\\slash", "plain"])
def test_the_last_of_a_stream_is_all_of_the_text(
    maker: NCOGuardLLM, pair: tuple[Any, Any], said: str
) -> None:
    """LlamaIndex mends what is there by counting quotes and braces, those within strings too."""
    text = json.dumps({"said": said})
    for way in WAYS.values():
        assert way(maker, Note, logits_processor=[Drawn(pair[1], said_by(maker, Note, text))]) == Note(
            said=said
        )
    parts = [
        *maker.stream_structured_predict(
            Note, PROMPT, {"logits_processor": [Drawn(pair[1], said_by(maker, Note, text))]}, order="1"
        )
    ]
    assert all(said.startswith(part.said or "") for part in parts)


# -- what does not go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(WAYS))
def test_too_few_tokens_are_an_error_that_says_so(maker: NCOGuardLLM, way: str) -> None:
    with pytest.raises(DeadEndError, match=r"^row 0: 5 more tokens are too few .* allow more max_new_tokens"):
        WAYS[way](maker, Order, max_new_tokens=5)


@pytest.mark.parametrize("way", list(WAYS))
def test_what_the_policy_forbids_altogether_is_refused_with_the_field(maker: NCOGuardLLM, way: str) -> None:
    kind = create_model("Shipped", status=(Literal["shipped"], ...), other=(str, ...))
    with pytest.raises(ContradictionError) as caught:
        WAYS[way](maker, kind)
    assert (caught.value.place or "").endswith("/properties/status")
    assert caught.value.rule_ids[0] == "words"


@pytest.mark.parametrize("way", list(WAYS))
def test_a_schema_that_cannot_be_enforced_is_refused_or_asked_for(
    maker: NCOGuardLLM, pair: tuple[Any, Any], way: str
) -> None:
    kind: Any = create_model("Tags", tags=(set[str], ...))
    with pytest.raises(ShapeError, match=r"^#/properties/tags: .*strict=False") as caught:
        WAYS[way](maker, kind)
    assert caught.value.place == "#/properties/tags"
    drawn_to = {"logits_processor": [Drawn(pair[1], said_by(maker, kind, '{"tags": ["a", "b"]}'))]}
    assert WAYS[way](maker, kind, strict=False, **drawn_to).tags == {"a", "b"}
    with pytest.raises((ValueError, GenerationError), match=r"json|valid set|is no Tags"):
        WAYS[way](maker, kind, strict=False, logits_processor=[Drawn(pair[1], "no object")], max_new_tokens=4)


class Even(BaseModel):
    """Asks for more than its schema says."""

    number: int

    @field_validator("number")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


@pytest.mark.parametrize("way", list(WAYS))
def test_what_a_class_checks_beyond_its_schema_is_an_error(
    maker: NCOGuardLLM, pair: tuple[Any, Any], way: str
) -> None:
    for number, ends in ((4, False), (7, True)):
        drawn_to = {"logits_processor": [Drawn(pair[1], said_by(maker, Even, f'{{"number": {number}}}'))]}
        if ends:
            with pytest.raises((ValueError, GenerationError), match=r"odd|is no Even"):
                WAYS[way](maker, Even, **drawn_to)
        else:
            assert WAYS[way](maker, Even, **drawn_to).number == number


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"shape": 3}, ArgumentError, "shape: int is none"),
        ({"shape": {"type": "string", "format": "colour"}}, ShapeError, "Unknown format"),
        ({"shape": Order, "strict": False}, UnsupportedError, "strict=False: a shape is enforced"),
        ({"shape": Order, "strict": "yes"}, ArgumentError, "strict: True or False"),
        ({"shape": Order, "stop": ["}"]}, UnsupportedError, "stop: a reply of a shape ends by itself"),
        (
            {"shape": Order, "tools": [{"type": "function", "function": {"name": "f"}}]},
            UnsupportedError,
            "shape: ",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    small: NCOGuardLLM, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    for call in (small.chat, small.stream_chat):
        with pytest.raises(error, match=says):
            call(ASK, **options)  # here, not at the first chunk


def test_a_shape_is_given_with_a_call(pair: tuple[Any, Any], small: NCOGuardLLM) -> None:
    with pytest.raises(UnsupportedError, match=r"^shape: .*with a call"):
        NCOGuardLLM(*pair, guard=POLICY, generate_kwargs={"shape": Order})
    none = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}
    assert Order.model_validate_json(small.chat(ASK, shape=Order, **none).message.content or "")
    with pytest.raises(GenerationError, match="strict"):
        small.complete("Hello", strict=True)
