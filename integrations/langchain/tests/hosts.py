"""A hosted model and tools that are full of personal data."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from langchain_nco_guard.testing import ScriptedChatModel

RECORD = {"name": "Maria Lopez", "email": "maria@example.com", "phone": "312-555-0155", "city": "Oslo"}
SECRETS = ("maria@example.com", "john.doe@example.com", "jane@example.com", "312-555-0155")
ASK = {"messages": [("human", "Hello")]}


@tool
def lookup_customer(name: str) -> str:
    """Look up a customer."""
    return json.dumps(RECORD)


@tool
def lookup_order(order_id: str) -> str:
    """Look up an order."""
    return json.dumps({"order_id": order_id, "status": "shipped", "email": "maria@example.com"})


def script() -> list[AIMessage]:
    call = {"name": "lookup_customer", "args": {"name": "jane@example.com"}, "id": "1", "type": "tool_call"}
    return [
        AIMessage("", tool_calls=[call]),
        AIMessage("Write to john.doe@example.com, or call 312-555-0155 to reach her. Bye."),
    ]


CLEAN = "Write to [redacted], or call [redacted] to [redacted] her. Bye."


def hosted(**options: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=script(), **options)
