"""Responses that another LLM wrote: verified, and redacted or refused, whole or piece by piece.

Cost: that of `nco_guard.verify` on finished text; some microseconds per rule and character where it streams.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.bridge.pydantic import BaseModel

from nco_guard import Guard, Report
from nco_guard.audit import RunRecorder
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.redaction import Replacement, redact, redact_value, violated_rules

__all__ = ["ChatFilter", "CompletionFilter", "ResponseCleaner"]

_OUTPUT = "model output"
_ARGUMENTS = "tool-call arguments"
# Pieces of the text: no single one matches, and all of them together are what was to be hidden.
_PIECEMEAL = ("logprobs", "token_ids", "thinking_delta")
_MEDIA = (ImageBlock, AudioBlock, VideoBlock, DocumentBlock)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


class ResponseCleaner:
    """Cleans the responses to one call. Every text that was looked at is recorded where the guard has an audit sink.

    Guarantee: no match of a hard rule in what is returned: not in a text, not in a name, string, number or key of a
    tool call, its escapes read, and not in a string of anything else that is kept. Left out are the provider's own
    object (of `raw` the token counts stay), log probabilities, and objects that are no data.
    """

    def __init__(
        self,
        guard: Guard,
        action: Literal["raise", "redact"],
        replacement: Replacement,
        parent_id: str | None = None,
        where: str = _OUTPUT,
    ) -> None:
        self.where = where
        self.guard = guard
        self.action = action
        self.replacement = replacement
        self._recorder = None if guard.audit is None else RunRecorder(guard.audit, parent_id=parent_id)

    # -- responses ---------------------------------------------------------------------------------------------

    def completion(self, response: CompletionResponse) -> CompletionResponse:
        """A finished completion."""
        return CompletionResponse(
            text=self.text(response.text),
            raw=self.raw(response.raw),
            additional_kwargs=self.extra(response.additional_kwargs),
        )

    def chat(self, response: ChatResponse) -> ChatResponse:
        """A finished answer."""
        message = response.message
        extra = self.extra(message.additional_kwargs)
        return ChatResponse(
            message=ChatMessage(
                role=message.role, blocks=self.blocks(message.blocks), additional_kwargs=extra
            ),
            raw=self.raw(response.raw),
            additional_kwargs=self.extra(response.additional_kwargs),
        )

    def blocks(self, blocks: Sequence[ContentBlock]) -> list[ContentBlock]:
        """The blocks of a message or a result. Several texts are read as one, as LlamaIndex shows them."""
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        return self.with_text(blocks, self.text("\n".join(texts)) if texts else None)

    def with_text(self, blocks: Sequence[ContentBlock], text: str | None) -> list[ContentBlock]:
        """The same with `text`, which is clean, in the place of their own."""
        kept: list[ContentBlock] = []
        for block in blocks:
            if isinstance(block, TextBlock):
                if text is not None:
                    kept.append(TextBlock(text=text))
                text = None
            else:
                kept.append(self._block(block))
        return [TextBlock(text=text), *kept] if text else kept

    def _block(self, block: Any) -> Any:
        if isinstance(block, _MEDIA):
            raise UnsupportedError(f"a {type(block).__name__} in an answer cannot be verified")
        if not isinstance(block, ToolCallBlock):
            return self.strings(block)
        if broken := violated_rules(self.guard.compiled, block.tool_name):
            self._record_rules(broken, len(block.tool_name))
            raise ViolationError(broken, "name of a tool")  # without it there is nothing to call
        arguments = block.tool_kwargs
        clean = self.json_text(arguments) if isinstance(arguments, str) else self.arguments(arguments)
        return block.model_copy(update={"tool_kwargs": clean})

    def raw(self, raw: Any) -> dict[str, Any]:
        """In the place of the provider's object, which repeats the text: the policy and the token counts."""
        usage = raw.get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)
        if isinstance(usage, BaseModel):
            usage = usage.model_dump()
        counts = usage.items() if isinstance(usage, Mapping) else ()
        numbers = {str(name): count for name, count in counts if type(count) is int}
        digest = {"policy_digest": self.guard.policy.digest}
        return {**digest, "usage": numbers} if numbers else digest

    def extra(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What else a provider says: its strings cleaned, its numbers kept, objects that are no data left out."""
        kept = {name: part for name, part in values.items() if name not in _PIECEMEAL and _is_data(part)}
        cleaned: dict[str, Any] = self.strings(kept)
        return cleaned

    # -- values ------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """A text. Errors: `ViolationError`, `RedactionError`."""
        if self.action == "raise":
            report = self.guard.verify(text)
            self.record(report)
            if not report.ok:
                raise ViolationError(self._ids(found.rule_id for found in report.violations), self.where)
            return text
        done = redact(self.guard.compiled, text, replacement=self.replacement)
        self.record(done.report)
        return done.text

    def arguments(self, value: Any, where: str = _ARGUMENTS) -> Any:
        """A JSON value: strings, keys and numbers at any depth, and the whole as JSON text."""
        broken = violated_rules(self.guard.compiled, value)
        if not broken:
            return value
        self._record_rules(broken, len(json.dumps(value, ensure_ascii=False)))
        if self.action == "raise":
            raise ViolationError(broken, where)
        return redact_value(self.guard.compiled, value, replacement=self.replacement)[0]

    def json_text(self, text: str) -> str:
        r"""A text that may be JSON, or break off in the middle of it: `\u0040` in it is an @ to whoever reads it."""
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            read = None
        if isinstance(read, dict | list):
            clean = self.arguments(read)
            if clean is not read:
                text = json.dumps(clean, ensure_ascii=False)
        elif "\\" in text:
            meant = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)
            if broken := violated_rules(self.guard.compiled, meant):
                self._record_rules(broken, len(text))
                if self.action == "raise":
                    raise ViolationError(broken, _ARGUMENTS)
                # Where in the escaped text the match lies is not known, so all of it goes.
                return self.replacement if isinstance(self.replacement, str) else self.replacement(broken[0])
        if self.guard.verify(text).ok:
            return text
        return self.text(text)

    def strings(self, value: Any) -> Any:
        """Every string at any depth of data, keys included; numbers stay."""
        if isinstance(value, str):
            return self.json_text(value)
        if isinstance(value, BaseModel):
            return value.model_copy(update={name: self.strings(part) for name, part in dict(value).items()})
        if isinstance(value, Mapping):
            return {self.strings(key): self.strings(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.strings(part) for part in value]
        return value

    # -- records -----------------------------------------------------------------------------------------------

    def record(self, report: Report) -> None:
        """Write down what the verifier found in one text."""
        if self._recorder is not None:
            self._recorder.verification(
                ok=report.ok,
                length=report.length,
                findings=[(found.rule_id, found.start, found.end) for found in report.findings],
                policy_digest=report.policy_digest,
            )

    def _record_rules(self, rules: Sequence[str], length: int) -> None:
        if self._recorder is not None:
            # Where in the value is not said: a rule's span is all of it.
            self._recorder.verification(
                ok=False,
                length=length,
                findings=[(rule, 0, length) for rule in rules],
                policy_digest=self.guard.policy.digest,
            )

    def _ids(self, found: Iterable[str]) -> tuple[str, ...]:
        known = set(found)
        return tuple(rule.id for rule in self.guard.policy.rules if rule.id in known)


class _TextFilter:
    """The text of a stream: shown as soon as no match can begin in it any more."""

    def __init__(self, cleaner: ResponseCleaner) -> None:
        self._cleaner = cleaner
        self._verifier = cleaner.guard.stream_verifier(
            action=cleaner.action, replacement=cleaner.replacement, where=_OUTPUT
        )
        self._read = ""
        self.shown = ""

    def feed(self, delta: str | None, text: str) -> str:
        if delta is None:  # some LLMs only show the text so far
            if not text.startswith(self._read):
                raise UnsupportedError("a stream that takes back what it has shown cannot be verified")
            delta = text[len(self._read) :]
        self._read += delta
        return self._grown(self._verifier.feed(delta)) if delta else ""

    def finish(self) -> str:
        piece = self._grown(self._verifier.finish())
        self._cleaner.record(self._verifier.report)
        return piece

    def _grown(self, piece: str) -> str:
        self.shown += piece
        return piece


class CompletionFilter:
    """Chunks of one completion in, chunks that may be shown out; `finish` gives the last ones."""

    def __init__(self, cleaner: ResponseCleaner) -> None:
        self._cleaner = cleaner
        self._text = _TextFilter(cleaner)
        self._last: CompletionResponse | None = None

    def feed(self, chunk: CompletionResponse) -> list[CompletionResponse]:
        """Read one chunk."""
        self._last = chunk
        piece = self._text.feed(chunk.delta, chunk.text)
        return [self._chunk(piece)] if piece else []

    def finish(self) -> list[CompletionResponse]:
        """The stream is over: the rest, with what the last chunk says about the whole."""
        if self._last is None:
            return []
        last = self._chunk(self._text.finish())
        last.raw = self._cleaner.raw(self._last.raw)
        last.additional_kwargs = self._cleaner.extra(self._last.additional_kwargs)
        return [last]

    def _chunk(self, piece: str) -> CompletionResponse:
        return CompletionResponse(text=self._text.shown, delta=piece, raw=self._cleaner.raw(None))


class ChatFilter:
    """The same for an answer. Tool calls and all else but text are shown when the answer is complete."""

    def __init__(self, cleaner: ResponseCleaner) -> None:
        self._cleaner = cleaner
        self._text = _TextFilter(cleaner)
        self._last: ChatResponse | None = None

    def feed(self, chunk: ChatResponse) -> list[ChatResponse]:
        """Read one chunk."""
        self._last = chunk
        piece = self._text.feed(chunk.delta, chunk.message.content or "")
        if not piece:
            return []
        message = ChatMessage(role=chunk.message.role, blocks=[TextBlock(text=self._text.shown)])
        return [ChatResponse(message=message, delta=piece, raw=self._cleaner.raw(None))]

    def finish(self) -> list[ChatResponse]:
        """The answer is complete: the rest of its text, and all that was kept."""
        if self._last is None:
            return []
        piece = self._text.finish()
        said = self._last.message
        message = ChatMessage(
            role=said.role,
            blocks=self._cleaner.with_text(said.blocks, self._text.shown),
            additional_kwargs=self._cleaner.extra(said.additional_kwargs),
        )
        extra = self._cleaner.extra(self._last.additional_kwargs)
        raw = self._cleaner.raw(self._last.raw)
        return [ChatResponse(message=message, delta=piece, raw=raw, additional_kwargs=extra)]


def _is_data(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_data(part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    return value is None or isinstance(value, str | bool | int | float | bytes | BaseModel)
