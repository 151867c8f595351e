"""Arguments in tags within tags: what is written is read, and what is not in order is no call."""

from __future__ import annotations

from typing import Any

import pytest

from nco_guard.replies import shipped_formats
from nco_guard.replies.nested_tags import arguments_in_tags, value_in_tags
from tests.replies.families import Read, read

SCHEMA: dict[str, Any] = {
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": ["number", "null"]},
        "on": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "points": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "deep": {
            "anyOf": [{"type": "null"}, {"type": "object", "properties": {"item": {"type": "integer"}}}]
        },
    }
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("\n", {}),
        ("@<n>3@</n>\n@<x>2.5@</x>@<on>true@</on>", {"n": 3, "x": 2.5, "on": True}),
        ("@<n>three@</n>@<x>NaN@</x>@<on>1@</on>", {"n": "three", "x": "NaN", "on": True}),
        ("@<n>true@</n>", {"n": "true"}),
        ("@<other>3@</other>", {"other": "3"}),
        ("@<other> a\n<b> @</other>", {"other": " a\n<b> "}),
        ("@<tags>@<item>1@</item>@<item>@</item>@</tags>", {"tags": ["1", ""]}),
        ("@<tags>@</tags>@<deep>@</deep>", {"tags": [], "deep": {}}),
        ("@<points>@<item>@<n>1@</n>@</item>@<item>@</item>@</points>", {"points": [{"n": 1}, {}]}),
        ("@<deep>@<item>1@</item>@</deep>", {"deep": {"item": 1}}),
        ("@<other>@<a>@<a>x@</a>@</a>@</other>", {"other": {"a": {"a": "x"}}}),
        ("@<other>@<item>x@</item>@<item>y@</item>@</other>", {"other": ["x", "y"]}),
    ],
)
def test_values_are_read_by_their_schema(text: str, wanted: dict[str, Any]) -> None:
    assert arguments_in_tags(text, "@", SCHEMA) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "@<n>1@</n>a",
        "@<n>1",
        "@<n>1@</x>",
        "@</n>",
        "@<n>1@</n>@<n>2@</n>",
        "@<other>@<a>1@</a>@<a>2@</a>@</other>",
        "@<other>a@<a>1@</a>@</other>",
        "@<other>@<item>1@</item>@<a>2@</a>@<item>3@</item>@</other>",
        "@<a>" * 150 + "@</a>" * 150,
        "@<a>" * 9000,
    ],
)
def test_what_is_not_in_order_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"tag|text|twice|deep"):
        arguments_in_tags(text, "@", SCHEMA)
    mark = "]<]minimax[>["
    whole = f'{mark}<invoke name="f">{text.replace("@", mark)}{mark}</invoke>'
    assert read(shipped_formats()["minimax-m3"], ["So.", whole]) == Read("So.", invalid=(whole,))


def test_none_is_left_out_of_objects() -> None:
    written = value_in_tags({"a": None, "b": [None, "x", 2, True], "c": {}}, "@")
    assert written == "@<b>@<item>@</item>@<item>x@</item>@<item>2@</item>@<item>true@</item>@</b>@<c>@</c>"
