"""The ways that README and docs show, once each, as a user's type checker sees them; what is wrong is marked.

Nothing in here runs: `test_api.py` has mypy and pyright read it, strictly. Both count a mark that nothing needs as a
mistake, so an error that is no longer found shows as well as one that is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Unpack, assert_type

import numpy as np
import torch
from interegular.fsm import FSM
from numpy.typing import NDArray

from nco_guard import (
    AutomatonRule,
    BoundGuard,
    Finding,
    Guard,
    NCOGuardError,
    Policy,
    PolicyError,
    RegexRule,
    Report,
    Session,
    StringRule,
    Verifier,
    presets,
    verify,
)
from nco_guard.analysis import Overblocking, Remark, overblocking, review
from nco_guard.audit import (
    AnyEvent,
    JsonLinesSink,
    MemorySink,
    RunRecorder,
    correlated,
    fan_out,
    policy_hmac,
    read_events,
    verify_log,
)
from nco_guard.engines.hf import (
    GenerationOptions,
    GenerationResult,
    GuardLogitsProcessor,
    StepReport,
    WrappedPipeline,
)
from nco_guard.engines.hf.continuous import ContinuousBatch, RequestResult, generate_batch
from nco_guard.policy import CheckDigits, Rule
from nco_guard.replies import ReplyReader
from nco_guard.scan import Redaction, StreamVerifier
from nco_guard.values import Cleaner, Role, ValueStream, register


def rules(words: list[str], fsm: FSM, rules_of_somebody: list[StringRule]) -> None:
    word = StringRule(id="word", strings=words)
    assert_type(word.strings, tuple[str, ...])
    assert_type(word.mode, Literal["hard", "soft", "monitor"])
    StringRule(id="word", strings=("a", "b"), case="fold", whole_word=True, ignore=["zero-width", "*"])
    RegexRule(id="ticket", regex=r"\bTCK-\d{6}\b", stop_at=r"\bTCK-\d", penalty=3, context="prompt")
    RegexRule(
        id="card", regex=r"\d{16}", checksum="luhn", normalize="nfkc", confusables="leet", json_escapes=True
    )
    nhs = CheckDigits(modulus=11, weights=[10, 9, 8, 7, 6, 5, 4, 3, 2, 1])
    assert_type(nhs.weights, tuple[int | str, ...] | None)
    RegexRule(id="nhs", regex=r"\d{10}", checksum=nhs)
    RegexRule(id="nie", regex="a", checksum={"modulus": 23, "check": "TRWAGMYFPDXBNJZSQVHLCKE"})
    RegexRule(id="both", regex="a", checksum=["luhn", nhs, {"modulus": 7}])
    CheckDigits(modulus=5, weights=["t"], letters={"A": "10"}, tables={"t": {"0": 1}}, repeat="right")
    AutomatonRule(id="pair", fsm=fsm, monitor=True, description="two")

    StringRule(id="word", strings="codeword")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    StringRule(strings=["a"])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    RegexRule(id="a", regex="a", checksum="crc32")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    CheckDigits(weights=[1])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    StringRule(id="a", strings=["a"], case="insensitive")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    StringRule(id="a", strings=["a"], ignorecase=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    RegexRule(id="a", regex="a", ignore="*")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    policy = Policy(name="mine", rules=[word, {"preset": "pii"}], on_dead_end="fallback", fallback=".")
    Policy(name="theirs", rules=rules_of_somebody, description="", on_audit_failure="warn")
    Policy(name="tuple", rules=(word,))
    assert_type(policy.rules, tuple[Rule, ...])
    assert_type(policy.with_rules(word, {"id": "b", "strings": ["b"]}).without("word"), Policy)
    assert_type(policy.to_yaml(), str)
    Policy(name="none")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Policy(name="text", rules=["pii"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def policies(path: Path) -> None:
    assert_type(Policy.from_file(path), Policy)
    assert_type(Policy.from_yaml("name: a"), Policy)
    assert_type(Policy.from_json("{}"), Policy)
    assert_type(Policy.from_presets("pii", "secrets", name="ours", json_escapes=True), Policy)
    assert_type(
        presets.load("pii", only=["email"], except_=("ssn",), valid_only=True, stop="early"), tuple[Rule, ...]
    )
    presets.load("ldnoobw", languages="all", penalty=4.0)
    presets.load("pii", valid="yes")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Policy.from_presets("pii", only="email")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Policy.from_presets(["pii"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def guards(policy: Policy, rule: StringRule, log: JsonLinesSink) -> None:
    guard = Guard(policy, audit=log, cache=True, correlation_key=bytes(16), digest_key=None)
    assert_type(Guard.from_presets("pii", audit=fan_out(log, MemorySink()), context="prompt"), Guard)
    assert_type(Guard.from_file("policy.yaml", cache=Path("cache")), Guard)
    assert_type(guard.with_rules(rule).without("word").with_policy(policy), Guard)
    assert_type(guard.policy.digest, str)
    Guard("pii")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Guard(policy, audit="audit.jsonl")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.policy = policy  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    try:
        Guard.from_presets("pii")
    except PolicyError as error:
        assert_type(error.rule_id, str | None)
        assert_type(error.field, str | None)
    except NCOGuardError:
        raise


def texts(guard: Guard, policy: Policy) -> None:
    report = guard.verify("text", context="before")
    assert_type(guard.verify(parts=["te", "xt"]).findings[0].part, int | None)
    assert_type(report, Report)
    assert_type(report.ok, bool)
    for found in report.findings:
        assert_type(found, Finding)
        assert_type((found.rule_id, found.start, found.end), tuple[str, int, int])
    assert_type(verify(policy, "text"), Report)
    verifier = Verifier(policy)
    assert_type(verifier.verify_many(["a", "b"]), list[Report])
    assert_type(guard.verifier, Verifier)
    assert_type(verifier.stream().feed("piece"), list[Finding])
    redaction = guard.redact("text", replacement="***")
    assert_type(redaction, Redaction)
    assert_type(redaction.text, str)
    guard.redact("text", replacement=lambda rule_id: f"[{rule_id}]")
    stream = guard.stream_verifier(action="raise")
    assert_type(stream, StreamVerifier)
    assert_type(stream.feed("piece") + stream.finish(), str)
    guard.verify(b"text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.stream_verifier(action="block")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def models(guard: Guard, model: Any, tokenizer: Any, ids: torch.Tensor, pipe: Any) -> None:
    result = guard.generate(
        model, tokenizer, ["a", "b"], guards=[guard, None], max_new_tokens=4, temperature=0.8
    )
    assert_type(result, GenerationResult)
    assert_type(result.texts, list[str])
    assert_type(result.token_ids, list[list[int]])
    assert_type(result.reports, list[Report])
    guard.generate(model, tokenizer, ids, attention_mask=ids, tables="auto", on_step=step)
    guard.generate(model, tokenizer, tokenizer("a", return_tensors="pt"), stop_strings=["."], num_beams=2)
    guard.generate(model, tokenizer, [{"role": "user", "content": "Hello"}], logits_processor=[unchanged])
    for piece in guard.stream(model, tokenizer, "a", max_new_tokens=4, do_sample=True, top_k=None):
        assert_type(piece, str)
    assert_type(guard.wrap(pipe), WrappedPipeline)

    guard.generate(model, tokenizer, "a", temprature=0.8)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    guard.generate(model, tokenizer, "a", max_tokens=4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    guard.generate(model, tokenizer, "a", penalty_alpha=0.6)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    guard.generate(model, tokenizer, "a", temperature="warm")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.generate(model, tokenizer, "a", tables="gpu")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.generate(model, tokenizer, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.stream(model, tokenizer, "a", num_beams=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    guard.stream(model, tokenizer, ["a", "b"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def step(report: StepReport) -> None:
    print(report)


def unchanged(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return scores


class Assistant:
    """A program's own function that hands options on."""

    def __init__(self, guard: Guard, model: Any, tokenizer: Any) -> None:
        self.guard, self.model, self.tokenizer = guard, model, tokenizer

    def answer(self, prompt: str, **options: Unpack[GenerationOptions]) -> str:
        return self.guard.generate(self.model, self.tokenizer, prompt, **options).texts[0]

    def use(self) -> None:
        self.answer("a", max_new_tokens=4)
        self.answer("a", max_new_token=4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def batches(guard: Guard, model: Any, tokenizer: Any) -> Iterator[RequestResult]:
    with ContinuousBatch(guard, model, tokenizer, max_new_tokens=8, temperature=0.8) as batch:
        assert_type(batch.submit("a", guard=guard, max_new_tokens=4, top_p=0.9), str)
        yield from batch.results()
    done = generate_batch(guard, model, tokenizer, ["a", [1, 2]], max_new_tokens=[3, 4], do_sample=True)
    assert_type(done, GenerationResult)
    ContinuousBatch(guard, model, tokenizer, num_beams=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def tokenizers(guard: Guard, tokenizer: Any) -> None:
    processor = guard.logits_processor(tokenizer, vocab_width=99, max_new_tokens=4, eos_token_ids=[1, 2])
    assert_type(processor, GuardLogitsProcessor)
    assert_type(processor(torch.tensor([[1]]), torch.zeros(1, 99)), torch.Tensor)
    guard.logits_processor(tokenizer, max_tokens=4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    bound = guard.bind(tokenizer, vocab_width=99)
    guard.bind(tokenizer, borders="special").vocabulary.parts_of([1, 2])
    guard.bind(tokenizer, borders=[7])
    guard.bind(tokenizer, borders="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(bound, BoundGuard)
    session = bound.session()
    assert_type(session, Session)
    assert_type(session.forbidden_ids(remaining=3), NDArray[np.int64])
    assert_type(session.penalties(), NDArray[np.float32])
    assert_type(session.text, str)
    assert_type(session.ended, bool)
    session.advance("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def diagnostics(policy: Policy) -> None:
    for remark in review(policy):
        assert_type(remark, Remark)
        assert_type(remark.rule_ids, tuple[str, ...])
    assert_type(overblocking(policy, ["a text"]), Overblocking)


def records(guard: Guard, key: bytes) -> None:
    with JsonLinesSink("audit.jsonl", max_bytes=4000) as log, correlated(request_id="1"):
        run = RunRecorder(log, request_id="request-17")
        run.intervention(sequence=0, step=12, rule_ids=["email"], removed_probability=0.31)
        run.begin(guard.policy, sequences=1)
        assert_type(run.report(guard.verify("all")).ok, bool)
        run.verification(ok=False, length=120, findings=[("email", 40, 58)])
    assert_type(read_events("audit.jsonl").events, tuple[AnyEvent, ...])
    assert_type(verify_log("audit.jsonl").problems[0].line, int)
    assert_type(policy_hmac(key, guard.policy.digest), str)


def values(guard: Guard) -> None:
    cleaner = Cleaner(guard, action="redact")
    assert_type(cleaner.rules({"to": "x"}), tuple[str, ...])
    assert_type(cleaner.stream(), ValueStream)
    register(Assistant, {"guard": Role.KEEP})
    ReplyReader(cleaner.finder.compiled).feed("text")
    Cleaner(guard, action="mask")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
