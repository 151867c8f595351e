"""Options with odd values: each is used, or refused by a typed error that names it, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.nco_guard import NCOGuardLLM
from transformers import GenerationConfig

from nco_guard import Policy
from nco_guard.errors import ArgumentError, NCOGuardError, UnsupportedError

OBJECTS = (
    "assistant_model",
    "generation_config",
    "logits_processor",
    "prefix_allowed_tokens_fn",
    "stopping_criteria",
)
OWN = "guard", "stop", "max_tokens", "policy", "streamer", "skip_special_tokens", "nonsense"
NAMES = sorted({name for name in vars(GenerationConfig()) if not name.startswith("_")} | {*OBJECTS, *OWN})
ODD = (None, 0, -1, 3, 1.5, float("nan"), "x", "", [], {}, [3], ["x"], {"a": 1}, True, object())


@pytest.fixture(scope="module")
def small(pair: tuple[Any, Any]) -> NCOGuardLLM:
    return NCOGuardLLM(*pair, guard=Policy.from_presets("pii_paper"), max_new_tokens=2)


@pytest.mark.parametrize(
    "others", [{}, {"do_sample": True}, {"num_beams": 2}], ids=["greedy", "sampled", "beams"]
)
def test_every_option_with_every_odd_value_is_taken_or_refused_by_name(
    small: NCOGuardLLM, others: dict[str, Any]
) -> None:
    wrong = []
    for name in NAMES:
        for value in ODD:
            try:
                small.complete("Hello", **{**others, name: value})
            except NCOGuardError as error:
                if name not in str(error):
                    wrong.append((name, value, str(error)))
            except Exception as error:
                wrong.append((name, value, repr(error)))
    assert not wrong


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*OBJECTS, *OWN)])
def test_a_generation_config_is_read_like_options(small: NCOGuardLLM, name: str) -> None:
    for value in (0, -1, "x", [3], {"a": 1}, object()):
        config = GenerationConfig(max_new_tokens=2)
        setattr(config, name, value)
        says = ""
        try:
            small.complete("Hello", generation_config=config)
        except NCOGuardError as error:
            says = str(error)
        assert not says or name in says, value


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": -3}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"max_new_tokens": "8"}, "max_new_tokens"),
        ({"generate_kwargs": {"max_new_tokens": 0}}, "max_new_tokens"),
        ({"generate_kwargs": {"num_beams": 0}}, "num_beams"),
        ({"generate_kwargs": 3}, "generate_kwargs"),
        ({"context_window": 0}, "context_window"),
        ({"context_window": -1}, "context_window"),
        ({"context_window": 1.5}, "context_window"),
        ({"stopping_ids": 3}, "stopping_ids"),
        ({"stopping_ids": ["a"]}, "stopping_ids"),
    ],
)
def test_limits_of_the_constructor(pair: tuple[Any, Any], options: dict[str, Any], name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        NCOGuardLLM(*pair, **{"guard": Policy.from_presets("pii_paper"), **options})


def test_odd_prompts_messages_and_tools(small: NCOGuardLLM) -> None:
    ask = [ChatMessage(role="user", content="Hello")]
    for tools in (3, "x", [3], [{}], [{"function": 3}]):
        with pytest.raises(UnsupportedError, match="tools"):
            small.chat(ask, tools=tools)
    for choice in (3, [], {}, {"type": "function"}, "nobody"):
        with pytest.raises(UnsupportedError, match="tool_choice"):
            small.chat(ask, tools=[{"function": {"name": "t"}}], tool_choice=choice)
    lookup: Any = FunctionTool.from_defaults(lambda name: name, name="find", description="Find.")
    for tools in (lookup, 3, None, "x", [3], [lookup.fn]):
        with pytest.raises(UnsupportedError, match=r"^tools"):
            small.chat_with_tools(tools, user_msg="Hello")  # type: ignore[arg-type]
    other = FunctionTool.from_defaults(lambda order: order, name="find", description="Find an order.")
    with pytest.raises(UnsupportedError, match=r"^tools\[1\]: another tool before it has the same name"):
        small.chat_with_tools([lookup, other], user_msg="Hello")
    for kind in (3, dict, list[int]):
        with pytest.raises(ArgumentError, match=r"^output_cls: "):
            small.structured_predict(kind, PromptTemplate("Hello"))  # type: ignore[type-var]
        with pytest.raises(ArgumentError, match=r"^output_cls: "):
            [*small.stream_structured_predict(kind, PromptTemplate("Hello"))]  # type: ignore[type-var]
    with pytest.raises(UnsupportedError, match="prompt"):
        small.complete(3, formatted=True)  # type: ignore[arg-type]


def test_numbers_that_transformers_wants_as_floats_may_be_whole(small: NCOGuardLLM) -> None:
    plain = small.complete("Hello").text
    assert small.complete("Hello", repetition_penalty=1, temperature=0).text == plain
    small.complete("Hello", do_sample=True, temperature=1, top_p=1)
    with pytest.raises(UnsupportedError, match="temperature"):
        small.complete("Hello", do_sample=True, temperature=0)


def test_stop_strings_of_a_generation_config_are_cut_like_others(pair: tuple[Any, Any]) -> None:
    ask = "Hello, who are you?"
    llm = NCOGuardLLM(*pair, guard=Policy.from_presets("pii_paper"), max_new_tokens=12)
    whole = llm.complete(ask).text
    stop = whole[6:9]
    wanted = whole[: whole.index(stop)]
    config = GenerationConfig(stop_strings=[stop], max_new_tokens=12)
    assert llm.complete(ask, stop=stop).text == wanted
    for options in ({"generation_config": config}, {"generation_config": config, "stop": ["never written"]}):
        assert llm.complete(ask, **options).text == wanted
        assert "".join(chunk.delta or "" for chunk in llm.stream_complete(ask, **options)) == wanted
    own = llm._model.generation_config
    own.stop_strings = [stop]
    try:
        assert llm.complete(ask).text == wanted
    finally:
        own.stop_strings = None
