"""Texts, messages, documents and JSON values that somebody else wrote: verified, and redacted or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolCall, ToolMessage
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langgraph.types import Command
from pydantic import BaseModel

from langchain_nco_guard._guards import seeing_through_json
from nco_guard import Guard, Report
from nco_guard.audit import RunRecorder
from nco_guard.errors import ViolationError
from nco_guard.redaction import REDACTED, Replacement, redact, redact_value, violated_rules

__all__ = ["Cleaner", "without_logprobs"]

M = TypeVar("M", bound=BaseMessage)
# Token by token, where no single piece matches and all of them together are the text.
_PIECEMEAL = ("logprobs", "log_probs", "token_ids")
# Content that is no text.
_MEDIA = ("image", "image_url", "audio", "input_audio", "video", "file", "document", "media")
_ARGUMENTS = ("input", "args", "arguments")


def without_logprobs(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without the entries that repeat the text in pieces."""
    return {name: value for name, value in metadata.items() if name not in _PIECEMEAL}


class Cleaner:
    """Redacts, or raises `ViolationError`; each text that was looked at is recorded in the guard's audit sink.

    where: what is looked at, for errors.
    """

    def __init__(
        self,
        guard: Guard,
        action: Literal["redact", "raise"],
        *,
        replacement: Replacement = REDACTED,
        where: str = "text",
        record: bool = True,
    ) -> None:
        self.guard = guard
        self.action = action
        self.replacement = replacement
        self.where = where
        self._recorder = RunRecorder(guard.audit) if record and guard.audit is not None else None

    def at(self, where: str) -> Cleaner:
        """The same for another place."""
        return Cleaner(
            self.guard,
            self.action,
            replacement=self.replacement,
            where=where,
            record=self._recorder is not None,
        )

    def record(self, report: Report) -> None:
        """Write down what the verifier found in one text."""
        if self._recorder is not None:
            self._recorder.verification(
                ok=report.ok,
                length=report.length,
                findings=[(found.rule_id, found.start, found.end) for found in report.findings],
                policy_digest=report.policy_digest,
            )

    def _record_value(self, value: Any, rules: tuple[str, ...]) -> None:
        # Clean values are not worth an event each.
        if self._recorder is not None and rules:
            length = len(json.dumps(value, ensure_ascii=False, default=str))
            # Where in the value is not said: a rule's span is all of it.
            self._recorder.verification(
                ok=False,
                length=length,
                findings=[(rule, 0, length) for rule in rules],
                policy_digest=self.guard.policy.digest,
            )

    def text(self, text: str) -> str:
        """A text."""
        done = redact(self.guard.compiled, text, replacement=self.replacement)
        if text:
            self.record(done.report)
        if not done.report.ok and self.action == "raise":
            raise ViolationError(self._ids({found.rule_id for found in done.report.violations}), self.where)
        return done.text

    def json_text(self, text: str) -> str:
        """Text that may be JSON, or begin like it: a match that is written with escapes counts too."""
        cleaned = self.text(text)
        if "\\" not in cleaned:
            return cleaned
        done = redact(seeing_through_json(self.guard).compiled, cleaned, replacement=self._for_twin)
        if not done.report.ok and self.action == "raise":
            raise ViolationError(tuple(dict.fromkeys(f.rule_id for f in done.report.violations)), self.where)
        return done.text

    def _for_twin(self, rule_id: str) -> str:
        return self.replacement if isinstance(self.replacement, str) else self.replacement(rule_id)

    def _ids(self, found: set[str]) -> tuple[str, ...]:
        return tuple(rule.id for rule in self.guard.policy.rules if rule.id in found)

    def json_value(self, value: Any) -> Any:
        """A JSON value: strings, keys and numbers at any depth."""
        rules = violated_rules(self.guard.compiled, value)
        self._record_value(value, rules)
        if not rules:
            return value
        if self.action == "raise":
            raise ViolationError(rules, self.where)
        return redact_value(self.guard.compiled, value, replacement=self.replacement)[0]

    def value(self, value: Any) -> Any:
        """Whatever a step of a chain, or a tool, may hand on. Errors: `TypeError` for what cannot be looked into."""
        if value is None or isinstance(value, (str, bool, int, float)):
            return self.text(value) if isinstance(value, str) else self.json_value(value)
        if isinstance(value, BaseMessage):
            return self.message(value)
        if isinstance(value, Document):
            return value.model_copy(
                update={"page_content": self.text(value.page_content), "metadata": self.value(value.metadata)}
            )
        if isinstance(value, StringPromptValue):
            return StringPromptValue(text=self.text(value.text))
        if isinstance(value, ChatPromptValue):
            return ChatPromptValue(messages=[self.message(message) for message in value.messages])
        if isinstance(value, Mapping):
            # Strings side by side may be read together, so plain values are looked at as a whole.
            if _is_json(value):
                return self.json_value(dict(value))
            return {self.value(key): self.value(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            if _is_json(value):
                return self.json_value(list(value))
            return [self.value(part) for part in value]
        if isinstance(value, BaseModel):
            self._refuse_value(value.model_dump(mode="json"))
            return value
        raise TypeError(
            f"{self.where}: a {type(value).__name__} cannot be looked into; hand on text, messages, documents or JSON"
        )

    def _refuse_value(self, value: Any) -> None:
        """For objects whose parts cannot be exchanged."""
        rules = violated_rules(self.guard.compiled, value)
        self._record_value(value, rules)
        if rules:
            raise ViolationError(rules, self.where)

    def tool_result(self, result: Any, stringify: Callable[[Any], str] = str) -> Any:
        """What a tool returned. Objects of other kinds are looked at as the text that LangChain makes of them."""
        if isinstance(result, Command):
            return self.command(result)
        if isinstance(result, (list, tuple)) and not _is_json(result):
            parts = [self.tool_result(part, stringify) for part in result]
            return tuple(parts) if isinstance(result, tuple) else parts
        try:
            cleaned = self.value(result)
        except TypeError:
            shown = stringify(result)
            cleaned = self.text(shown)
            return result if cleaned == shown else cleaned
        return tuple(cleaned) if isinstance(result, tuple) else cleaned

    def command(self, command: Command[Any]) -> Command[Any]:
        """A tool's command to the graph: the messages in it, and what else is text or JSON."""
        if not isinstance(command.update, dict):
            return command
        update: dict[str, Any] = {}
        for name, part in command.update.items():
            try:
                update[name] = self.value(part)
            except TypeError:
                update[name] = part  # state that is no text
        return Command(graph=command.graph, update=update, resume=command.resume, goto=command.goto)

    # -- messages ----------------------------------------------------------------------------------------------

    def message(self, message: M) -> M:
        """A message: its text, its tool calls, and all else that it carries. Unchanged (the same object) if clean."""
        update: dict[str, Any] = {
            "content": self.content(message.content),
            "additional_kwargs": self.strings(without_logprobs(message.additional_kwargs)),
            "response_metadata": self.metadata(message.response_metadata),
        }
        if isinstance(message, AIMessage):
            calls = self.at("tool-call arguments")
            update["tool_calls"] = [calls.tool_call(call) for call in message.tool_calls]
            update["invalid_tool_calls"] = [
                calls.invalid_tool_call(call) for call in message.invalid_tool_calls
            ]
            if chunks := getattr(message, "tool_call_chunks", None):
                update["tool_call_chunks"] = [calls.tool_call_chunk(chunk) for chunk in chunks]
        if isinstance(message, ToolMessage) and message.artifact is not None:
            try:
                update["artifact"] = self.value(message.artifact)
            except TypeError:
                update["artifact"] = (
                    message.artifact
                )  # an object of the program's own, not shown to the model
        changed = {name: part for name, part in update.items() if part != getattr(message, name)}
        return message.model_copy(update=changed) if changed else message

    def content(self, content: str | list[str | dict[str, Any]]) -> str | list[str | dict[str, Any]]:
        """A message's content. Text blocks are read together, as a reader does."""
        if isinstance(content, str):
            return self.text(content)
        stream = self.guard.stream_verifier(
            action=self.action, replacement=self.replacement, where=self.where
        )
        blocks: list[str | dict[str, Any]] = []
        last: int | None = None
        for block in content:
            text = (
                block
                if isinstance(block, str)
                else block.get("text")
                if block.get("type") == "text"
                else None
            )
            if text is None:
                blocks.append(self.block(block))
                continue
            last = len(blocks)
            shown = stream.feed(text)
            blocks.append(
                shown if isinstance(block, str) else {**self.strings({**block, "text": ""}), "text": shown}
            )
        rest = stream.finish()
        self.record(stream.report)
        if last is not None and rest:
            block = blocks[last]
            blocks[last] = block + rest if isinstance(block, str) else {**block, "text": block["text"] + rest}
        return blocks

    def block(self, block: Any) -> Any:
        """A content block that is no text. Images, audio and files are not looked into."""
        if block.get("type") in _MEDIA:
            return block
        cleaned = self.strings(block)
        for name in _ARGUMENTS:
            if not isinstance(cleaned.get(name), (str, type(None))):
                cleaned[name] = self.at("tool-call arguments").json_value(cleaned[name])
        return cleaned

    def strings(self, value: Any) -> Any:
        """Every string at any depth; one may hold JSON itself, as tool calls in `additional_kwargs` do."""
        if isinstance(value, str):
            return self.json_text(value)
        if isinstance(value, Mapping):
            return {key: self.strings(part) for key, part in value.items()}
        return [self.strings(part) for part in value] if isinstance(value, (list, tuple)) else value

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What a provider says about an answer: redacted in either case, for it is not the answer. Numbers stay."""
        cleaner = self if self.action == "redact" else Cleaner(self.guard, "redact", record=False)
        return cleaner.strings(without_logprobs(values))  # type: ignore[no-any-return]

    def tool_call(self, call: ToolCall) -> ToolCall:
        """A tool call: its arguments; a forbidden name is always refused, there is nothing to call then."""
        self._refuse_value(call["name"])
        return ToolCall(**{**call, "args": self.json_value(call["args"])})

    def invalid_tool_call(self, call: InvalidToolCall) -> InvalidToolCall:
        """One that could not be parsed; its arguments are text that looks like JSON."""
        cleaned = {
            name: self.json_text(part) if isinstance(part, str) else part for name, part in call.items()
        }
        return cast("InvalidToolCall", cleaned)

    def tool_call_chunk(self, chunk: Any) -> Any:
        """A whole tool call as the chunk of a stream."""
        if chunk.get("name"):
            self._refuse_value(chunk["name"])
        return {**chunk, "args": self.arguments(chunk.get("args") or "")}

    def arguments(self, text: str) -> str:
        """The JSON text of arguments: clean as text and once parsed."""
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            return self.json_text(text)
        cleaned = self.json_value(read)
        return self.json_text(text if cleaned == read else json.dumps(cleaned, ensure_ascii=False))


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (str, bool, int, float))
