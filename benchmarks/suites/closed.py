"""Rules that want what was opened to be closed: the processor time of every single mask, with all presets.

    python -m benchmarks.closed --tokenizer FOLDER [--texts N] [--out FILE]

Each policy of the corpus holds four such rules beside the presets. A text opens them one inside another, with prose in
between, and closes them again; a mask is asked for before every token, once without a limit and once near one. What is
reported is processor time of this process, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nco_guard import Guard, Policy
from nco_guard.cli.inputs import load_tokenizer
from nco_guard.errors import ForbiddenTokenError
from nco_guard.policy import RegexRule, presets

#: What must be closed: a name, its pattern, a text that opens it, and one that closes it.
CLOSED: dict[str, tuple[str, str, str]] = {
    "think": (r"(?s)<think>(?!.*</think>)", "<think>", "</think>"),
    "answer": (r"(?s)<answer>(?!.*</answer>)", "<answer>", "</answer>"),
    "tool": (r"(?s)<tool_call>(?!.*</tool_call>)", "<tool_call>", "</tool_call>"),
    "paren": (r"(?s)\((?!.*\))", "(", ")"),
    "bracket": (r"(?s)\[(?!.*\])", "[", "]"),
    "brace": (r"(?s)\{(?!.*\})", "{", "}"),
    "quote": (r"(?s)“(?!.*”)", "“", "”"),
    "guillemet": (r"(?s)«(?!.*»)", "«", "»"),
    "comment": (r"(?s)<!--(?!.*-->)", "<!--", "-->"),
    "block comment": (r"(?s)/\*(?!.*\*/)", "/*", "*/"),
    "begin": (
        r"(?s)-----BEGIN NOTE-----(?!.*-----END NOTE-----)",
        "-----BEGIN NOTE-----",
        "-----END NOTE-----",
    ),
    "fence": (r"(?s)~~~begin(?!.*~~~end)", "~~~begin", "~~~end"),
}
PROSE = " The assembly met on 12 May; 3 of them said no, x and y did not."


def texts(count: int) -> list[tuple[tuple[str, ...], str]]:
    """The rules of each policy of the corpus, and its text."""
    chosen = list(itertools.combinations(CLOSED, 4))
    step = max(1, len(chosen) // count)
    found: list[tuple[tuple[str, ...], str]] = []
    for names in chosen[::step][:count]:
        opened = "".join(CLOSED[name][1] + PROSE for name in names)
        closed = "".join(CLOSED[name][2] + PROSE for name in reversed(names))
        found.append((names, PROSE + opened + closed))
    return found


def times(names: Sequence[str], text: str, tokenizer: object) -> dict[str, object]:
    """Milliseconds of each mask of one policy over its text."""
    rules = [RegexRule(id=name.replace(" ", "-"), regex=CLOSED[name][0]) for name in names]
    policy = Policy.from_presets(*presets.available()).with_rules(*rules)
    bound = Guard(policy).bind(tokenizer)
    session = bound.session()
    ids = tokenizer.encode(text, add_special_tokens=False)  # type: ignore[attr-defined]
    free, limited, skipped = list[float](), list[float](), 0
    for token in ids:
        for found, remaining in ((free, None), (limited, 6)):
            started = time.process_time()
            session.forbidden_ids(remaining)
            found.append(1e3 * (time.process_time() - started))
        try:
            session.advance(token)
        except ForbiddenTokenError:
            skipped += 1
    return {
        "rules": list(names),
        "tokens": len(ids),
        "skipped": skipped,
        "worst_ms": round(max(free), 1),
        "worst_near_limit_ms": round(max(limited), 1),
        "median_ms": round(sorted(free)[len(free) // 2], 2),
        "over_50_ms": sum(t > 50 for t in free),
        "undecided_masks": bound.stats["undecided_masks"],
    }


def main() -> None:
    """Measure, print a line a policy, and write all of it as JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=1, help="policies to measure; about a minute each")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    records = []
    for place, (names, text) in enumerate(texts(options.texts), start=1):
        print(f"policy {place} of {options.texts}: {', '.join(names)}", file=sys.stderr, flush=True)
        records.append(times(names, text, tokenizer))
        print(json.dumps(records[-1]), flush=True)
    print(
        "worst",
        max(r["worst_ms"] for r in records),
        "ms; near a limit",
        max(r["worst_near_limit_ms"] for r in records),
    )
    if options.out is not None:
        options.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
