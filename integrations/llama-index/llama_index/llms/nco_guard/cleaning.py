"""LlamaIndex's responses as values: what another LLM or a tool returned, whole or piece by piece, made fit to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, TextBlock
from llama_index.llms.nco_guard.registered import MEDIA
from llama_index.llms.nco_guard.unobserved import UnobservedCalls

from nco_guard import Guard, OnMatch
from nco_guard.errors import GenerationError, UnsupportedError
from nco_guard.scan import Replacement
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
        action: OnMatch,
        replacement: Replacement,
        *,
        parent_id: str | None = None,
        where: str = "model output",
        failure: Callable[[str], Exception] = GenerationError,
    ) -> None:
        record = guard.log.own_recorder(parent_id=parent_id)
        self.guard = guard
        self.values = Cleaner(guard, action, replacement=replacement, where=where, record=record)
        self.redacting = Cleaner(guard, "redact", replacement=replacement, where=where, record=record)
        self.inside = UnobservedCalls(lambda error: self.values.error(error, failure))

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
        digest = {"policy_digest": self.guard.log.digest}
        return {**digest, "usage": numbers} if numbers else digest

    def extra(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """What else a provider says."""
        whole = {name: part for name, part in said.items() if name != "thinking_delta"}
        clean: dict[str, Any] = self.values.metadata(whole)
        return clean


class _Filter:
    """Chunks of a stream in, chunks that may be shown out; `finish` gives the last, with all that is not text."""

    def __init__(self, cleaner: ResponseCleaner) -> None:
        self._cleaner = cleaner
        self._stream = cleaner.values.stream(Role.TEXT)
        self._read = self._shown = ""
        self._last: Any = None

    def feed(self, chunk: Any) -> list[Any]:
        """Read one chunk."""
        delta = chunk.delta
        if delta is None:  # some LLMs only show the text so far
            text = self._text(chunk)
            if not text.startswith(self._read):
                raise UnsupportedError("a stream that takes back what it has shown cannot be verified")
            delta = text[len(self._read) :]
        self._read += delta
        self._last = chunk
        piece = "".join(self._stream.feed(delta)) if delta else ""
        self._shown += piece
        return [self._chunk(chunk, piece)] if piece else []

    def finish(self) -> list[Any]:
        """The stream is over."""
        if self._last is None:
            return []
        piece = "".join(self._stream.finish())
        self._shown += piece
        return [self._whole(self._last, piece)]

    _text: Callable[[Any], str]
    _chunk: Callable[[Any, str], Any]
    _whole: Callable[[Any, str], Any]


class CompletionFilter(_Filter):
    """The chunks of a completion."""

    def _text(self, chunk: CompletionResponse) -> str:
        return chunk.text

    def _chunk(self, chunk: CompletionResponse, piece: str) -> CompletionResponse:
        return CompletionResponse(text=self._shown, delta=piece, raw=self._cleaner.raw(None))

    def _whole(self, chunk: CompletionResponse, piece: str) -> CompletionResponse:
        extra = self._cleaner.extra(chunk.additional_kwargs)
        raw = self._cleaner.raw(chunk.raw)
        return CompletionResponse(text=self._shown, delta=piece, raw=raw, additional_kwargs=extra)


class ChatFilter(_Filter):
    """The chunks of an answer."""

    def _text(self, chunk: ChatResponse) -> str:
        return chunk.message.content or ""

    def _chunk(self, chunk: ChatResponse, piece: str) -> ChatResponse:
        message = ChatMessage(role=chunk.message.role, blocks=[TextBlock(text=self._shown)])
        return ChatResponse(message=message, delta=piece, raw=self._cleaner.raw(None))

    def _whole(self, chunk: ChatResponse, piece: str) -> ChatResponse:
        blocks = chunk.message.blocks
        others = [block for block in blocks if not isinstance(block, TextBlock)]
        silent = chunk.message.model_copy(update={"blocks": others})
        last = self._cleaner.chat(chunk.model_copy(update={"message": silent}))
        last.delta = piece
        at = next((index for index, block in enumerate(blocks) if isinstance(block, TextBlock)), 0)
        if self._shown or not last.message.blocks:
            last.message.blocks.insert(at, TextBlock(text=self._shown))
        return last
