"""One call of a local chat model: as a whole or in pieces, in threads or beside an event loop, the reply is one."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor

from nco_guard import Guard, Policy, RegexRule, StringRule, demo
from nco_guard.audit import MemorySink
from nco_guard.engines.calls import GenerationResult
from nco_guard.engines.hf import generate
from nco_guard.engines.hf.inputs import encode_text, render_chat
from nco_guard.engines.hf.reply_calls import Reply, ReplyCall, Usage
from nco_guard.engines.streaming import aside, in_pieces, in_pieces_async
from nco_guard.errors import GenerationError, UnsupportedError, ViolationError
from nco_guard.guards import seeing_through_json
from nco_guard.replies import InvalidCall, Reasoning, Text, ToolCall, as_reply_format, shipped_formats
from nco_guard.replies.writing import begun_call
from nco_guard.values.readings import readings
from tests.engines.wishing import Wishes

GUARD = Guard(
    Policy(
        name="p",
        rules=[
            StringRule(id="word", strings=["Bluebird"]),
            StringRule(id="prompt", strings=["Cohen?Bl"], context="prompt"),
        ],
    )
)
FORM = shipped_formats()["hermes-line"]
OFFERED: dict[str, Any] = {"form": FORM, "tools": []}
CALL = '<tool_call>{"name": "find", "arguments": {"key": "x"}}</tool_call>'


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    return demo.load()


class Held(LogitsProcessor):  # type: ignore[misc]
    """Waits at a step until it is let go."""

    def __init__(self, step: int) -> None:
        self._left, self.reached, self.go = step, threading.Event(), threading.Event()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            self.go.wait(60)
        return scores


def call_of(
    loaded: tuple[Any, Any], asked: str = "Daniel Cohen?", text: str | None = None, **options: Any
) -> ReplyCall[Guard]:
    """A call; `text`: what the model is made to write."""
    model, tokenizer = loaded
    prompt = render_chat(tokenizer, [{"role": "user", "content": asked}]) + options.get("begun", "")
    given: dict[str, Any] = {"max_new_tokens": 60, "do_sample": False, **options.pop("options", {})}
    if text is not None:
        given["logits_processor"] = [Wishes(tokenizer, text)]
    guard = options.pop("guard", GUARD)
    return ReplyCall(guard, model, tokenizer, encode_text(tokenizer, model, prompt), given, **options)


def routes(make: Callable[[], ReplyCall[Guard]]) -> list[Reply]:
    """The reply on each route; on those in pieces, its last state, with all pieces put together."""

    async def asynchronous() -> list[list[Reply]]:
        return [[await make().arun()], [reply async for reply in make().astream()]]

    whole = [[make().run()], [*make().stream()], *asyncio.run(asynchronous())]
    for replies in whole[1::2]:
        for before, reply in itertools.pairwise(replies):
            assert before.outcome is before.finish_reason is before.usage is None
            assert reply.content == before.content + reply.delta
            assert reply.reasoning == before.reasoning + reply.reasoning_delta
        assert "".join(reply.delta for reply in replies) == replies[-1].content
    return [replies[-1] for replies in whole]


def seen(reply: Reply) -> tuple[Any, ...]:
    """All but ids, which differ from call to call, and news."""
    calls = [(call.name, call.arguments) for call in reply.calls]
    invalid = [(call.text, call.problem) for call in reply.invalid_calls]
    return (
        reply.content,
        reply.reasoning,
        calls,
        invalid,
        reply.stopped,
        reply.outcome,
        reply.usage,
        reply.finish_reason,
    )


WAYS: dict[str, tuple[str | None, dict[str, Any], tuple[Any, ...]]] = {
    "plain": (None, {}, ()),
    "limited": (None, {"options": {"max_new_tokens": 3}}, ()),
    "text": ("Hello there.", {}, ("Hello there.", "", [], [], "stop")),
    "stopped": ("Hello there.", {"stop": (" th",)}, ("Hello", "", [], [], "stop")),
    "a call": (f"So{CALL}!", OFFERED, ("So!", "", [("find", {"key": "x"})], [], "tool_calls")),
    "no call": (
        "So<tool_call>no</tool_call>",
        OFFERED,
        (
            "So",
            "",
            [],
            [("<tool_call>no</tool_call>", "the call is not JSON with name and arguments")],
            "stop",
        ),
    ),
    "shown": (
        "So<tool_call>no</tool_call>",
        {**OFFERED, "invalid_as_text": True},
        (
            "So<tool_call>no</tool_call>",
            "",
            [],
            [("<tool_call>no</tool_call>", "the call is not JSON with name and arguments")],
            "stop",
        ),
    ),
    "one call": (
        CALL + CALL,
        {**OFFERED, "single_call": True},
        ("", "", [("find", {"key": "x"})], [], "tool_calls"),
    ),
    "reasoning": (
        f"<think>\nHm. </think>\n\nSo{CALL}!",
        OFFERED,
        ("So!", "Hm.", [("find", {"key": "x"})], [], "tool_calls"),
    ),
    "no tools": (f"<think>Hm.</think>So{CALL}!", {"form": FORM}, (f"So{CALL}!", "Hm.", [], [], "stop")),
    "begun": (
        'y"}}</tool_call>',
        {**OFFERED, "begun": '<tool_call>{"name": "find", "arguments": {"key": "'},
        ("", "", [("find", {"key": "y"})], [], "tool_calls"),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_reply_is_one_on_every_route_and_read_from_what_generate_writes(
    loaded: tuple[Any, Any], way: str
) -> None:
    text, options, wanted = WAYS[way]

    def make() -> ReplyCall[Guard]:
        return call_of(loaded, text=text, **options)

    replies = routes(make)
    assert [seen(reply) for reply in replies] == [seen(replies[0])] * 4
    call = make()
    result = generate(GUARD, call.model, call.tokenizer, call.inputs, **call.options)
    (reply,) = (call.reading().whole(each) for each in result.texts)
    assert seen(reply)[:5] == seen(replies[0])[:5]
    usage = Usage(call.inputs["input_ids"].shape[1], len(result.token_ids[0]))
    assert (replies[0].outcome, replies[0].usage) == (result.outcomes[0], usage)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    if wanted:
        content, reasoning, calls, invalid, _, _, _, reason = seen(replies[0])
        assert (content, reasoning, calls, invalid, reason) == wanted
    if way == "limited":
        assert (replies[0].finish_reason, usage.completion_tokens) == ("length", 3)


STOPPED: list[tuple[str, tuple[str, ...], dict[str, Any], tuple[Any, ...]]] = [
    ("Hello there. And on.", (" th",), {}, ("Hello", "", [])),
    ("<think>a th</think>Hello there. And on.", (" th",), {}, ("Hello", "a th", [])),
    ("<think>on</think>Hel<think>lo</think>lo and on.", ("ello",), {}, ("H", "onlo", [])),
    (f"So{CALL} and on.", ("find", "call", " on"), OFFERED, ("So and", "", [("find", {"key": "x"})])),
    (f"So{CALL}! And on.", ("o!",), OFFERED, ("S", "", [("find", {"key": "x"})])),
    (f"So{CALL} and on.", ("tool_call",), {}, ("So<", "", [])),
]


@pytest.mark.parametrize("when_blocked", ["mask", "rewind"])
@pytest.mark.parametrize(("text", "stop", "options", "wanted"), STOPPED)
def test_a_stop_string_counts_in_the_text_that_is_read(
    loaded: tuple[Any, Any],
    text: str,
    stop: tuple[str, ...],
    options: dict[str, Any],
    wanted: tuple[Any, ...],
    when_blocked: Any,
) -> None:
    guard = Guard(GUARD.policy.model_copy(update={"when_blocked": when_blocked}))

    def make(**more: Any) -> ReplyCall[Guard]:
        return call_of(loaded, text=text, guard=guard, **{"form": FORM, "stop": stop, **options, **more})

    written = make(stop=()).run().usage
    assert written is not None
    for reply in routes(make):
        assert seen(reply)[:3] == wanted
        assert (reply.stopped, reply.outcome) == (True, "stopped")
        assert reply.usage is not None
        assert reply.usage.completion_tokens < written.completion_tokens


def test_each_of_several_replies_ends_at_its_own_stop_string(loaded: tuple[Any, Any]) -> None:
    for more in ({"num_return_sequences": 3, "do_sample": True}, {"num_beams": 2}):
        options = {"max_new_tokens": 24, **more}
        torch.manual_seed(1)
        plain = [reply.content for reply in call_of(loaded, options=options, form=FORM).answers()]
        torch.manual_seed(1)
        call = call_of(loaded, options=options, form=FORM, stop=("e",))
        for reply, text in zip(call.answers(), plain, strict=True):
            assert "e" not in reply.content
            if "do_sample" in more:
                assert reply.content == text.partition("e")[0]


def test_stop_strings_of_a_configuration_that_is_given_count_so_too(loaded: tuple[Any, Any]) -> None:
    from transformers import GenerationConfig

    config = GenerationConfig(stop_strings=["a"], max_new_tokens=40)
    call = call_of(
        loaded,
        text="<think>a</think>So a.",
        form=FORM,
        stop=("a",),
        options={"generation_config": config},
    )
    assert seen(call.run())[:2] == ("So ", "a")
    assert config.stop_strings == ["a"]


def test_calls_and_text_come_in_their_order(loaded: tuple[Any, Any]) -> None:
    news = [event for reply in call_of(loaded, text=f"a{CALL}b", **OFFERED).stream() for event in reply.news]
    assert [type(event) for event in news] == [Text, ToolCall, Text]
    news = [
        event
        for reply in call_of(loaded, text="<tool_call>x</tool_call>b", **OFFERED).stream()
        for event in reply.news
    ]
    assert [type(event) for event in news] == [InvalidCall, Text]


def test_marks_that_are_special_tokens_are_read_and_other_special_tokens_are_not_shown(
    loaded: tuple[Any, Any],
) -> None:
    """Of the shipped tokenizer these are special: <|system|>, <|user|>, <|assistant|>, <|tool|> and <|end|>."""
    entry = FORM.model_dump(mode="json")
    entry["response_template"]["fields"]["tool_calls"] |= {"open": "<|tool|>", "close": "<|user|>"}
    entry["call"] |= {"open": '<|tool|>{"name": "', "close": "}<|user|>"}
    form = as_reply_format({**entry, "name": "special"})
    call = CALL.replace("<tool_call>", "<|tool|>").replace("</tool_call>", "<|user|>")
    said = f"<think>H<|system|>m</think>So<|assistant|>{call}!<|system|>"

    def make(tools: Any) -> ReplyCall[Guard]:
        return call_of(loaded, text=said, form=form, tools=tools)

    for reply in routes(lambda: make([])):
        assert seen(reply)[:4] == ("So!", "Hm", [("find", {"key": "x"})], [])
    for reply in routes(lambda: make(None)):  # nobody looks for calls: special tokens are no text
        assert seen(reply)[:4] == ('So{"name": "find", "arguments": {"key": "x"}}!', "Hm", [], [])
    begun = begun_call(form, {"name": "find", "parameters": {"properties": {"key": {"type": "string"}}}})
    for reply in routes(lambda: call_of(loaded, text='y"}}<|user|>', form=form, tools=[], begun=begun)):
        assert seen(reply)[:4] == ("", "", [("find", {"key": "y"})], [])


def test_reasoning_is_guarded_as_a_text_of_its_own(loaded: tuple[Any, Any]) -> None:
    rule = StringRule(id="cut", strings=["HmSo", "abcd"])
    guard = Guard(Policy(name="cut", rules=[rule]))
    said = "<think>Hm</think>So"
    assert seen(call_of(loaded, text=said, form=FORM, guard=guard).run())[:2] == ("So", "Hm")
    for text in ("<think>ab</think>x<think>cd</think>", "ab<think>x</think>cd"):
        for reply in routes(partial(call_of, loaded, text=text, form=FORM, guard=guard)):
            assert "abcd" not in (reply.content, reply.reasoning)  # what cutting brings out is masked
        unmasked = call_of(loaded, text=text, form=FORM, guard=guard)
        unmasked._regions = None  # and where masks cannot follow, it is refused
        with pytest.raises(ViolationError, match="cut"):
            unmasked.run()
    pieces = [*call_of(loaded, text="<think>One two three.</think>Four.", form=FORM).stream()]
    assert sum(bool(piece.reasoning_delta) for piece in pieces) > 2
    assert not any(isinstance(event, Text) for piece in pieces[:3] for event in piece.news)
    assert any(isinstance(event, Reasoning) for event in pieces[0].news)


@pytest.mark.parametrize("kind", ["guarded", "free", "hidden"])
def test_reasoning_is_looked_at_and_shown_as_the_policy_says(loaded: tuple[Any, Any], kind: Any) -> None:
    """And content behind it is guarded as if it were not there."""
    rules = [StringRule(id="word", strings=["abcd", "Hm"]), RegexRule(id="alone", regex=r"^So")]
    sink = MemorySink()
    guard = Guard(Policy(name="p", rules=rules, applies_to={"reasoning": kind}), audit=sink)
    for said, thought in (("<think>Hm.</think>ab<think>cd</think>.", "Hm.cd"), ("<think>x</think>So", "x")):
        for reply in routes(partial(call_of, loaded, text=said, form=FORM, guard=guard)):
            assert not reply.content.startswith(("So", "abcd"))
            if kind == "guarded":
                assert "Hm" not in reply.reasoning
            else:
                assert reply.reasoning == (thought if kind == "free" else "")
    reported = [event for event in sink.events if event.kind == "verification"]
    assert reported
    assert not any(event.findings for event in reported)


def test_several_answers_to_one_prompt_are_each_read(loaded: tuple[Any, Any]) -> None:
    torch.manual_seed(1)
    options = {"do_sample": True, "temperature": 2.0, "num_return_sequences": 3, "max_new_tokens": 12}
    call = call_of(loaded, options=options)
    replies = call.answers()
    torch.manual_seed(1)
    result: GenerationResult = generate(GUARD, call.model, call.tokenizer, call.inputs, **call.options)
    assert [reply.content for reply in replies] == result.texts
    assert [reply.outcome for reply in replies] == result.outcomes
    assert len(set(result.texts)) == 3
    with pytest.raises(UnsupportedError, match="a stream is one sequence"):
        next(call.stream())


def test_a_required_call_that_does_not_come_is_an_error_on_every_route(loaded: tuple[Any, Any]) -> None:
    def make() -> ReplyCall[Guard]:
        return call_of(loaded, text="Hello.", **OFFERED, requires_call=True)

    async def streamed() -> None:
        async for _ in make().astream():
            pass

    uses: list[Callable[[], Any]] = [
        lambda: make().run(),
        lambda: [*make().stream()],
        lambda: asyncio.run(make().arun()),
        lambda: asyncio.run(streamed()),
    ]
    for use in uses:
        with pytest.raises(GenerationError, match=r"none that can be read \(outcome: ended\)"):
            use()


def test_rules_read_the_prompt_with_the_beginning_of_the_call(loaded: tuple[Any, Any]) -> None:
    # The template ends a turn by special tokens, so "Cohen?" and the reply meet.
    assert call_of(loaded, text="Black").run().content[:2] != "Bl"
    begun = '<tool_call>{"name": "find", "arguments": {"key": "'
    read: dict[str, Any] = {"text": 'x"}}</tool_call>Done', **OFFERED, "begun": begun}
    for said, met in (("Cohen?Done", False), ('"key": "Done', True)):
        rule = StringRule(id="begun", strings=[said], context="prompt")
        call = call_of(loaded, guard=Guard(Policy(name="begun", rules=[rule])), **read)
        if met:
            assert not call.run().content.startswith("Done")
            call._regions = None
            with pytest.raises(ViolationError, match="begun"):
                call.run()
        else:
            assert call.run().content == "Done"


def test_escapes_are_read_where_somebody_parses_the_text(loaded: tuple[Any, Any]) -> None:
    said = r'{"a": "\u0042luebird"}'
    assert call_of(loaded, text=said).run().content == said
    with pytest.raises(ViolationError, match="read as JSON"):
        call_of(loaded, text=said, escapes=True).run()
    shown: list[str] = []
    with pytest.raises(ViolationError, match="read as JSON"):
        shown.extend(reply.delta for reply in call_of(loaded, text=said, escapes=True).stream())
    assert GUARD.verify([*readings("".join(shown))][-1].text).ok
    seeing = seeing_through_json(GUARD)
    round_it = call_of(loaded, text=said, escapes=True, guard=seeing).run().content
    assert round_it.startswith(r'{"a": "\u0042luebir')
    assert seeing.verify(round_it).ok


def test_runs_carry_the_caller_s_id_whatever_thread_they_are_in(loaded: tuple[Any, Any]) -> None:
    sink = MemorySink()
    guard = Guard(GUARD.policy, audit=sink)
    routes(lambda: call_of(loaded, guard=guard, parent_id="span-1", options={"max_new_tokens": 2}))
    started = [event for event in sink.events if event.kind == "run_started"]
    assert [event.parent_id for event in started] == ["span-1"] * 4


def test_whoever_leaves_stops_the_generation_on_every_route(loaded: tuple[Any, Any]) -> None:
    sink = MemorySink()
    guard = Guard(GUARD.policy, audit=sink)

    def make(**options: Any) -> ReplyCall[Guard]:
        never = {"max_new_tokens": 800, "suppress_tokens": [loaded[1].eos_token_id]}
        return call_of(loaded, guard=guard, options={**never, **options})

    pieces = make().stream()
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]

    async def leaves() -> None:
        asked = make().astream()
        assert (await anext(asked)).delta
        await asked.aclose()  # type: ignore[attr-defined]
        held = Held(5)
        waiting = asyncio.create_task(make(logits_processor=[held]).arun())
        while not held.reached.is_set():
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        held.go.set()
        for _ in range(3000):
            if len(finished()) == 3:
                return
            await asyncio.sleep(0.02)

    def finished() -> list[int]:
        return [event.tokens for event in sink.events if event.kind == "run_finished"]

    asyncio.run(leaves())
    assert len(finished()) == 3
    assert all(tokens < 800 for tokens in finished())
    assert finished()[-1] < 10


NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


def test_pieces_come_as_they_are_written_in_the_caller_s_context() -> None:
    def run(write: Callable[[str], None], left: threading.Event) -> None:
        for piece in ("a", NAME.get(), "b"):
            write(piece)

    def fails(write: Callable[[str], None], left: threading.Event) -> None:
        write("a")
        raise ArithmeticError("broken")

    async def read(generate: Any) -> list[str]:
        got: list[str] = []
        try:
            got.extend([piece async for piece in in_pieces_async(generate)])
        except ArithmeticError:
            got.append("error")
        return got

    token = NAME.set("somebody")
    try:
        assert [*in_pieces(run)] == asyncio.run(read(run)) == ["a", "somebody", "b"]
        assert asyncio.run(read(fails)) == ["error"]
        assert asyncio.run(aside(lambda left: (NAME.get(), left.is_set()))) == ("somebody", False)
    finally:
        NAME.reset(token)


@pytest.mark.parametrize(
    "text", ["Bluebird", r"Bl\u0075ebird", r"\"Bluebird\"", r"Bl\\u0075ebird", "Blue", r"\u0042lue", r"\/"]
)
def test_seeing_through_json_is_the_rules_on_the_text_and_on_its_escapes_read_once(text: str) -> None:
    seeing = seeing_through_json(GUARD)
    once = [*readings(text)][:2]
    assert seeing.verify(text).ok == all(GUARD.verify(reading.text).ok for reading in once)
    assert seeing_through_json(GUARD) is seeing
    assert seeing_through_json(seeing) is seeing
    assert seeing.log.digest != GUARD.log.digest
