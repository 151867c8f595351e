"""One call of a local chat model and its replies: as a whole or piece by piece, for threads and for event loops.

What integrations of local models share; nothing here knows one of them. A generation runs in the calling thread
(`answers`, `run`) or in one of its own; an error of it is raised where its reader waits, and a reader that leaves stops
it at its next step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from threading import Event as Signal
from typing import Any, Generic, TypeVar, cast

from nco_guard.audit import correlated
from nco_guard.engines.calls import GenerationResult, GuardLike
from nco_guard.engines.hf.content_stops import StopsInContent, without_stop_strings
from nco_guard.engines.hf.generation import bind_to_model, generate, stream_run, vocabulary_of
from nco_guard.engines.hf.options import Settings
from nco_guard.engines.hf.rewinding import RewindChoice
from nco_guard.engines.hf.streamers import stopped_by
from nco_guard.engines.streaming import Generate, aside, in_pieces, in_pieces_async
from nco_guard.errors import GenerationError, UnsupportedError
from nco_guard.replies import Event, InvalidCall, Reasoning, ReplyFormat, ReplyReader, Text, ToolCall
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.parser import REASONING, begun_in, region_at_end
from nco_guard.replies.reader import refuse_shown_reasoning
from nco_guard.replies.said import Said
from nco_guard.session import BoundGuard
from nco_guard.shapes import ShapeSource, as_shape

__all__ = ["GrowingReply", "Reply", "ReplyCall", "Usage"]

_AGuard = TypeVar("_AGuard", bound=GuardLike)


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Of prompt and reply together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Reply:
    """What is there of a reply: content, reasoning and finished calls so far, and what the last piece added (`news`).

    `outcome` (as in `GenerationResult`) and `usage` are known with the last one only. `parts`: content and reasoning in
    the order in which they came.
    """

    content: str
    reasoning: str
    news: tuple[Event, ...]
    calls: tuple[ToolCall, ...]
    invalid_calls: tuple[InvalidCall, ...]
    stopped: bool
    outcome: str | None = None
    usage: Usage | None = None
    parts: tuple[Text | Reasoning, ...] = ()

    @property
    def delta(self) -> str:
        """What the last piece added to the content."""
        return "".join(event.text for event in self.news if isinstance(event, Text))

    @property
    def reasoning_delta(self) -> str:
        """What the last piece added to the reasoning."""
        return "".join(event.text for event in self.news if isinstance(event, Reasoning))

    @property
    def finish_reason(self) -> str | None:
        """Why it ended, in the words of hosted models; None as long as it goes on."""
        if self.outcome is None:
            return None
        if self.calls:
            return "tool_calls"
        return "stop" if self.stopped or self.outcome in ("ended", "stopped") else self.outcome


class GrowingReply:
    """What is read of one reply as it grows.

    reader: None where nothing is cut out of the text and nobody parses it, which is then shown as it was guarded.
    """

    def __init__(self, reader: ReplyReader | None) -> None:
        self._reader = reader
        self._parts: list[Text | Reasoning] = []
        self._content = self._reasoning = ""
        self._calls: list[ToolCall] = []
        self._invalid: list[InvalidCall] = []

    def feed(self, piece: str) -> Reply:
        """Take a further piece of the text."""
        return self._read([Text(piece)] if self._reader is None else self._reader.feed(piece))

    def finish(self, outcome: str | None = None, usage: Usage | None = None) -> Reply:
        """The text is over."""
        return self._read([] if self._reader is None else self._reader.finish(), outcome, usage)

    def whole(self, text: str, outcome: str | None = None, usage: Usage | None = None) -> Reply:
        """All of a text, which comes in no pieces and so has no news."""
        self.feed(text)
        return replace(self.finish(outcome, usage), news=())

    def _read(self, events: Iterable[Event], outcome: str | None = None, usage: Usage | None = None) -> Reply:
        news: list[Event] = []
        for event in events:
            if isinstance(event, Text):
                if not event.text:
                    continue
                self._content += event.text
                self._join(event)
            elif isinstance(event, Reasoning):
                self._reasoning += event.text
                self._join(event)
            elif isinstance(event, ToolCall):
                self._calls.append(event)
            else:
                self._invalid.append(event)
            news.append(event)
        stopped = self._reader is not None and self._reader.stopped
        return Reply(
            self._content,
            self._reasoning,
            tuple(news),
            tuple(self._calls),
            tuple(self._invalid),
            stopped,
            outcome,
            usage,
            tuple(self._parts),
        )

    def _join(self, event: Text | Reasoning) -> None:
        if self._parts and type(self._parts[-1]) is type(event):
            event = replace(event, text=self._parts.pop().text + event.text)
        self._parts.append(event)


@dataclass
class ReplyCall(Generic[_AGuard]):
    """Everything that one call needs; guards, models and tokenizers are shared between calls.

    Guarantee: that of `generate` for the text as the model writes it, and that of `ReplyReader` for what is cut out of
    it and parsed. With a `shape`, the content of a reply that was read is of that shape; where it could not be closed,
    there is an error and no reply.

    Args:
        guard: what is enforced; where tools are on offer or JSON is asked for, one that sees through its escapes
            (`nco_guard.guards.seeing_through_json`).
        inputs: what the tokenizer returned for one prompt, which ends with `begun`.
        options: further options of `generate`.
        stop, form, tools, begun, single_call, invalid_as_text, escapes: as of `ReplyReader`.
        requires_call: a reply without a tool call is an error.
        parent_id: the caller's own id, for the audit log.
        shape: what the reply is to look like, as of `Guard.with_shape`. One of `replies.enforcing.calls_shape` is read
            as any reply, by `form` and `tools`. Of any other the content is the text as it was written, in which no
            marks are looked for; its prompt ends with `replies.writing.begun_answer`, by which reasoning that a
            template opened there is closed.

    Errors, when made: `TokenizerError` for a tokenizer that does not fit the model; `UnsupportedError` for a policy
    that hides reasoning (`applies_to`) where the format is not known or has none. With a `shape` also those of
    `Guard.with_shape` and `bind`, and `UnsupportedError` for what cannot be had with it: tools, stop strings, texts
    that go back (`when_blocked="rewind"`), `tables="device"`, a guard that is bound already, open reasoning.

    Examples:
        >>> inputs = dict(tokenizer("Write to", return_tensors="pt", return_token_type_ids=False))
        >>> guard = Guard.from_presets("pii")
        >>> call = ReplyCall(guard, model, tokenizer, inputs, {"max_new_tokens": 8})
        >>> guard.verify(call.run().content).ok
        True
    """

    guard: _AGuard
    model: Any
    tokenizer: Any
    inputs: Mapping[str, Any]
    options: Mapping[str, Any]
    stop: tuple[str, ...] = ()
    form: ReplyFormat | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    begun: str = ""
    single_call: bool = False
    requires_call: bool = False
    invalid_as_text: bool = False
    escapes: bool = False
    parent_id: str | None = None
    shape: ShapeSource = None

    def __post_init__(self) -> None:
        self._calls = self.shape is not None and as_shape(self.shape).kind == "tools"
        self._enforced = self.guard if self.shape is None else self._shaped()
        policy = self.guard.verifier.compiled.policy
        if self.shape is None or self._calls:
            refuse_shown_reasoning(policy, self.form)
        # A text of another shape is what it says, marks included.
        self._form = self.form if self.shape is None or self._calls else None
        compiled = self._enforced.verifier.compiled
        # A text of a shape is content alone, in which nothing is hidden.
        self._reads: Any = (
            self._enforced
            if self._form is not None or policy.applies_to is None
            else compiled.revised(compiled.policy.model_copy(update={"applies_to": None}))
        )
        if self.stop and self._form is not None:
            self.options = without_stop_strings(self.options)
        elif self.stop:
            self.options = {**self.options, "stop_strings": list(self.stop)}
        ids = self.inputs["input_ids"][0].tolist()
        marks = self._special_marks()
        self._skip = not marks
        settings = Settings(self.model, self.options)
        self._vocabulary = vocabulary = vocabulary_of(self.model, self.tokenizer, settings, self._skip)
        self._before = 1 if settings.encoder_decoder else len(ids)
        # Other special tokens, and what ends a text, are no part of what is shown.
        silent = (*vocabulary.special_ids, *vocabulary.eos_ids)
        texts = {vocabulary.tokens[one].decode(errors="ignore") for one in silent}
        self._hidden = tuple(sorted(texts - {"", *marks}))
        self._prefix = "" if self._form is None or settings.encoder_decoder else self.tokenizer.decode(ids)
        self._regions = self._fields() if vocabulary.rewriting is None else None
        bind = partial(bind_to_model, self._enforced, self.model, self.tokenizer, settings, self._skip)
        bound = bind(regions=self._regions)
        if settings.beams == 1 and RewindChoice.taken(dict(self.options)).of(bound) is not None:
            self._regions = None  # where a match began is not followed in fields
        self._context, self._prompt_tokens = bound.prompt_text(ids), len(ids)
        if self.shape is not None:
            self._refuse_beside_shape(settings, bound, "" if settings.encoder_decoder else ids)

    def _fields(self) -> FormatFields | None:
        """How masks follow what is cut out of a reply; None where they cannot, and its reader refuses what matches."""
        elsewhere = self.options.get("tables", "host") != "host" or self.options.get("streamer") is not None
        shaped = getattr(self.guard, "_left_of_shape", None) is not None
        if self._form is None or shaped or elsewhere or not FormatFields.followed(self._form):
            return None
        begun = begun_in(self._form, self._prefix, self.begun)
        return FormatFields(self._form, calls=self.tools is not None, hidden=self._hidden, begun=begun)

    def _shaped(self) -> _AGuard:
        """The guard by which the reply is also of the shape."""
        if self._calls and (self.form is None or not self.tools):
            raise UnsupportedError(
                "shape: calls of tools are read by form and tools; give those that it was made of"
            )
        for name, given in (("tools", self.tools), ("requires_call", self.requires_call)):
            if given and not self._calls:
                raise UnsupportedError(
                    f"{name}: a reply of a shape has no calls of tools; leave {name} or shape out"
                )
        if self.stop and not self._calls:
            raise UnsupportedError("stop: a reply of a shape ends by itself; leave stop or shape out")
        with_shape = getattr(self.guard, "with_shape", None)
        if with_shape is None:
            raise UnsupportedError(
                f"shape: {type(self.guard).__name__} takes none; give Guard(policy), not yet bound"
            )
        return cast(_AGuard, with_shape(self.shape))

    def _refuse_beside_shape(self, settings: Settings, bound: BoundGuard, prompt: Any) -> None:
        """Say before anything runs what would be refused, or would break a shape, when it does."""
        if settings.beams == 1 and RewindChoice.taken(dict(self.options)).of(bound) is not None:
            raise UnsupportedError(
                "when_blocked='rewind': a text of a shape does not go back; say when_blocked='mask'"
            )
        if self.options.get("tables") == "device":
            raise UnsupportedError(
                "tables='device': a shape has no table of all its states; use tables='host'"
            )
        if self.form is None or self._calls or not len(prompt):
            return
        if region_at_end(self.form, self.tokenizer.decode(prompt)) == REASONING:
            raise UnsupportedError(
                "shape: the prompt ends within reasoning, which a reply of a shape has none of; let it end with "
                "begun_answer(form, prompt) of nco_guard.replies.writing"
            )

    def _special_marks(self) -> tuple[str, ...]:
        """Special tokens that have to stand in the text for it to be read; what ends the text need not."""
        if self._form is None:
            return ()
        ends = {
            *Settings(self.model, self.options).eos_token_ids,
            getattr(self.tokenizer, "eos_token_id", None),
        }
        tokens = getattr(self.tokenizer, "added_tokens_decoder", {}).items()
        special = [token.content for number, token in tokens if token.special and number not in ends]
        return self._form.special_marks(special, calls=self.tools is not None)

    def _ended(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of one generation, which ends at a stop string."""
        if not self.stop or self._form is None:
            return dict(options)
        reading = partial(Said, **self._read_by())
        ends = StopsInContent(reading, self._vocabulary, self._before)
        return {**options, "stopping_criteria": [*(options.get("stopping_criteria") or ()), ends]}

    def _read_by(self) -> dict[str, Any]:
        """How what the model writes is taken apart."""
        return {
            "stop": self.stop,
            "form": self._form,
            "tools": self.tools,
            "prefix": self._prefix,
            "begun": "" if self._form is None else self.begun,
            "hidden": self._hidden,
            "invalid_as_text": self.invalid_as_text,
        }

    def reading(self) -> GrowingReply:
        """A fresh reading of what the model writes in answer."""
        if self._form is None and not self.stop and not self.escapes and not self._hidden:
            return GrowingReply(None)
        reader = ReplyReader(
            self._reads,
            context=self._context,
            single_call=self.single_call,
            **self._read_by(),
            escapes=self.escapes,
        )
        return GrowingReply(reader)

    def answers(self) -> list[Reply]:
        """The whole replies, in this thread; as many as `num_return_sequences` says."""
        return self._answers(self._ended(self.options))

    def run(self) -> Reply:
        """The one whole reply, in this thread."""
        return self.answers()[0]

    async def arun(self) -> Reply:
        """`run`; the event loop goes on meanwhile, and cancelling stops the generation."""
        return (await aside(lambda left: self._answers(stopped_by(left, self._ended(self.options)))))[0]

    def stream(self) -> Iterator[Reply]:
        """The one reply as it grows; the last one has an outcome."""
        reading, run, results = self._streaming()
        for piece in in_pieces(run):
            if (reply := reading.feed(piece)).news:
                yield reply
        yield self._checked(reading.finish(*self._end(results[0], 0)))

    async def astream(self) -> AsyncIterator[Reply]:
        """`stream` for an event loop, which goes on meanwhile."""
        reading, run, results = self._streaming()
        async with aclosing(in_pieces_async(run)) as pieces:
            async for piece in pieces:
                if (reply := reading.feed(piece)).news:
                    yield reply
        yield self._checked(reading.finish(*self._end(results[0], 0)))

    def _answers(self, options: Mapping[str, Any]) -> list[Reply]:
        with correlated(parent_id=self.parent_id):
            result = generate(
                self._enforced,
                self.model,
                self.tokenizer,
                self.inputs,
                skip_special_tokens=self._skip,
                regions=self._regions,
                **options,
            )
        return [
            self._checked(self.reading().whole(text, *self._end(result, number)))
            for number, text in enumerate(result.texts)
        ]

    def _streaming(
        self,
    ) -> tuple[GrowingReply, Generate, list[GenerationResult]]:
        """A reading, what a thread runs, and where it leaves its result."""
        results: list[GenerationResult] = []
        write_all = stream_run(
            self._enforced,
            self.model,
            self.tokenizer,
            self.inputs,
            self._ended(self.options),
            results.append,
            skip_special_tokens=self._skip,
            regions=self._regions,
        )

        def run(write: Callable[[str], None], left: Signal) -> None:
            with correlated(parent_id=self.parent_id):
                write_all(write, left)

        return self.reading(), run, results

    def _end(self, result: GenerationResult, number: int) -> tuple[str, Usage]:
        return result.outcomes[number], Usage(self._prompt_tokens, len(result.token_ids[number]))

    def _checked(self, reply: Reply) -> Reply:
        if self.requires_call and not reply.calls:
            raise GenerationError(
                f"a tool call was required and the model wrote none that can be read (outcome: {reply.outcome}); "
                f"allow more max_new_tokens, or let the model choose"
            )
        return reply
