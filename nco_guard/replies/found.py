"""Which format replies are read by: what is given, looked at whole, or what a tokenizer is known by."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nco_guard.errors import ArgumentError, ArgumentValueError
from nco_guard.replies.entry_faults import template_fault, written_fault
from nco_guard.replies.formats import ReplyFormat, chat_template_of, made_of, read_entry, shipped_formats

__all__ = ["as_reply_format", "format_for"]


def as_reply_format(source: ReplyFormat | str | os.PathLike[str] | Mapping[str, Any]) -> ReplyFormat:
    """A format from an entry, a shipped one's name, the path of a JSON file, or a dict of the entry's fields.

    Errors: `ArgumentError` for anything else; `ArgumentValueError` for an unknown name, and for an entry that is none,
    with the field.

    Examples:
        >>> as_reply_format("hermes").title
        'Hermes, Qwen 2.5 and Qwen 3'
    """
    if isinstance(source, ReplyFormat):
        return _checked(source)
    if isinstance(source, Mapping):
        return _checked(made_of(dict(source), "reply_format"))
    if isinstance(source, str) and (found := shipped_formats().get(source)):
        return found
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if isinstance(source, str) and path.suffix != ".json":
            known = ", ".join(shipped_formats())
            raise ArgumentValueError(
                f"reply_format: {source!r} is not known; known are {known}; give one of them, the path of a .json "
                f"file, or a dict"
            )
        return _checked(made_of(read_entry(path), f"reply_format {path.name}"))
    raise ArgumentError(
        f"reply_format: a ReplyFormat, the name of a shipped one, a path or a dict, not {type(source).__name__}"
    )


def format_for(tokenizer: Any, model_type: str | None = None) -> ReplyFormat | None:
    """The format in which a model with this tokenizer writes; None if it is not known.

    A `response_template` of the tokenizer's own is what replies are read by, with the marks for writing of the entry
    that the chat template is known by. Else it is that entry, else the one that the model's type is known by.

    Cost: a search of the chat template for each entry. Errors: `ArgumentValueError` for a `response_template` that
    transformers cannot read.

    Examples:
        >>> format_for(tokenizer).name
        'hermes-line'
    """
    template = chat_template_of(tokenizer)
    shipped = shipped_formats().values()
    fitting = [entry for entry in shipped if template is not None and entry.fits(template)]
    entry = max(fitting, key=lambda one: sum(map(len, one.known_by)), default=None)
    if (own := getattr(tokenizer, "response_template", None)) is not None:
        known = {} if entry is None else entry.model_dump()
        fields = own.get("fields") if isinstance(own, dict) else None
        if not isinstance(fields, dict) or "tool_calls" not in fields:
            known["call"] = None
        given = {"name": "tokenizer", "title": "the tokenizer's own", **known, "response_template": own}
        return _checked(made_of(given, "tokenizer.response_template"), writes=False)
    return entry or next((one for one in shipped if model_type in one.model_types), None)


def _checked(made: ReplyFormat, *, writes: bool = True) -> ReplyFormat:
    """An entry that transformers has accepted, too, and that reads what it `writes`; looked at once."""
    if not made._accepted:
        if (fault := template_fault(made) or (written_fault(made) if writes else None)) is not None:
            raise ArgumentValueError(f"reply_format {made.name}: {fault}")
        made._accepted = True
    return made
