"""Routes of the core beside generation: sessions by hand, what explains and reviews, what records and reads records."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nco_guard import Guard, Verifier
from nco_guard.analysis import overblocking, refused_tokens, review, review_bound, sentences
from nco_guard.audit import (
    Event,
    HmacSigner,
    JsonLinesSink,
    correlated,
    fan_out,
    keyed_digests,
    make_anchor,
    outcome_of,
    parse_event,
    read_anchors,
    read_events,
    tolerant,
    value_hmac,
    verify_log,
)
from nco_guard.audit.report import read_report, render_report
from nco_guard.scan import StreamVerifier
from nco_guard.session import Session
from tests.leaks.local import insisting, tokenizer
from tests.leaks.routes import Route, Run, route
from tests.leaks.routes_core import LENGTH, command_called, policy_file, text_file

__all__ = ["ROUTES"]

ROUTES: list[Route] = []
_KEY = b"k" * 32


def _within(path: str, names: str) -> list[str]:
    """Names of a module or a class, with its path."""
    return [f"{path}.{name}" for name in names.split()]


# -- sessions --------------------------------------------------------------------------------------------------


@route(
    ROUTES,
    "Session, forked and taken back",
    carries=["written"],
    covers=[
        *("nco_guard.session.Session", "nco_guard.session.BoundGuard", "nco_guard.session.TextState"),
        *_within(
            "nco_guard.session.Session",
            "forbidden_ids mask penalties advance explain may_end dead_end ended token_ids text with_guard fork "
            "rollback",
        ),
        *_within("nco_guard.session.BoundGuard", "session prompt_text context_bytes stats explaining tables"),
        *_within("nco_guard.analysis", "Explanation TokenExplanation RuleExplanation Reason"),
    ],
)
def sessions(run: Run) -> None:
    bound, other = run.guard().bind(tokenizer()), Guard(run.policy).bind(tokenizer())
    one: Session = bound.session()
    model = insisting(run.value())
    for step in range(LENGTH):
        written = b"".join(bound.vocabulary.tokens[index] for index in one.token_ids)
        scores = np.full(bound.vocabulary.width, -1.0)
        for index, gain in model._wanted(written):
            scores[index] = gain
        masked = one.mask(LENGTH - step)
        scores[masked] = -np.inf
        scores -= one.penalties()
        if step % 9 == 4:
            one = one.fork() if step % 2 else one.with_guard(other)
        one.advance(int(scores.argmax()))
        if step % 7 == 3 and not one.ended:
            kept = one.fork()
            one.rollback(2)
            run.places.add("text taken back", one.text)
            one = kept
        if one.ended:
            break
    run.places.returned(one.text)
    for explained in (one.explain(), one.explain(5)) if not one.ended else ():
        run.places.add("explanation", [explained, repr(explained), explained.to_dict()])
    states = [one.may_end, one.dead_end, one.forbidden_ids().tolist(), one.penalties().tolist()]
    run.places.add("states", [repr(states), repr(one), repr(bound.stats), bound.prompt_text(one.token_ids)])
    run.places.add("context", bound.context_bytes(one.token_ids))
    with bound.explaining() as explainer:
        run.places.add("explainer", [repr(explainer), str(explainer)])


# -- finished text ---------------------------------------------------------------------------------------------

_silent = partial(route, ROUTES, carries=["text"], silent=True)


@_silent(
    "Verifier, each of its methods",
    covers=[
        *_within(
            "nco_guard.scan.Verifier", "of digest steps verify verify_many broken allows find_many stream"
        ),
        *_within("nco_guard.scan.StreamVerifier", "report held"),
    ],
)
def verifier(run: Run) -> None:
    found, text = Verifier.of(run.guard()), run.value()
    report = found.verify(text, context=text)
    shown = [report, found.verify_many([text]), [*found.find_many([text])], found.stream().feed(text)]
    run.places.add("findings", [*shown, repr(shown), found.broken(report.findings), found.allows(text)])
    run.places.add("verifier", [repr(found), found.digest, found.steps])
    stream = StreamVerifier(run.policy, action="redact")
    stream.feed(text)
    run.places.add("stream", [repr(stream), stream.held, stream.report, repr(stream.report)])


@route(
    ROUTES,
    "StreamVerifier, whole",
    carries=["text"],
    covers=_within("nco_guard.scan.StreamVerifier", "feed finish"),
    unchanged=True,
)
def stream_verifier(run: Run) -> None:
    stream = StreamVerifier(run.policy)
    run.places.returned(stream.feed(run.value()) + stream.finish())


# -- analysis --------------------------------------------------------------------------------------------------


@_silent(
    "reviews",
    covers=_within(
        "nco_guard.analysis",
        "overblocking refused_tokens review review_bound Overblocking RuleBlocking TokenBlocking Advice Remark",
    ),
)
def reviews(run: Run) -> None:
    text = run.value()
    bound = run.guard().bind(tokenizer())
    tokens = refused_tokens(bound, lambda one: tokenizer().encode(one), [text])
    found: list[Any] = [overblocking(run.policy, sentences(text)), tokens]
    found += [*review(run.policy), *review_bound(bound)]
    run.places.add("reviews", [*found, repr(found), *(one.to_dict() for one in found[:2])])


@_silent("nco-guard check", covers=["nco_guard.cli.check"])
def check(run: Run) -> None:
    """But for `--show`, which prints texts of the corpus to whoever asks for them."""
    for options in ([], ["--json"]):
        command_called(run, ["check", str(policy_file(run)), "--corpus", str(text_file(run)), *options])


@_silent("nco-guard check, a tokenizer", covers=["nco_guard.cli.check"])
def check_bound(run: Run) -> None:
    named = ["--tokenizer", str(_tokenizer_file(run)), "--corpus", str(text_file(run)), "--sentences"]
    command_called(run, ["check", str(policy_file(run)), *named])


@_silent("nco-guard explain", covers=["nco_guard.cli.explain"])
def explain(run: Run) -> None:
    for options in ([], ["--json"]):
        named = ["--tokenizer", str(_tokenizer_file(run)), "--text", run.value(), *options]
        command_called(run, ["explain", str(policy_file(run)), *named])


def _tokenizer_file(run: Run) -> Path:
    tokenizer().save_pretrained(run.places.folder / "tokenizer")
    return run.places.folder / "tokenizer" / "tokenizer.json"


# -- records ---------------------------------------------------------------------------------------------------


class _Failing:
    """A sink that quotes what it cannot write."""

    def __init__(self, quoted: str) -> None:
        self.quoted = quoted

    def __call__(self, event: Event) -> None:
        raise OSError(f"cannot write {self.quoted}")


@_silent(
    "a recorder's log, read back",
    covers=[
        *_within(
            "nco_guard.audit",
            "RunRecorder PolicyLog History RunSummary Event AnyEvent Sink JsonLinesSink LoggingSink MemorySink "
            "EventLog PolicyLoaded GuaranteeConfigured RunStarted RunFinished Verification Span LoadedRule DecodeView "
            "correlated fan_out keyed_digests tolerant value_hmac outcome_of parse_event read_events",
        ),
    ],
)
def recorded(run: Run) -> None:
    text, log = run.value(), run.places.folder / "recorded.jsonl"
    with JsonLinesSink(log) as lines:
        sink = fan_out(keyed_digests(lines, _KEY), tolerant(_Failing(text)), run.sink)
        guard = Guard(run.policy, audit=sink, correlation_key=_KEY)
        with correlated(request_id="r-1", parent_id="p-1"):
            record = guard.log.recorder()
            record.begin(run.policy, sequences=1)
            record.report(guard.verify(text), sequence=0, text=text)
            outcome = outcome_of({"finish_reason": text}, text)
            record.finished(outcomes=[outcome], error=ValueError(text))
    run.places.add("log", log.read_text())
    read = read_events(log)
    run.places.add(
        "events", [repr(read), *(repr(parse_event(one.model_dump(mode="json"))) for one in read.events)]
    )
    run.places.add("keyed values", [value_hmac(_KEY, text), outcome])
    history = guard.log.history
    run.places.add("history", [repr(history), repr(history.runs), history.interventions, history.findings])
    run.places.add("log of the guard", [repr(guard.log), guard.log.digest])


@_silent(
    "a log that was written by somebody else",
    covers=[
        *_within("nco_guard.audit", "verify_log log_files make_anchor read_anchors Anchor Head ChainSummary"),
        *_within("nco_guard.audit", "IntegrityReport Problem Intervention DeadEnd"),
        *_within("nco_guard.audit", "HmacSigner"),
        *_within("nco_guard.audit.report", "AuditReport EventTable LogReport read_report render_report"),
    ],
)
def judged(run: Run) -> None:
    """What a log holds beside what this library writes stands in no verdict and in no report."""
    log, signer = run.places.folder / "judged.jsonl", HmacSigner(_KEY)
    with JsonLinesSink(log, signer=signer) as lines:
        guard = Guard(run.policy, audit=lines)
        guard.generate(insisting("fine"), tokenizer(), "assistant:~ ", max_new_tokens=6, do_sample=False)
    anchor = make_anchor(verify_log(log, verifier=signer), signer)
    anchors = run.places.folder / "anchors.jsonl"
    anchors.write_text(anchor.to_json() + "\n")
    honest = verify_log(log, verifier=signer, anchors=read_anchors(anchors))
    run.places.add("verdict", [repr(honest), repr(anchor), anchors.read_text()])
    with log.open("a") as more:
        more.write(json.dumps({"kind": "verification", "note": run.value()}) + "\n" + json.dumps(run.value()))
    report = read_report(log, verifier=signer, anchors=[anchor])
    verdict = verify_log(log, verifier=signer, anchors=[anchor])
    run.places.add("verdict about more", [repr(verdict), *(str(one) for one in verdict.problems)])
    run.places.add("report", [repr(report), render_report(report)])
    logging.getLogger(__name__).debug("%s", verdict)
