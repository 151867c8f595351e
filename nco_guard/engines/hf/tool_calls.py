"""Calls of tools by a model: whether it can be offered them, and how they are put to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nco_guard.engines.hf.inputs import render_chat
from nco_guard.errors import UnsupportedError
from nco_guard.replies import ReplyFormat, shipped_formats
from nco_guard.replies.offering import calls_in_words, has_calls, messages_in_words
from nco_guard.replies.parser import calls_in

__all__ = ["chat_prompt", "tools_refusal"]

_NAME, _VALUE = "probe_tool", "probed"
_PROBE = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "A probe.",
        "parameters": {
            "type": "object",
            "properties": {"key": {"type": "string", "description": "A key."}},
            "required": ["key"],
        },
    },
}
_ASKED = {"role": "user", "content": "probe"}
# Some templates want an id of nine letters and digits.
_CALL: dict[str, Any] = {"name": _NAME, "arguments": {"key": _VALUE}}
_CALLING = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "id": "probe0123", "function": _CALL}],
}
_ANSWERED = {"role": "tool", "name": _NAME, "content": "probe", "tool_call_id": "probe0123"}


def tools_refusal(form: ReplyFormat | None, tokenizer: Any, *, given: bool = False) -> str | None:
    """Why a model that writes in this format, with this tokenizer, cannot be offered tools; None if it can.

    What its chat template writes for a call has to be read as that call; a format that was `given` is taken at its
    word. Where the template shows no tools, or not the calls that were made, they are put in words (`chat_prompt`), for
    which the format has to say how calls are written. Cost: the template is rendered three times.
    """
    if form is None:
        return (
            f"it is not known how this model writes calls of tools; known are {', '.join(shipped_formats())}; pass one "
            f"of them as reply_format=, or the path of an entry of your own, or a dict (nco_guard.replies.formats says "
            f"what stands in one)"
        )
    if not form.reads_calls:
        return f"the format {form.name} has no calls of tools; pass another as reply_format="
    shows, written = _shown(tokenizer)
    if not shows or written is None:
        if form.call is None:
            return f"the chat template shows no tools or calls, and the format {form.name} has no words for a call"
        try:
            chat_prompt(form, tokenizer, [_ASKED, _CALLING, _ANSWERED], [_PROBE])
        except UnsupportedError:
            return "the chat template does not take a conversation with tools"
        return None
    if given or (_CALL["name"], _CALL["arguments"]) in calls_in(form, written, [_PROBE]):
        return None
    return (
        f"the chat template does not show calls that were made as {form.title} does, the format that it is known by; "
        f"if the model writes them so all the same, pass reply_format={form.name!r}, else the right one"
    )


def chat_prompt(
    form: ReplyFormat | None,
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The prompt of a conversation, with the tools that are on offer and the calls in it.

    They go through the chat template. Where it shows no tools, or refuses them, they are put in words, calls in the
    model's own format (`nco_guard.replies.offering`), in the system's message or, where a template has none, in the
    user's first; where it leaves out the calls that were made, these alone are. Cost: with tools, or calls in the
    conversation, the template is rendered three times more. Errors: `UnsupportedError` if the template refuses.
    """
    if form is None or form.call is None or not (tools or has_calls(messages)):
        return render_chat(tokenizer, messages, tools)
    shows, written = _shown(tokenizer)
    if not shows:
        return _in_words(form, tokenizer, messages, tools)
    return render_chat(tokenizer, calls_in_words(form, messages) if written is None else messages, tools)


def _shown(tokenizer: Any) -> tuple[bool, str | None]:
    """Whether the template shows tools, and what it writes for a call and its result; None if it leaves calls out."""
    try:
        offered = render_chat(tokenizer, [_ASKED], [_PROBE])
        before = render_chat(tokenizer, [_ASKED], [_PROBE], answered=False)
        called = render_chat(tokenizer, [_ASKED, _CALLING, _ANSWERED], [_PROBE])
    except UnsupportedError:
        return False, None
    written = called[len(before) :] if called.startswith(before) else called
    return _NAME in offered, written if _VALUE in written else None


def _in_words(
    form: ReplyFormat,
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
) -> str:
    try:
        return render_chat(tokenizer, messages_in_words(form, messages, tools))
    except UnsupportedError:
        return render_chat(tokenizer, messages_in_words(form, messages, tools, system=False))
