"""How models write replies, and how they are read: text, reasoning and calls of tools.

One declarative entry a family says how the three are told apart and how a call begins (`formats`). Replies are read by
transformers' own parser (`reader`), and what is cut out of them is guarded as a text of its own.
"""

from nco_guard.replies.formats import ReplyFormat, shipped_formats
from nco_guard.replies.found import as_reply_format, format_for
from nco_guard.replies.reader import Event, InvalidCall, Reasoning, ReplyReader, Text, ToolCall

__all__ = [
    "Event",
    "InvalidCall",
    "Reasoning",
    "ReplyFormat",
    "ReplyReader",
    "Text",
    "ToolCall",
    "as_reply_format",
    "format_for",
    "shipped_formats",
]
