"""LlamaIndex's responses as values: what another LLM or a tool returned, whole or piece by piece, made fit to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, TextBlock
from llama_index.llms.nco_guard.registered import MEDIA
from llama_index.llms.nco_guard.unobserved import Unobserved

from nco_guard import Guard
from nco_guard.audit import RunRecorder
from nco_guard.errors import GenerationError, UnsupportedError
from nco_guard.redaction import Replacement
from nco_guard.values import Cleaner, Role

__all__ = ["ChatFilter", "CompletionFilter", "ResponseCleaner"]


class ResponseCleaner:
    """Cleans what was written in one call. `inside` runs what writes it: nobody observes it, its errors come out clean.

    Guarantee: no match of a hard rule in what is returned. Of the provider's own object (`raw`) the token counts stay;
    log probabilities, and pieces of thoughts beside the whole ones, are left out. Images, sound, video and documents
    give way to a line that names them; under "raise" they are an `UnsupportedError`.
    """

    def __init__(
        self,
        guard: Guard,
        action: Literal["raise", "redact"],
        replacement: Replacement,
        *,
        parent_id: str | None = None,
        where: str = "model output",
        failure: Callable[[str], Exception] = GenerationError,
    ) -> None:
        record = None if guard.audit is None else RunRecorder(guard.audit, parent_id=parent_id)
        self.guard = guard
        self.values = Cleaner(guard, action, replacement=replacement, where=where, record=record)
        self.redacting = Cleaner(guard, "redact", replacement=replacement, where=where)
        self.inside = Unobserved(lambda error: self.values.error(error, failure))

    def completion(self, response: CompletionResponse) -> CompletionResponse:
        """A finished completion."""
        return CompletionResponse(
            text=self.values.text(response.text),
            raw=self.raw(response.raw),
            additional_kwargs=self.values.metadata(response.additional_kwargs),
        )

    def chat(self, response: ChatResponse) -> ChatResponse:
        """A finished answer."""
        return ChatResponse(
            message=self.message(response.message),
            raw=self.raw(response.raw),
            additional_kwargs=self.extra(response.additional_kwargs),
        )

    def message(self, message: ChatMessage) -> ChatMessage:
        """A finished message."""
        said = {name: part for name, part in message.additional_kwargs.items() if name != "logprobs"}
        update = {"blocks": self.readable(message.blocks), "additional_kwargs": said}
        clean: ChatMessage = self.values.value(message.model_copy(update=update))
        return clean.model_copy(update={"additional_kwargs": self.extra(clean.additional_kwargs)})

    def readable(self, blocks: Sequence[Any]) -> list[Any]:
        """Blocks, with a line in the place of those that cannot be looked into."""
        return [self._line(block) if isinstance(block, MEDIA) else block for block in blocks]

    def _line(self, block: Any) -> TextBlock:
        if self.values.action == "raise":
            raise UnsupportedError(f"{self.values.where}: a {type(block).__name__} cannot be looked into")
        return TextBlock(text=f"[{type(block).__name__} withheld]")

    def raw(self, raw: Any) -> dict[str, Any]:
        """In the place of the provider's object, which repeats the text: the policy and the token counts."""
        usage = raw.get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)
        counts = usage if isinstance(usage, Mapping) else getattr(usage, "__dict__", {})
        numbers = self.values.metadata({name: n for name, n in counts.items() if type(n) is int})
        digest = {"policy_digest": self.guard.digest}
        return {**digest, "usage": numbers} if numbers else digest

    def extra(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """What else a provider says."""
        whole = {name: part for name, part in said.items() if name != "thinking_delta"}
        clean: dict[str, Any] = self.values.metadata(whole)
        return clean


class _TextFilter:
    """The text of a stream: shown as soon as no match can begin in it any more."""

    def __init__(self, cleaner: ResponseCleaner) -> None:
        self._cleaner = cleaner
        self._stream = cleaner.values.stream(Role.TEXT)
        self._read = ""
        self.shown = ""

    def feed(self, delta: str | None, text: str) -> str:
        if delta is None:  # some LLMs only show the text so far
            if not text.startswith(self._read):
                raise UnsupportedError("a stream that takes back what it has shown cannot be verified")
            delta = text[len(self._read) :]
        self._read += delta
        return self._grown(self._stream.feed(delta)) if delta else ""

    def finish(self) -> str:
        return self._grown(self._stream.finish())

    def _grown(self, pieces: Iterable[str]) -> str:
        piece = "".join(pieces)
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
        last = self._cleaner.chat(self._last.model_copy(update={"message": _without_text(said)}))
        last.delta = piece
        at = next((index for index, block in enumerate(said.blocks) if isinstance(block, TextBlock)), 0)
        if self._text.shown or not last.message.blocks:
            last.message.blocks.insert(at, TextBlock(text=self._text.shown))
        return [last]


def _without_text(message: ChatMessage) -> ChatMessage:
    """What streamed is shown already."""
    others = [block for block in message.blocks if not isinstance(block, TextBlock)]
    return message.model_copy(update={"blocks": others})
