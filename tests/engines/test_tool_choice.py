"""A choice of tools, in the words of every host, comes to one of four; anything else is refused by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nco_guard.engines.calls import chosen_tool
from nco_guard.errors import UnsupportedError

NAMES = ("find", "send")
SAID: list[tuple[Any, str | None]] = [
    (None, None),
    (False, None),
    ("auto", None),
    ({"type": "auto"}, None),
    ("none", "none"),
    ({"type": "none"}, "none"),
    ("any", "any"),
    ("required", "any"),
    (True, "any"),
    ({"type": "any"}, "any"),
    ({"type": "required"}, "any"),
    ("send", "send"),
    ({"type": "function", "function": {"name": "send"}}, "send"),
    ({"function": {"name": "send"}}, "send"),
    ({"type": "function", "name": "send"}, "send"),
    ({"type": "tool", "name": "send"}, "send"),
    ({"name": "send"}, "send"),
]


@pytest.mark.parametrize(("choice", "meant"), SAID, ids=str)
def test_every_word_for_a_choice(choice: Any, meant: str | None) -> None:
    assert chosen_tool(choice, NAMES) == meant


def test_some_call_of_one_tool_is_a_call_of_it() -> None:
    for choice in ("any", "required", True, {"type": "any"}):
        assert chosen_tool(choice, ["find"]) == "find"


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        ("fly", "tool_choice 'fly': no such tool; one of find, send, 'any', 'auto', 'none'"),
        ({"type": "tool", "name": "fly"}, "tool_choice 'fly': no such tool"),
        # Of tools that are named, none is a word.
        ({"type": "tool", "name": "any"}, "tool_choice 'any': no such tool"),
        ("Auto", "tool_choice 'Auto'"),
        ("", "tool_choice ''"),
        (0, "tool_choice 0"),
        (1, "tool_choice 1"),
        (["find"], r"tool_choice \['find'\]"),
        ({}, "tool_choice: no tool is named in it"),
        ({"type": "function"}, "tool_choice: no tool is named in it"),
        ({"type": "function", "function": "find"}, "tool_choice: no tool is named in it"),
        ({"type": "tool", "name": 3}, "tool_choice: no tool is named in it"),
        ({"type": "custom", "name": "find"}, r"tool_choice\['type'\] 'custom'"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": []},
            r"tool_choice\['type'\] 'allowed_tools': offer only those tools",
        ),
        ({"type": "any", "disable_parallel_tool_use": True}, ".*: say parallel_tool_calls=False"),
        ({"type": "tool", "name": "find", "arguments": {}}, r"tool_choice\['arguments'\]: nothing is done"),
        ({"type": "auto", "name": "find"}, r"tool_choice\['name'\]: nothing is done"),
    ],
    ids=str,
)
def test_what_is_no_choice_is_refused_by_name(choice: Any, match: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^{match}"):
        chosen_tool(choice, NAMES)


@pytest.mark.parametrize(
    "choice", ["any", "required", True, {"type": "any"}, "find", {"name": "find"}], ids=str
)
def test_without_tools_no_call_can_be_required(choice: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"^tool_choice"):
        chosen_tool(choice, [])


CHOICES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.dictionaries(
        st.sampled_from(["type", "name", "function"]) | st.text(), inner, max_size=3
    ),
)


@given(CHOICES)
def test_whatever_is_given_is_a_choice_or_a_typed_error(choice: Any) -> None:
    try:
        said = chosen_tool(choice, NAMES)
    except UnsupportedError as refused:
        said = str(refused)
    assert said in (None, "none", "any", *NAMES) or said.startswith("tool_choice")
