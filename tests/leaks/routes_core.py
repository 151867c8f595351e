"""Routes of the core: a guard's own methods, its sessions and processors, the command line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from transformers import BatchEncoding, ContinuousBatchingConfig
from transformers.generation import BaseStreamer
from typer.testing import CliRunner

import nco_guard
from nco_guard import Guard, Rewind, Verifier, verify
from nco_guard.audit import JsonLinesSink, read_events
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.errors import ViolationError
from nco_guard.scan import SafeEnds, exposure, require
from tests.leaks.local import insisting, knowing_tokenizer, longing, pipe_of, tokenizer
from tests.leaks.routes import Route, Run, route, routes

__all__ = ["LENGTH", "ROUTES", "command_called", "policy_file", "text_file"]

ROUTES: list[Route] = []
PROMPT = "assistant:~ "
LENGTH = 72


def _model(run: Run) -> Any:
    return insisting(run.value())


def _shown(run: Run, result: Any, by: Any = None) -> None:
    by = by or tokenizer()
    for text, ids, report in zip(result.texts, result.token_ids, result.reports, strict=True):
        run.places.add("text", text)
        run.places.add("decoded ids", by.decode(ids, skip_special_tokens=True))
        run.places.add("report", report)
    run.places.result = result.texts
    run.places.add("result", repr(result))


# -- generation ------------------------------------------------------------------------------------------------

_GENERATE: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"do_sample": True, "temperature": 0.7},
    "beams": {"num_beams": 3},
    "several sequences": {"num_beams": 3, "num_return_sequences": 2},
    "stop strings": {"stop_strings": ["Oslo", "nora.k"]},
    "device tables": {"tables": "device"},
    "going back": {"when_blocked": "rewind"},
    "going back to sentences, sampled": {"rewind": Rewind(back_to="sentence"), "do_sample": True},
    "short": {"max_new_tokens": 11},
}


_generated = partial(
    routes,
    ROUTES,
    "Guard.generate, {}",
    carries=["written"],
    covers=[
        *("nco_guard.Guard", "nco_guard.Guard.generate", "nco_guard.Policy", "nco_guard.RegexRule"),
        *(
            f"nco_guard.engines.hf.{name}"
            for name in ("generate", "GenerationResult", "DeviceLogitsProcessor")
        ),
    ],
)
#: Of eleven tokens few texts have come to the secret.
_SHORT = ("short", "stop strings")


@_generated(cases=[name for name in _GENERATE if name not in _SHORT])
@_generated(cases=_SHORT, silent=True)
def generate(run: Run, name: str) -> None:
    torch.manual_seed(0)
    options = _GENERATE[name]
    # Without a sink where the host must not be asked.
    guard = Guard(run.policy) if "tables" in options else run.guard()
    prompts = [PROMPT, f"hello {PROMPT}"] if name == "greedy" else PROMPT
    settings = {"max_new_tokens": LENGTH, "do_sample": False, **options}
    _shown(run, guard.generate(_model(run), tokenizer(), prompts, **settings))
    run.places.add(
        "guard", [repr(guard), str(guard), repr(guard.log.history), *map(repr, guard.log.history.runs)]
    )


@route(
    ROUTES,
    "Guard.generate under rules of a call",
    carries=["written"],
    covers=["nco_guard.Guard.with_policy", "nco_guard.Guard.with_rules", "nco_guard.Guard.without"],
)
def revised(run: Run) -> None:
    empty = run.guard().without(*(rule.id for rule in run.policy.rules[1:]))
    guard = empty.with_rules(*run.policy.rules[1:]).with_policy(run.policy)
    _shown(run, guard.generate(_model(run), tokenizer(), PROMPT, max_new_tokens=LENGTH, do_sample=False))


class Kept(BaseStreamer):  # type: ignore[misc]
    """Keeps each piece of ids that it is given."""

    def __init__(self) -> None:
        self.ids: list[list[int]] = []

    def put(self, value: Any) -> None:
        self.ids.append(value.flatten().tolist())

    def end(self) -> None:
        pass


@route(
    ROUTES,
    "Guard.generate, each step reported",
    carries=["written"],
    covers=["nco_guard.engines.hf.StepReport"],
)
def steps(run: Run) -> None:
    guard, seen = run.guard(), run.places
    options = {"max_new_tokens": LENGTH, "do_sample": False}
    made = guard.generate(
        _model(run), tokenizer(), PROMPT, on_step=lambda step: seen.add("step", repr(step)), **options
    )
    _shown(run, made)


@route(ROUTES, "Guard.generate, streamer", carries=["written"], covers=["nco_guard.Guard.generate"])
def streamer(run: Run) -> None:
    kept = Kept()
    _shown(
        run,
        run.guard().generate(
            _model(run), tokenizer(), PROMPT, max_new_tokens=LENGTH, do_sample=False, streamer=kept
        ),
    )
    run.places.chunks((tokenizer().decode(ids) for ids in kept.ids[1:]), "streamed ids")


@routes(
    ROUTES,
    "Guard.stream, {}",
    carries=["written"],
    covers=["nco_guard.Guard.stream", "nco_guard.engines.hf.stream", "nco_guard.engines.hf.TextStream"],
    cases=("mask", "rewind"),
)
def stream(run: Run, name: Any) -> None:
    settings = {"max_new_tokens": LENGTH, "do_sample": False, "when_blocked": name}
    pieces = run.guard().stream(_model(run), tokenizer(), PROMPT, **settings)
    run.places.returned("".join(run.places.chunks(pieces)))


#: What decodes with a cache of its own is shown a model whose longing depends on the last token alone: in these texts,
#: one of the tokens is followed by several others.
_UNWRITTEN = ("date", "all forms", "at a line's end")
_SMALL = ContinuousBatchingConfig(page_size=16, num_blocks=64, max_batch_tokens=128, seed=0)


@route(
    ROUTES,
    "generate_batch",
    carries=["written"],
    covers=["nco_guard.engines.hf.continuous.generate_batch"],
    skips=_UNWRITTEN,
    drawn=True,
)
def batch(run: Run) -> None:
    model = longing(run.value())
    made = generate_batch(
        run.guard(),
        model,
        knowing_tokenizer(),
        ["a", "b"],
        max_new_tokens=40,
        do_sample=True,
        continuous_batching_config=_SMALL,
    )
    _shown(run, made, knowing_tokenizer())


@route(
    ROUTES,
    "ContinuousBatch",
    carries=["written"],
    covers=[f"nco_guard.engines.hf.continuous.{name}" for name in ("ContinuousBatch", "RequestResult")],
    skips=_UNWRITTEN,
    drawn=True,
)
def continuous(run: Run) -> None:
    model, guard = longing(run.value()), run.guard()
    with ContinuousBatch(
        guard, model, knowing_tokenizer(), do_sample=True, continuous_batching_config=_SMALL
    ) as requests:
        requests.submit("a", max_new_tokens=40)
        texts = [run.places.add("request", result).text for result in requests.results()]
    run.places.returned(texts)


# -- pipelines -------------------------------------------------------------------------------------------------

_CALLS: dict[str, Any] = {
    "a text": lambda pipe: pipe(PROMPT),
    "texts": lambda pipe: pipe([PROMPT, "b " + PROMPT], batch_size=2),
    "a chat": lambda pipe: pipe([{"role": "user", "content": "Hello"}]),
    "without the prompt": lambda pipe: pipe(PROMPT, return_full_text=False),
    "ids": lambda pipe: tokenizer().decode(pipe(PROMPT, return_tensors=True)[0]["generated_token_ids"]),
    "an iterator": lambda pipe: list(pipe(prompt for prompt in [PROMPT])),
    "predict": lambda pipe: pipe.predict(PROMPT),
    "transform": lambda pipe: pipe.transform(PROMPT),
    "run_single": lambda pipe: pipe.run_single(PROMPT, {}, {"max_new_tokens": LENGTH}, {}),
    "forward": lambda pipe: _forwarded(pipe, pipe.forward),
    "_forward": lambda pipe: _forwarded(pipe, pipe._forward),
    "iterate": lambda pipe: list(pipe.iterate([PROMPT], {}, {"max_new_tokens": LENGTH}, {})),
    "run_multi": lambda pipe: pipe.run_multi([PROMPT], {}, {"max_new_tokens": LENGTH}, {}),
    "get_iterator": lambda pipe: list(pipe.get_iterator([PROMPT], 0, 1, {}, {"max_new_tokens": LENGTH}, {})),
    "a deep copy": lambda pipe: __import__("copy").deepcopy(pipe)(PROMPT),
    "a copy": lambda pipe: __import__("copy").copy(pipe)(PROMPT),
}


_INNER = ("run_single", "forward", "_forward", "iterate", "run_multi", "get_iterator")


def _forwarded(pipe: Any, forward: Any) -> Any:
    ids = tokenizer()(PROMPT, return_tensors="pt")
    inputs = {**BatchEncoding(ids), "prompt_text": PROMPT}
    made = forward(inputs, max_new_tokens=LENGTH, do_sample=False)
    return tokenizer().batch_decode(
        made["generated_sequence"].reshape(-1, made["generated_sequence"].shape[-1])
    )


_wrapped = partial(
    routes,
    ROUTES,
    "Guard.wrap, {}",
    carries=["written"],
    covers=["nco_guard.Guard.wrap", "nco_guard.engines.hf.wrap", "nco_guard.engines.hf.WrappedPipeline"],
)


@_wrapped(cases=[name for name in _CALLS if name not in _INNER])
# What is refused by name shows nothing.
@_wrapped(cases=_INNER, silent=True, raises=(AttributeError,))
def wrapped(run: Run, name: str) -> None:
    run.places.returned(_CALLS[name](run.guard().wrap(pipe_of(_model(run)))))


# -- processors and sessions -----------------------------------------------------------------------------------


def _bare(run: Run, processor: Any, ids: Any, tokens: int) -> Any:
    made = _model(run).generate(ids, logits_processor=[processor], max_new_tokens=tokens, do_sample=False)
    run.places.add("decoded ids", tokenizer().decode(made[0, ids.shape[1] :], skip_special_tokens=True))
    return made


def _prompt_ids() -> Any:
    return tokenizer()(PROMPT, return_tensors="pt").input_ids


@route(
    ROUTES,
    "Guard.logits_processor",
    carries=["written"],
    covers=["nco_guard.Guard.logits_processor", "nco_guard.engines.hf.GuardLogitsProcessor"],
)
def processor(run: Run) -> None:
    made = _bare(run, run.guard().logits_processor(tokenizer(), max_new_tokens=LENGTH), _prompt_ids(), LENGTH)
    run.places.returned(tokenizer().decode(made[0]))


@route(
    ROUTES,
    "Guard.logits_processor, past the length that it was told",
    carries=["written"],
    covers=["nco_guard.Guard.logits_processor"],
)
def processor_past(run: Run) -> None:
    made = _bare(run, run.guard().logits_processor(tokenizer(), max_new_tokens=5), _prompt_ids(), LENGTH)
    run.places.returned(tokenizer().decode(made[0]))


@route(
    ROUTES,
    "Guard.logits_processor, used again",
    carries=["written"],
    covers=["nco_guard.Guard.logits_processor"],
)
def processor_again(run: Run) -> None:
    used = run.guard().logits_processor(tokenizer(), max_new_tokens=20)
    ids = _prompt_ids()
    for _ in range(4):
        # The text so far, cut off and gone on with, as a chat that is continued.
        ids = _bare(run, used, ids, 20)[:, :-1]
    run.places.returned(tokenizer().decode(ids[0]))


@route(
    ROUTES,
    "Session",
    carries=["written"],
    covers=["nco_guard.Session", "nco_guard.BoundGuard", "nco_guard.Guard.bind"],
)
def session(run: Run) -> None:
    bound = run.guard().bind(tokenizer())
    one = bound.session()
    model = _model(run)
    for step in range(LENGTH):
        written = b"".join(bound.vocabulary.tokens[index] for index in one.token_ids)
        wanted = dict(model._wanted(written))
        scores = np.full(bound.vocabulary.width, -1.0)
        for index, gain in wanted.items():
            scores[index] = gain
        remaining = LENGTH - step
        scores[one.forbidden_ids(remaining)] = -np.inf
        one.advance(int(scores.argmax()))
        if one.ended:
            break
    run.places.returned(one.text)
    run.places.add("objects", [repr(one), str(one), repr(bound), str(bound), repr(bound.stats)])
    with contextlib.suppress(TypeError):
        run.places.add("explanation", repr(one.explain(0)))


# -- finished text ---------------------------------------------------------------------------------------------


@route(ROUTES, "Guard.redact", carries=["text"], covers=["nco_guard.Guard.redact"], unchanged=True)
def redact(run: Run) -> None:
    done = run.guard().redact(run.value())
    run.places.returned(done.text)
    run.places.add("redaction", done)


@route(
    ROUTES,
    "redact",
    carries=["text"],
    covers=["nco_guard.redact", "nco_guard.scan.redact", "nco_guard.scan.Redaction"],
    unchanged=True,
)
def redact_by_a_policy(run: Run) -> None:
    done = nco_guard.redact(run.guard().policy, run.value())
    run.places.returned(done.text)
    run.places.add("redaction", done)


def _reported(run: Run, made: Any) -> None:
    run.places.add("report", made)
    run.places.add("report as text", [repr(made), str(made)])


_report = partial(route, ROUTES, carries=["text"], silent=True)


@_report(
    "Guard.verify",
    covers=[
        *("nco_guard.Guard.verify", "nco_guard.Report", "nco_guard.Finding"),
        *("nco_guard.scan.Report", "nco_guard.scan.Finding"),
    ],
)
def verified(run: Run) -> None:
    _reported(run, run.guard().verify(run.value()))


@_report("exposure", covers=["nco_guard.Exposure", "nco_guard.scan.exposure", "nco_guard.scan.Exposure"])
def exposed(run: Run) -> None:
    _reported(run, exposure(run.guard().policy, run.value()))


@_report("Verifier.verify_many")
def verified_many(run: Run) -> None:
    _reported(run, run.guard().verifier.verify_many([run.value(), "b"]))


@_report("Verifier", covers=["nco_guard.Verifier", "nco_guard.Guard.verifier", "nco_guard.scan.Verifier"])
def by_verifier(run: Run) -> None:
    _reported(run, Verifier(run.policy).verify(run.value()))


@_report("verify", covers=["nco_guard.verify", "nco_guard.scan.verify"])
def by_function(run: Run) -> None:
    _reported(run, verify(run.policy, run.value()))


@_report("require", covers=["nco_guard.scan.require"])
def required(run: Run) -> None:
    _reported(run, require(run.policy, run.value()))


@_report("Verifier.stream", covers=["nco_guard.scan.FindingStream"])
def found_in_pieces(run: Run) -> None:
    stream, text = run.guard().verifier.stream(), run.value()
    for at in range(0, len(text), 5):
        _reported(run, stream.feed(text[at : at + 5]))
    _reported(run, stream.finish())


@route(ROUTES, "SafeEnds", carries=["text"], covers=["nco_guard.scan.SafeEnds"], unchanged=True)
def cut_back(run: Run) -> None:
    ends, text, shown = SafeEnds(run.policy), run.value(), list[str]()
    try:
        shown.extend(ends.feed(text[at : at + 5]) for at in range(0, len(text), 5))
        shown.append(ends.feed("", final=True))
    finally:
        run.places.chunks(shown)
    run.places.returned("".join(shown))


@routes(
    ROUTES,
    "Guard.stream_verifier, {}, pieces of {}",
    [(action, size) for action in ("redact", "raise") for size in (1, 7)],
    carries=["text"],
    covers=[
        *("nco_guard.Guard.stream_verifier", "nco_guard.scan.StreamVerifier"),
        *("nco_guard.scan.REDACTED", "nco_guard.scan.default_replacement"),
    ],
    raises=(ViolationError,),
    unchanged=True,
)
def streamed(run: Run, action: Any, size: int) -> None:
    verifier, text = run.guard().stream_verifier(action=action), run.value()

    def pieces() -> Iterator[str]:
        for start in range(0, len(text), size):
            yield verifier.feed(text[start : start + size])
        yield verifier.finish()

    shown: list[str] = []
    try:
        shown.extend(pieces())
    finally:
        run.places.chunks(shown)
        run.places.add("report", verifier.report)
    run.places.returned("".join(shown))


# -- the command line ------------------------------------------------------------------------------------------

_COMMANDS: dict[str, list[str]] = {
    "text": ["verify"],
    "JSON": ["verify", "--format", "json"],
    "SARIF": ["verify", "--format", "sarif"],
}


def policy_file(run: Run) -> Path:
    path = run.places.folder / "policy.json"
    path.write_text(json.dumps(run.policy.model_dump(mode="json", exclude_unset=True)))
    return path


def text_file(run: Run) -> Path:
    path = run.places.folder / "a.txt"
    path.write_text(run.value(), newline="")
    return path


def command_called(run: Run, arguments: list[str]) -> str:
    from nco_guard.cli import app

    done = CliRunner().invoke(app, arguments)
    if done.exit_code == 2 or (done.exception is not None and not isinstance(done.exception, SystemExit)):
        raise AssertionError(done.output) from done.exception
    run.places.add("stdout of the command", done.stdout)
    run.places.add("stderr of the command", done.stderr)
    return done.stdout


@routes(
    ROUTES, "nco-guard verify, {}", _COMMANDS, carries=["text"], covers=["nco_guard.cli.verify"], silent=True
)
def command(run: Run, name: str) -> None:
    command_called(run, [*_COMMANDS[name], str(policy_file(run)), str(text_file(run))])


@route(ROUTES, "nco-guard verify --redact", carries=["text"], covers=["nco_guard.cli.verify"], unchanged=True)
def redacted_copy(run: Run) -> None:
    copy = run.places.folder / "copy.txt"
    command_called(run, ["verify", "--redact", str(copy), str(policy_file(run)), str(text_file(run))])
    run.places.returned(copy.read_bytes().decode())


@route(ROUTES, "nco-guard generate", carries=["written"], covers=["nco_guard.cli.generate"])
def generated(run: Run) -> None:
    policy, log = policy_file(run), run.places.folder / "cli.jsonl"
    arguments = ["generate", "--model", ".", "--policy", str(policy), "--prompt", PROMPT, "--audit", str(log)]
    # The model's longing is no weight that could be saved; all else is as the command does it.
    with patch("nco_guard.cli.generate.load_model", lambda path: (_model(run), tokenizer())):
        run.places.returned(command_called(run, arguments))
    run.places.add("audit log of the command", log.read_text())
    run.places.add("events of the log", [repr(event) for event in read_events(log).events])


@route(
    ROUTES,
    "nco-guard audit report",
    carries=["written"],
    covers=[f"nco_guard.cli.audit_{name}" for name in ("report", "verify", "anchor")],
    silent=True,
)
def reported(run: Run) -> None:
    log, page = run.places.folder / "own.jsonl", run.places.folder / "report.html"
    with JsonLinesSink(log) as sink:
        guard = Guard(run.policy, audit=sink, correlation_key=b"k" * 16)
        guard.generate(_model(run), tokenizer(), PROMPT, max_new_tokens=LENGTH, do_sample=False)
    run.places.add("audit log with a correlation key", log.read_text())
    anchors = run.places.folder / "anchors.jsonl"
    command_called(run, ["audit", "anchor", str(log), "-o", str(anchors)])
    run.places.add("anchors", anchors.read_text())
    run.places.add("verdict", command_called(run, ["audit", "verify", str(log), "--anchors", str(anchors)]))
    command_called(run, ["audit", "report", str(log), "-o", str(page)])
    run.places.add("report's page", page.read_text())
