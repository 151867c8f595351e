"""What a cache on disk saves: from the start of a process to its first mask, without one, with an empty one, and warm.

    python benchmarks/cache.py                          the shipped demonstration tokenizer
    python benchmarks/cache.py --tokenizer FOLDER       a folder with tokenizer.json
    python benchmarks/cache.py --json results.json

Every run is a process of its own; the three kinds take turns. Times are medians, in CPU time of the one thread that
works, and in wall time for the whole process. All runs must produce the same masks along a text, or it fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = ("none", "cold", "warm")
STAGES = ("import", "load tokenizer", "vocabulary", "tree", "compile", "bind", "first mask", "text", "save")
TEXT = (
    "Please write to john.doe@example.com or call (415) 555-0123 before 12/24. The IBAN is DE89 3704 0044 0532 0130 00,"
    " the old key was AKIAIOSFODNN7EXAMPLE, and the server at 192.168.10.7 answers on weekdays; Müller knows the rest. "
    "A class of passengers assessed the cockpit of the Essex, 4111 1111 1111 1112 times."
)


def child(folder: str, presets: str, cache: str) -> None:
    """One process: time each stage and print it, with a digest of all masks along the text."""
    times: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        started = time.thread_time()
        result = work()
        times[stage] = 1e3 * (time.thread_time() - started)
        return result

    def libraries() -> Any:
        import nco_guard.session
        import nco_guard.storage.store

        return nco_guard

    library = timed("import", libraries)
    from nco_guard.compiler import compile_policy
    from nco_guard.tokens import shared_tree, shared_vocabulary

    def tokenizer_of() -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))

    tokenizer = timed("load tokenizer", tokenizer_of)
    end = tokenizer.get_vocab_size() - 1
    store = library.storage.store.Store.chosen(cache or False)
    vocabulary = timed("vocabulary", lambda: shared_vocabulary(tokenizer, eos_token_ids=[end], store=store))
    timed("tree", lambda: shared_tree(vocabulary, store))
    policy = library.Policy.from_presets(*presets.split(","))
    compiled = timed("compile", lambda: compile_policy(policy, store=store))
    bound = timed("bind", lambda: library.BoundGuard(compiled, vocabulary, store=store))
    session = bound.session()
    timed("first mask", session.forbidden_ids)
    digest = hashlib.sha256()

    def walk() -> None:
        for token in tokenizer.encode(TEXT, add_special_tokens=False).ids:
            forbidden = session.forbidden_ids()
            digest.update(forbidden.tobytes())
            if token not in forbidden:
                session.advance(token)

    timed("text", walk)
    timed("save", bound.save)
    stats = bound.stats
    print(json.dumps({"times": times, "masks": digest.hexdigest(), "states": stats["automaton_states"]}))


def run(folder: Path, presets: str, cache: str) -> dict[str, Any]:
    """A process of one kind: its stages, and the wall time of the whole."""
    code = "import sys; from benchmarks.cache import child; child(*sys.argv[1:])"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), presets, cache],
        cwd=Path(__file__).resolve().parent.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    found["times"]["process, wall"] = 1e3 * (time.perf_counter() - started)
    return found


def main() -> int:
    """Measure, print, and fail if any mask differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokenizer", type=Path, help="a folder with tokenizer.json; default: the shipped one"
    )
    parser.add_argument("--presets", default="pii,secrets,ldnoobw")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    folder = options.tokenizer or Path(__file__).resolve().parent.parent / "nco_guard" / "demo" / "model"

    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.repeats):
            cache = str(Path(place) / str(number))
            for kind in KINDS:
                runs[kind].append(run(folder.resolve(), options.presets, "" if kind == "none" else cache))
        size = sum(path.stat().st_size for path in (Path(place) / "0").iterdir())
    agree = len({each["masks"] for kind in KINDS for each in runs[kind]}) == 1

    stages = (*STAGES, "process, wall")
    medians = {
        kind: {stage: statistics.median(each["times"][stage] for each in runs[kind]) for stage in stages}
        for kind in KINDS
    }
    print(
        f"{folder.name}: {options.presets}; medians of {options.repeats} processes, ms; cache of "
        f"{size / 2**20:.1f} MiB; Python {platform.python_version()}, {platform.machine()}\n"
    )
    print("| stage | no cache | empty cache | warm cache | no cache / warm |\n|---|---|---|---|---|")
    for stage in stages:
        none, cold, warm = (medians[kind][stage] for kind in KINDS)
        print(f"| {stage} | {none:.1f} | {cold:.1f} | {warm:.1f} | {none / warm if warm else 0:.1f} |")
    print(f"\nthe same masks in all {3 * options.repeats} processes: {agree}")
    if options.json:
        options.json.write_text(
            json.dumps({"runs": runs, "medians": medians, "cache_bytes": size}, indent=2) + "\n"
        )
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
