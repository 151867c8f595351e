"""Entries of families: what is refused and how it is said, and which of them a tokenizer belongs to."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.utils.chat_parsing import parse_response

from nco_guard import demo
from nco_guard.errors import ArgumentError, ArgumentValueError
from nco_guard.replies import ReplyFormat, as_reply_format, format_for, shipped_formats
from nco_guard.replies.formats import chat_template_of
from tests.replies.families import PARSED

SHIPPED = shipped_formats()
HERMES = SHIPPED["hermes"]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_entry_is_whole(name: str) -> None:
    entry = SHIPPED[name]
    assert entry.name == name
    assert entry.source
    assert entry.examples
    assert entry.known_by or entry.model_types
    assert as_reply_format(name) is entry
    assert as_reply_format(entry.model_dump(mode="json")) == entry  # transformers takes its template
    assert all(mark in entry.marks() for mark in entry.special)
    taken = [other.name for other in SHIPPED.values() if set(other.model_types) & set(entry.model_types)]
    assert taken in ([], [name])


@pytest.mark.parametrize("name", SHIPPED)
def test_examples_are_read_by_transformers_itself_as_the_entry_says(name: str) -> None:
    entry = SHIPPED[name]
    if entry not in PARSED:
        pytest.skip("its calls are not read by transformers")
    for example in entry.examples:
        if example.invalid:
            continue
        message = parse_response(
            example.text, entry.response_template, prefix=example.prefix, tools=[*example.tools]
        )
        calls = [call["function"] for one in message.get("tool_calls", []) for call in as_list(one)]
        assert [(call["name"], call.get("arguments", {})) for call in calls] == [
            (call.name, call.arguments) for call in example.calls
        ]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def tokenizer(template: Any, **more: Any) -> Any:
    return SimpleNamespace(chat_template=template, **more)


def test_a_tokenizer_s_family_is_found_by_its_template_then_by_the_model_s_type() -> None:
    assert format_for(demo.load()[1]) is SHIPPED["hermes-line"]
    assert format_for(tokenizer("{{ x }}<tool_call>")) is HERMES
    assert format_for(tokenizer("{{ x }}")) is None
    assert format_for(tokenizer("{{ x }}"), "qwen2") is HERMES
    assert format_for(tokenizer(None)) is None
    assert format_for(tokenizer("[TOOL_CALLS]"), "qwen2") is SHIPPED["mistral"]
    assert not HERMES.fits("<tool_call><function=")
    named = {"default": "{{ x }}", "tool_use": "<tool_call>"}
    assert format_for(tokenizer(named)) is HERMES
    listed = [{"name": name, "template": template} for name, template in named.items()]
    assert chat_template_of(tokenizer(listed)) == "<tool_call>"
    assert chat_template_of(tokenizer({"default": "d", "rag": "r"})) == "d"


def test_a_response_template_of_the_tokenizer_is_what_is_read_by() -> None:
    own = copy.deepcopy(HERMES.response_template)
    own["fields"]["tool_calls"]["open"] = own["fields"]["tool_calls"].pop("open_pattern").removeprefix("\\s*")
    known = format_for(tokenizer("<tool_call>", response_template=own))
    assert known == HERMES.model_copy(update={"response_template": own})
    alone = format_for(tokenizer("{{ x }}", response_template=own))
    assert alone is not None
    assert (alone.call, alone.reads_calls) == (None, True)
    del own["fields"]["tool_calls"]
    without = format_for(tokenizer("<tool_call>", response_template=own))
    assert without is not None
    assert (without.call, without.reads_calls, without.reasoning) == (None, False, HERMES.reasoning)
    own["fields"]["content"]["content"] = "prose"
    with pytest.raises(
        ArgumentValueError, match="response_template: Field 'content': unknown content parser"
    ):
        format_for(tokenizer("<tool_call>", response_template=own))


ENTRY = HERMES.model_dump(mode="json")
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "No Name"}, "name: "),
    ({"arguments": "yaml"}, "arguments: "),
    ({"arguments": "xml"}, "call.argument: it is there for arguments"),
    ({"call": {"open": "x"}}, "call.after_name: "),
    ({"call": {**ENTRY["call"], "clsoe": "x"}}, "call.clsoe: "),
    ({"reasoning": {"open": "", "close": "x"}}, "reasoning.open: "),
    ({"response_template": {}}, "response_template.fields: "),
    ({"response_template": {"fields": {"content": {}}}}, "call: response_template.fields has no tool_calls"),
    ({"response_template": {"fields": {"content": {}}}, "call": None}, "must define 'start_anchor'"),
    ({"known_by": ["a", ""]}, "known_by, known_not_by: no empty strings"),
    ({"known_by": "a"}, "known_by: "),
    ({"examples": [{"text": "x"}]}, "examples.0.source: "),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_an_entry_that_is_none_is_refused_with_its_field(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({**ENTRY, **change}), encoding="utf-8")
    for source in ({**ENTRY, **change}, file, str(file)):
        with pytest.raises(ArgumentValueError, match="reply_format") as refused:
            as_reply_format(source)
        assert said in str(refused.value)


def test_formats_come_by_name_path_or_dict(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({**ENTRY, "name": "own"}), encoding="utf-8")
    assert as_reply_format(file) == HERMES.model_copy(update={"name": "own"})
    assert isinstance(as_reply_format(ENTRY), ReplyFormat)
    with pytest.raises(ArgumentValueError, match=r"'hermse' is not known; known are .*hermes"):
        as_reply_format("hermse")
    with pytest.raises(ArgumentValueError, match=r"nowhere\.json cannot be read"):
        as_reply_format("nowhere.json")
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ArgumentValueError, match=r"own\.json cannot be read as JSON"):
        as_reply_format(file)
    with pytest.raises(ArgumentError, match="not int"):
        as_reply_format(3)  # type: ignore[arg-type]
