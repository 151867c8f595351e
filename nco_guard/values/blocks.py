"""The dictionaries that providers and frameworks put into answers: blocks of content, tool calls, log probabilities.

Only their keys are known here, which are the same in all of them, and no framework.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from nco_guard.values.roles import Role
from nco_guard.values.scalars import decoded

__all__ = ["JOINED", "is_block", "is_piecemeal", "kind_of_block", "role_of_key"]

#: Names under which a text is repeated token by token: no piece matches, and all of them together are the text.
PIECEMEAL = frozenset(
    {
        "avg_logprobs",
        "completion_probabilities",
        "decoder_input_details",
        "log_probs",
        "logits",
        "logprobs",
        "logprobs_content",
        "logprobs_result",
        "output_ids",
        "output_token_logprobs",
        "prefill",
        "prompt_logprobs",
        "prompt_token_ids",
        "input_token_logprobs",
        "token_ids",
        "token_logprobs",
        "token_probs",
        "token_scores",
        "top_log_probs",
        "top_logprobs",
        "top_tokens",
    }
)
#: Fields of blocks that a reader sees as one text if several blocks have them.
JOINED = frozenset(
    {
        "arguments",
        "args",
        "cited_text",
        "code",
        "content",
        "delta",
        "input",
        "output",
        "partial_json",
        "quote",
        "reasoning",
        "reasoning_content",
        "refusal",
        "summary",
        "summary_text",
        "text",
        "thinking",
        "transcript",
    }
)
_MESSAGES = frozenset(
    {"human", "ai", "system", "tool", "chat", "message", "user", "assistant", "constructor"}
)
_CALLS = ("tool_call", "tool_use", "function", "custom_tool")
# Of an entry of a list of tokens, and of such lists themselves.
_TOKEN = frozenset({"token", "decoded_token", "token_str", "tok_str"})
_TOKENS = frozenset(
    {
        "completion_tokens",
        "decoded_tokens",
        "generated_tokens",
        "input_tokens",
        "output_tokens",
        "prompt_tokens",
        "text_tokens",
        "token_strings",
        "token_strs",
        "token_texts",
        "tokens",
    }
)
_PARSED = frozenset({"arguments", "args", "input", "partial_json", "kwargs"})
# Where images, sound, video and files stand, in base64. Their addresses are text, unless they hold the data themselves.
_MEDIA = ("audio", "base64", "document", "file", "image", "media", "video")
_DATA = frozenset({"b64_json", "base64", "bytes", "data", "file_data", "image_data", "image_url", "url"})
_ENCODED = re.compile(r"(?:data:[\w.+/;=-]{0,100};base64,)?([A-Za-z0-9+/_-]{64,}={0,2})")
_SIGNATURES = (
    b"\x89PNG\r\n",
    b"\xff\xd8\xff",
    b"GIF8",
    b"RIFF",
    b"ID3",
    b"OggS",
    b"PK\x03\x04",
    b"\x1aE\xdf\xa3",
    b"BM",
)
# What a provider counts and measures itself.
_COUNTED = ("_tokens", "_count", "_duration", "_ms", "_seconds")
_COUNTS = frozenset({"created", "created_at", "index", "seed", "n", "latency", "completed_at"})


def is_block(value: Any) -> bool:
    """Whether a value is a block of content: a dictionary that says of what type it is, and no message."""
    return (
        isinstance(value, Mapping) and isinstance(value.get("type"), str) and value["type"] not in _MESSAGES
    )


def kind_of_block(block: Any) -> str:
    """What sort of text a block holds: "" for what is said, others for what is thought; sorts are not read together."""
    kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
    return next((part for part in ("reason", "think", "summary") if part in str(kind).lower()), "")


def is_piecemeal(name: Any, value: Any) -> bool:
    """Whether what stands under a name repeats a text token by token; spelled in any of the usual ways."""
    if not isinstance(name, str):
        return False
    plain = _plain(name)
    if _names_probabilities(plain):
        return True
    if not _is_row(value) or not value:
        return False
    # A list of tokens, by its name or by what is in it; a number of tokens is none.
    return plain in _TOKENS or all(
        _has_token(part) or (_is_row(part) and part and all(map(_has_token, part))) for part in value
    )


def _has_token(entry: Any) -> bool:
    return isinstance(entry, Mapping) and not _TOKEN.isdisjoint(entry)


def _plain(name: str) -> str:
    if not name.islower():
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return name.lstrip("_").replace("-", "_")


def _names_probabilities(plain: str) -> bool:
    return plain in PIECEMEAL or any(part in plain for part in ("logprob", "log_prob", "likelihood"))


def _are_probabilities(name: str, value: Any, in_block: bool) -> bool:
    """Whether what stands under a name is made of tokens and their numbers, as log probabilities are.

    Tokens without numbers are not (but in blocks, under such a name): all of them are read as one text. Nor are numbers
    without tokens.
    """
    plain = _plain(name)
    named = _names_probabilities(plain)
    strictly = "logprob" in plain or "log_prob" in plain
    left, seen = [value], {id(value)}
    while left:
        now = left.pop()
        parts = list(now.values()) if isinstance(now, Mapping) else list(now) if _is_row(now) else []
        if isinstance(now, Mapping) and _is_token(now, named, strictly, in_block):
            return True
        if strictly and _is_row(now) and _is_scored_row(parts):
            return True
        for part in parts:
            if isinstance(part, (Mapping, list, tuple)) and id(part) not in seen:
                seen.add(id(part))
                left.append(part)
    return False


def _is_row(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_token(entry: Mapping[Any, Any], named: bool, strictly: bool, in_block: bool) -> bool:
    """Whether an entry is a token with its number; without one in blocks, under a name of log probabilities."""
    keys = [_plain(key) for key in entry if isinstance(key, str)]
    token = any(key in _TOKEN or key == "bytes" for key in keys)
    number = any("prob" in key or "likelihood" in key for key in keys)
    several = any(key in ("tokens", "text_offset") for key in keys)
    # Or a choice of tokens, each with its number.
    choice = bool(entry) and all(_is_number(part) for part in entry.values())
    scored = number and ("text" in keys or several)
    return (token and (number or (named and in_block))) or (named and scored) or (strictly and choice)


def _is_scored_row(parts: list[Any]) -> bool:
    return any(_is_number(part) for part in parts) and any(isinstance(part, str) for part in parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def role_of_key(holder: Mapping[Any, Any], key: Any, role: Role) -> Role:
    """How the value under a key is read, where the dictionary itself is read as `role`."""
    if role is Role.METADATA:
        if is_piecemeal(key, holder[key]):
            return Role.DROP
        if _is_count(key, holder[key]):
            return Role.KEEP
    if _is_media(holder, key):
        return Role.MEDIA
    kind = holder.get("type")
    if isinstance(kind, str):
        inner = _role_in_block(kind, key, holder)
        if inner is not None:
            return inner
    elif isinstance(holder.get("name"), str) and "arguments" in holder and key in ("name", "arguments"):
        if key == "arguments":
            return Role.JSON
        if _are_arguments(holder["arguments"]):
            return Role.NAME
    value = holder[key]
    several = isinstance(value, (Mapping, list, tuple))
    if several and is_piecemeal(key, value) and _are_probabilities(key, value, isinstance(kind, str)):
        return Role.DROP
    return role if role is Role.METADATA else Role.VALUE


def _are_arguments(value: Any) -> bool:
    """Whether a value can be the arguments of a call: an object, or the beginning of one."""
    return isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip()[:1] in ("", "{"))


def _role_in_block(kind: str, key: Any, holder: Mapping[Any, Any]) -> Role | None:
    if not isinstance(key, str):
        return None
    if key == "type":
        return None
    if key == "id" or key.endswith(("_id", "Id")):
        return Role.IDENTIFIER
    if any(call in kind for call in _CALLS) and "result" not in kind and "output" not in kind:
        # "function" and "custom_tool" are also types of what is told about a tool.
        called = kind not in ("function", "custom_tool") or not _PARSED.isdisjoint(holder)
        if key == "name" and called and not kind.startswith("invalid"):
            return Role.NAME
        if key in _PARSED:
            return Role.JSON
    return None


def _is_media(holder: Mapping[Any, Any], key: Any) -> bool:
    """Whether an entry is an image or the like in base64: decoded, it begins as one and is no text."""
    if not (isinstance(key, str) and key in _DATA and isinstance(holder[key], str)):
        return False
    kind = holder.get("type")
    if not (
        any(part in kind for part in _MEDIA) if isinstance(kind, str) else key == "url" and len(holder) < 4
    ):
        return False
    encoded = _ENCODED.fullmatch(holder[key])
    if encoded is None:
        return False
    try:
        data = base64.b64decode(encoded[1] + "==", altchars=b"-_" if re.search("[-_]", encoded[1]) else None)
    except ValueError:
        return False
    return data.startswith(_SIGNATURES) and decoded(data) is None


def _is_count(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or not isinstance(value, (int, float)):
        return False
    return key in _COUNTS or key.endswith(_COUNTED)
