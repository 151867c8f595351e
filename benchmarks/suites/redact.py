"""Redaction beside verification, on answers of 500 characters under all presets.

    python benchmarks/redact.py [--rounds 5] [--json FILE]

Each figure is the processor time for one answer, the least of several rounds; ratios are to `guard.verify` of the same
answers. Clean answers are prose; in dirty ones something that the policy forbids is sown. Before anything is timed,
`guard.redact` and `Cleaner.text` are compared with the definition, `redaction.redact` searching by `verify`.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchmarks.suites.verify import prose
from nco_guard import Guard
from nco_guard.policy import presets
from nco_guard.scan import redact
from nco_guard.values import Cleaner

SIZE = 500
ANSWERS = 40
clock = time.process_time


def answers(rng: random.Random) -> tuple[list[str], list[str]]:
    text = prose(2 * SIZE * ANSWERS)
    clean = [text[place : place + SIZE] for place in range(0, SIZE * ANSWERS, SIZE)]
    examples = [t for name in ("pii", "secrets") for p in presets.patterns(name) for t in p.examples.match]
    dirty = [f"{one[: SIZE // 2]} {rng.choice(examples)} {one[SIZE // 2 :]}"[:SIZE] for one in clean]
    return clean, dirty


def streamed(guard: Guard, text: str) -> str:
    stream = guard.stream_verifier()
    return "".join(stream.feed(text[at : at + 5]) for at in range(0, len(text), 5)) + stream.finish()


def message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "usage": {"total_tokens": 9}}


def methods(guard: Guard) -> dict[str, Callable[[str], object]]:
    cleaner = Cleaner(guard)
    return {
        "guard.verify": guard.verify,
        "guard.redact": guard.redact,
        "Cleaner.text": cleaner.text,
        "Cleaner.value of a message": lambda text: cleaner.value(message(text)),
        "redact by verify, the definition": lambda text: redact(guard.verifier.compiled, text),
        "stream_verifier, pieces of 5": lambda text: streamed(guard, text),
    }


def per_answer(run: Callable[[str], object], texts: list[str], rounds: int) -> float:
    least = float("inf")
    for _ in range(rounds):
        begun = clock()
        for text in texts:
            run(text)
        least = min(least, clock() - begun)
    return least / len(texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    guard = Guard.from_presets("pii", "secrets", "ldnoobw")
    clean, dirty = answers(random.Random(0))
    clean = [text for text in clean if guard.verify(text).ok]
    dirty = [text for text in dirty if not guard.verify(text).ok]
    cleaner = Cleaner(guard)
    for text in (*clean, *dirty):
        expected = redact(guard.verifier.compiled, text)
        same = guard.redact(text) == expected and streamed(guard, text) == expected.text
        if not same or ("\\" not in text and cleaner.text(text) != expected.text):
            sys.exit("what is redacted differs from the definition")
    print(f"{platform.machine()}, Python {platform.python_version()}; {len(guard.policy.rules)} rules")
    print(f"{len(clean)} clean and {len(dirty)} dirty answers of {SIZE} characters\n")
    print("| milliseconds for an answer | clean | to verify | dirty | to verify |\n|---|---|---|---|---|")
    rows: list[dict[str, object]] = []
    base: tuple[float, float] | None = None
    for name, run in methods(guard).items():
        found = per_answer(run, clean, arguments.rounds), per_answer(run, dirty, arguments.rounds)
        base = base or found
        ratios = found[0] / base[0], found[1] / base[1]
        print(
            f"| {name} | {found[0] * 1e3:.2f} | {ratios[0]:.2f} x | {found[1] * 1e3:.2f} | {ratios[1]:.2f} x |"
        )
        rows.append({"method": name, "seconds": found, "to verify": ratios})
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2), "utf-8")


if __name__ == "__main__":
    main()
