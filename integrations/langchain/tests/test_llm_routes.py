"""`GuardedPipeline`: every route, what it gives verified; the plain pipeline writes what is forbidden on each of
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from checks import check_stream, check_text, verify
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import FakeListLLM
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import Runnable
from langchain_huggingface import ChatHuggingFace, HuggingFacePipeline

from langchain_nco_guard import GuardedPipeline
from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.demo import chat, model_path
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.errors import DeadEndError, PolicyError, TokenizerError, UnsupportedError

QUESTIONS = ["How can I reach Daniel Cohen?", "What contact details do we have for Maria Lopez?"]


@pytest.fixture(scope="module")
def prompts(loaded: tuple[Any, Any]) -> list[str]:
    return [
        loaded[1].apply_chat_template(chat(question, None), tokenize=False, add_generation_prompt=True)
        for question in QUESTIONS
    ]


@pytest.fixture(scope="module")
def llm(pipe: Any, policy: Policy) -> GuardedPipeline:
    return GuardedPipeline(pipeline=pipe, guard=policy)


def bound(llm: GuardedPipeline) -> Runnable[Any, str]:
    return llm.bind(pipeline_kwargs={"max_new_tokens": 16})


def configured(llm: GuardedPipeline) -> Runnable[Any, str]:
    return llm.with_config(tags=["t"])


def as_fallback(llm: GuardedPipeline) -> Runnable[Any, str]:
    return FakeListLLM(responses=[]).with_fallbacks([llm])


def in_a_chain(llm: GuardedPipeline) -> Runnable[Any, str]:
    return PromptTemplate.from_template("{text}") | llm | StrOutputParser()


def retrying(llm: GuardedPipeline) -> Runnable[Any, str]:
    return llm.with_retry(stop_after_attempt=2)


WAYS: list[Callable[[GuardedPipeline], Any]] = [
    lambda llm: llm,
    bound,
    configured,
    as_fallback,
    retrying,
    in_a_chain,
]


@pytest.mark.parametrize("way", WAYS, ids=["plain", "bind", "with_config", "fallback", "with_retry", "chain"])
async def test_every_route_is_guarded(
    way: Callable[[GuardedPipeline], Any], llm: GuardedPipeline, policy: Policy, prompts: list[str]
) -> None:
    runnable = way(llm)
    first = check_text(policy, runnable.invoke(prompts[0]))
    assert first == check_text(policy, await runnable.ainvoke(prompts[0]))
    for answers in (runnable.batch(prompts), await runnable.abatch(prompts)):
        assert check_text(policy, answers[0]) == first
        check_text(policy, answers[1])
    assert check_stream(policy, list(runnable.stream(prompts[0]))) == first
    assert check_stream(policy, [piece async for piece in runnable.astream(prompts[0])]) == first
    events = [event async for event in runnable.astream_events(prompts[0], version="v2")]
    streamed = [event["data"]["chunk"] for event in events if event["event"] == "on_llm_stream"]
    assert check_stream(policy, [str(getattr(piece, "text", piece)) for piece in streamed]) == first


def test_the_plain_pipeline_writes_what_is_forbidden(pipe: Any, policy: Policy, prompts: list[str]) -> None:
    bare = HuggingFacePipeline(pipeline=pipe)
    assert not verify(policy, bare.bind(skip_prompt=True).invoke(prompts[0])).ok
    assert not verify(policy, "".join(bare.stream(prompts[0]))).ok


async def test_langchains_chat_wrapper_around_it_is_guarded_or_fails(
    llm: GuardedPipeline, policy: Policy
) -> None:
    """`ChatHuggingFace` over a guarded pipeline: what it can do is guarded, what it cannot raises."""
    chat = ChatHuggingFace(llm=llm)
    assert chat.invoke(QUESTIONS[0]).text == check_text(policy, chat.invoke(QUESTIONS[0]).text) != ""
    assert check_stream(policy, [chunk.text for chunk in chat.stream(QUESTIONS[0])])
    with pytest.raises(NotImplementedError):
        await chat.ainvoke(QUESTIONS[0])
    with pytest.raises(UnsupportedError, match="tools"):
        chat.bind_tools([]).invoke(QUESTIONS[0])


def test_the_output_is_without_the_prompt(llm: GuardedPipeline, prompts: list[str]) -> None:
    assert not llm.invoke(prompts[0]).startswith(prompts[0][:20])
    assert llm.invoke(prompts[0]).startswith("Daniel Cohen can be")


async def test_a_call_may_have_its_own_policy(
    llm: GuardedPipeline, policy: Policy, other_policy: Policy, prompts: list[str]
) -> None:
    prompt = prompts[0]
    own = llm.invoke(prompt, guard=other_policy)
    assert "Daniel" not in own
    assert own != llm.invoke(prompt)
    assert own == await llm.ainvoke(prompt, guard=other_policy)
    assert own == llm.bind(guard=other_policy).invoke(prompt)
    assert own == llm.batch([prompt], guard=other_policy)[0]
    assert own == "".join(llm.stream(prompt, guard=other_policy))
    assert own == "".join([piece async for piece in llm.astream(prompt, guard=Guard(other_policy))])
    assert check_text(policy, llm.invoke(prompt))


async def test_the_cache_tells_policies_options_and_the_bare_pipeline_apart(
    cache: InMemoryCache,
    pipe: Any,
    llm: GuardedPipeline,
    policy: Policy,
    other_policy: Policy,
    prompts: list[str],
) -> None:
    prompt = prompts[0]
    bare = HuggingFacePipeline(pipeline=pipe).bind(skip_prompt=True).invoke(prompt)
    assert not verify(policy, bare).ok
    first = check_text(policy, llm.invoke(prompt))
    second = GuardedPipeline(pipeline=pipe, guard=other_policy).invoke(prompt)
    third = llm.invoke(prompt, guard=other_policy)
    assert len({bare, first, second}) == 3
    assert second == third
    assert check_text(policy, await llm.ainvoke(prompt)) == first
    assert llm.invoke(prompt, pipeline_kwargs={"max_new_tokens": 3}) != first
    kept = len(cache._cache)
    assert llm.invoke(prompt) == first
    assert len(cache._cache) == kept


@pytest.mark.parametrize("stop", ["reached", " or by", "."])
async def test_stop_strings_are_honoured_on_every_route_and_left_out(
    llm: GuardedPipeline, policy: Policy, prompts: list[str], stop: str
) -> None:
    prompt = prompts[0]
    whole = llm.invoke(prompt)
    assert stop in whole
    answer = check_text(policy, llm.invoke(prompt, stop=[stop]))
    assert answer == whole[: whole.index(stop)]
    assert check_stream(policy, list(llm.stream(prompt, stop=[stop, "never"]))) == answer
    assert await llm.ainvoke(prompt, stop=[stop]) == answer
    assert check_stream(policy, [p async for p in llm.astream(prompt, stop=[stop])]) == answer
    assert llm.batch([prompt], stop=[stop]) == [answer]


def test_text_that_is_cut_by_a_stop_string_may_end_there(pipe: Any, prompts: list[str]) -> None:
    """`\\bcan\\b` never matches in "cannot"; cut before "not" it would."""
    bordered = Policy(name="p", rules=(StringRule(id="w", strings=("reac",), whole_word=True),))
    llm = GuardedPipeline(pipeline=pipe, guard=bordered)
    assert "reached" in llm.invoke(prompts[0])
    for answer in (llm.invoke(prompts[0], stop=["hed"]), "".join(llm.stream(prompts[0], stop=["hed"]))):
        assert answer.endswith("can be rea")
        check_text(bordered, answer)


async def take(llm: GuardedPipeline, route: str, prompt: str) -> None:
    if route == "invoke":
        llm.invoke(prompt)
    elif route == "stream":
        list(llm.stream(prompt))
    elif route == "ainvoke":
        await llm.ainvoke(prompt)
    else:
        async for _ in llm.astream(prompt):
            pass


@pytest.mark.parametrize("route", ["invoke", "stream", "ainvoke", "astream"])
async def test_an_error_in_decoding_arrives_typed(pipe: Any, route: str) -> None:
    nothing = Policy(name="nothing", rules=(RegexRule(id="all", regex=r"(?s)."),))
    # Neither text nor the end: what is left are tokens without text.
    silent = bind_to_model(Guard(nothing), pipe.model, pipe.tokenizer).vocabulary.silent_ids
    options = {"min_new_tokens": 4, "suppress_tokens": sorted(silent)}
    llm = GuardedPipeline(pipeline=pipe, guard=nothing, pipeline_kwargs=options)
    with pytest.raises(DeadEndError):
        await take(llm, route, "Hello there")


def test_an_answer_of_no_text_is_an_answer(pipe: Any, prompts: list[str]) -> None:
    nothing = Policy(name="nothing", rules=(RegexRule(id="all", regex=r"(?s)."),))
    llm = GuardedPipeline(pipeline=pipe, guard=nothing)
    assert llm.invoke(prompts[0]) == "".join(llm.stream(prompts[0])) == ""


def test_a_stream_may_be_left_early(llm: GuardedPipeline, prompts: list[str]) -> None:
    pieces = llm.stream(prompts[0])
    assert next(pieces)
    pieces.close()


def test_several_sequences_are_all_returned_and_all_clean(
    llm: GuardedPipeline, policy: Policy, prompts: list[str]
) -> None:
    options = {"num_return_sequences": 3, "num_beams": 3}
    result = llm.generate(prompts, pipeline_kwargs=options)
    assert [len(row) for row in result.generations] == [3, 3]
    for row in result.generations:
        for generation in row:
            check_text(policy, generation.text)
    for several in (options, {"num_beams": 3}, {"num_return_sequences": 2, "do_sample": True}):
        with pytest.raises(UnsupportedError, match="a stream is one sequence"):
            next(llm.stream(prompts[0], pipeline_kwargs=several))


def test_a_model_path_and_an_existing_llm_do_as_well(
    pipe: Any, policy: Policy, prompts: list[str], llm: GuardedPipeline
) -> None:
    loaded = GuardedPipeline.from_model_id(
        str(model_path()), guard=policy, pipeline_kwargs={"max_new_tokens": 24, "do_sample": False}
    )
    assert check_text(policy, loaded.invoke(prompts[0])) == llm.invoke(prompts[0])
    ignored = HuggingFacePipeline(pipeline=pipe, pipeline_kwargs={"max_new_tokens": 5})
    short = GuardedPipeline(pipeline=ignored, guard=policy).invoke(prompts[0])
    assert short == "Daniel Cohen can be reached"


def test_runs_are_recorded_in_the_guards_audit_sink(pipe: Any, policy: Policy, prompts: list[str]) -> None:
    sink = MemorySink()
    llm = GuardedPipeline(pipeline=pipe, guard=Guard(policy, audit=sink))
    "".join(llm.stream(prompts[0]))
    llm.invoke(prompts[0], guard=Policy(name="p", rules=(StringRule(id="x", strings=("Daniel",)),)))
    kinds = [event.kind for event in sink.events]
    assert kinds.count("run_started") == kinds.count("run_finished") == 2
    assert "intervention" in kinds


def test_the_pipeline_that_it_holds_is_guarded(
    pipe: Any, policy: Policy, prompts: list[str], llm: GuardedPipeline
) -> None:
    """By the guard that it has, also in copies and where one is set later."""
    strict = Guard(Policy(name="strict", rules=(StringRule(id="x", strings=("Daniel",)),)))

    def text(of: GuardedPipeline) -> str:
        answer: str = of.pipeline(prompts[0], return_full_text=False)[0]["generated_text"]
        return answer

    plain = pipe(prompts[0], return_full_text=False)[0]["generated_text"]
    assert not Guard(policy).verify(plain).ok
    assert check_text(policy, text(llm))
    assert "Daniel" in text(llm)
    assert "Daniel" not in text(llm.model_copy(update={"guard": strict}))
    changed = llm.model_copy()
    changed.guard = strict
    assert "Daniel" not in text(changed)
    assert "Daniel" not in changed.invoke(prompts[0])
    changed.pipeline = pipe
    assert "Daniel" not in text(changed)
    assert "Daniel" in text(llm)
    with pytest.raises(UnsupportedError, match="forward: not guarded"):
        llm.pipeline.forward({})


def test_bad_usage_is_refused_at_construction(pipe: Any, policy: Policy, llm: GuardedPipeline) -> None:
    def build(**options: Any) -> GuardedPipeline:
        return GuardedPipeline(**{"pipeline": pipe, "guard": policy, **options})

    with pytest.raises(UnsupportedError, match="guarded already"):
        build(pipeline=Guard(policy).wrap(pipe))
    with pytest.raises(UnsupportedError, match="pass one, or use"):
        build(pipeline=None)
    with pytest.raises(UnsupportedError, match="prompt is never part"):
        build(pipeline_kwargs={"return_full_text": True})
    with pytest.raises(UnsupportedError, match="use stream"):
        build(pipeline_kwargs={"streamer": object()})
    with pytest.raises(UnsupportedError, match="penalty_alpha"):
        build(pipeline_kwargs={"penalty_alpha": 0.6})
    with pytest.raises(PolicyError):
        build(guard="no-such-file.txt")
    with pytest.raises(TypeError, match="a Guard, a Policy, the path"):
        build(guard=3)
    with pytest.raises(UnsupportedError, match="task"):
        GuardedPipeline.from_model_id("anything", "summarization", guard=policy)


def test_a_tokenizer_that_does_not_fit_is_refused_at_construction(
    loaded: tuple[Any, Any], policy: Policy
) -> None:
    from transformers import pipeline

    model, tokenizer = loaded
    import copy

    grown = copy.deepcopy(tokenizer)
    grown.add_tokens([f"<extra{i}>" for i in range(50)])
    with pytest.raises(TokenizerError, match="columns"):
        GuardedPipeline(pipeline=pipeline("text-generation", model=model, tokenizer=grown), guard=policy)


def test_options_that_would_go_unheeded_are_refused_when_called(
    llm: GuardedPipeline, prompts: list[str]
) -> None:
    with pytest.raises(UnsupportedError, match=r"it is pipeline_kwargs=\{\"max_new_tokens"):
        llm.invoke(prompts[0], max_new_tokens=5)
    with pytest.raises(UnsupportedError, match="logits_processor"):
        list(llm.stream(prompts[0], logits_processor=[]))


@pytest.mark.parametrize("name", ["guards", "tables", "skip_special_tokens", "on_step", "stop_strings"])
def test_options_hold_no_argument_of_the_guard(name: str) -> None:
    policy = Policy.from_presets("pii")
    with pytest.raises(UnsupportedError, match=name):
        GuardedPipeline.from_model_id(str(model_path()), guard=policy, pipeline_kwargs={name: ["a"]})
    llm = GuardedPipeline.from_model_id(
        str(model_path()), guard=policy, pipeline_kwargs={"max_new_tokens": 4}
    )
    with pytest.raises(UnsupportedError, match=name):
        llm.invoke("hi", pipeline_kwargs={name: ["a"]})
