"""How fast finished text is verified: megabytes per second of one core, beside the definition and `re`, and checked.

    python -m benchmarks.suites.verify               ordinary English prose with a finding in every 10,000 characters
    python -m benchmarks.suites.verify --text FILE   your own text, as it is
    python -m benchmarks.suites.verify --candidates  other libraries too, those that are installed

The prose is the docstrings of Python's standard library: text by people, with some code in it, on every machine.
Times are the process's own (CPU) time, the least of several rounds, methods taking turns. The definition
(`scan.definition`) and `re` are run on a part of the text, since they take long. Megabytes are of UTF-8. Compiling is
not counted, the first round neither.

Checked: findings of `Verifier` on the whole text, in pieces and as lines equal those of the definition on that part,
and for string and regex rules the spans of `re` are compared as well.

The candidates only search: for LDNOOBW's strings in lower-cased text, without borders of words, without exactness; so
their numbers bound from above what a filter made of them could reach.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import random
import re
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.policy import Policy, RegexRule, StringRule, presets
from nco_guard.scan import Finding, Verifier
from nco_guard.scan.definition import verify_by_definition

EVERY = 10_000
PIECE = 1 << 16
clock = time.process_time


def prose(size: int) -> str:
    """Docstrings of the standard library, about so many characters."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: list[str] = []
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, ValueError):  # some are there to be wrong
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) > 80:
                    found.append(text + "\n\n")
    whole = "".join(found)
    return (whole * (size // len(whole) + 1))[:size]


def sown(text: str, rng: random.Random) -> str:
    """The text with something that a preset forbids in every `EVERY` characters."""
    examples = [t for name in ("pii", "secrets") for p in presets.patterns(name) for t in p.examples.match]
    rule = Policy.from_presets("ldnoobw").rules[0]
    words = rule.strings if isinstance(rule, StringRule) else ()
    pieces = [text[place : place + EVERY] for place in range(0, len(text), EVERY)]
    return "".join(f"{piece} {rng.choice((rng.choice(examples), rng.choice(words)))} " for piece in pieces)


def policies() -> dict[str, Policy]:
    words = Policy.from_presets("ldnoobw")
    substrings = words.rules[0].model_copy(update={"whole_word": False})
    return {
        "LDNOOBW, whole words, folded": words,
        "LDNOOBW, substrings, folded": Policy(name="substrings", rules=(substrings,)),
        "pii": Policy.from_presets("pii"),
        "secrets": Policy.from_presets("secrets"),
        "pii + secrets + LDNOOBW": Policy.from_presets("pii", "secrets", "ldnoobw"),
    }


def patterns_of(policy: Policy) -> dict[str, re.Pattern[str]]:
    """What one would write with `re`: a pattern for each rule."""
    found: dict[str, re.Pattern[str]] = {}
    for rule in policy.rules:
        if isinstance(rule, StringRule):
            pattern = "|".join(map(re.escape, sorted(rule.strings, key=len, reverse=True)))
        elif isinstance(rule, RegexRule):
            pattern = rule.regex
        else:
            continue
        if rule.whole_word:
            pattern = rf"(?<!\w)(?:{pattern})(?!\w)"
        found[rule.id] = re.compile(pattern, re.IGNORECASE if rule.case == "fold" else 0)
    return found


def streamed(verifier: Verifier, text: str) -> tuple[Finding, ...]:
    stream = verifier.stream()
    found = [f for place in range(0, len(text), PIECE) for f in stream.feed(text[place : place + PIECE])]
    return tuple(sorted((*found, *stream.finish()), key=lambda f: (f.start, f.end, f.rule_id)))


def seconds(run: Callable[[], object]) -> float:
    begun = clock()
    run()
    return clock() - begun


def megabytes(text: str) -> float:
    return len(text.encode("utf-8", "surrogatepass")) / 1e6


def measure(name: str, compiled: CompiledPolicy, text: str, part: str, rounds: int) -> dict[str, object]:
    verifier = Verifier(compiled)
    patterns = patterns_of(compiled.policy)
    lines = text.split("\n")
    records = ["\n".join(lines[place : place + 8]) for place in range(0, len(lines), 8)]
    expected = verify_by_definition(compiled, part).findings
    by_re = sorted((m.start(), m.end(), id) for id, p in patterns.items() for m in p.finditer(part))
    same = verifier.verify(part).findings == expected and streamed(verifier, part) == expected
    for report, record in zip(verifier.verify_many(records[:200]), records[:200], strict=True):
        same = same and report == verify_by_definition(compiled, record)
    whole = verifier.verify(text)
    same = same and streamed(verifier, text) == whole.findings
    methods: dict[str, tuple[str, Callable[[], object]]] = {
        "Verifier, one text": (text, lambda: verifier.verify(text)),
        "Verifier, pieces of 64 KiB": (text, lambda: streamed(verifier, text)),
        "Verifier, texts of 8 lines": (text, lambda: verifier.verify_many(records)),
        "definition": (part, lambda: verify_by_definition(compiled, part)),
        "re": (part, lambda: [list(p.finditer(part)) for p in patterns.values()]),
    }
    least = dict.fromkeys(methods, float("inf"))
    for _ in range(rounds):
        for method, (_, run) in methods.items():
            least[method] = min(least[method], seconds(run))
    return {
        "policy": name,
        "findings": len(whole.findings),
        "speed": {method: megabytes(of) / least[method] for method, (of, _) in methods.items()},
        "equal to definition": same,
        "equal to re": by_re == [(f.start, f.end, f.rule_id) for f in sorted(expected, key=_order)],
    }


def _order(found: Finding) -> tuple[int, int, str]:
    return found.start, found.end, found.rule_id


def candidates(text: str, part: str, rounds: int) -> dict[str, float]:
    """Other libraries at the bare search for LDNOOBW's strings: megabytes per second."""
    rule = Policy.from_presets("ldnoobw").rules[0]
    strings = [s.lower() for s in rule.strings] if isinstance(rule, StringRule) else []
    lowered, small, data = text.lower(), part.lower(), text.lower().encode("utf-8", "surrogatepass")
    either = "|".join(map(re.escape, sorted(strings, key=len, reverse=True)))
    runs: dict[str, tuple[str, Callable[[], object]]] = {"re": (small, lambda: re.findall(either, small))}
    try:
        import hyperscan

        database = hyperscan.Database()
        database.compile(expressions=[re.escape(s).encode() for s in strings], ids=list(range(len(strings))))
        runs["hyperscan"] = text, lambda: database.scan(data, match_event_handler=lambda *_: None)
    except ImportError:
        pass
    try:
        import ahocorasick_rs

        rust = ahocorasick_rs.AhoCorasick(strings)
        runs["ahocorasick_rs"] = text, lambda: rust.find_matches_as_indexes(lowered, overlapping=True)
    except ImportError:
        pass
    try:
        import ahocorasick

        automaton = ahocorasick.Automaton()
        for string in strings:
            automaton.add_word(string, string)
        automaton.make_automaton()
        runs["pyahocorasick"] = text, lambda: list(automaton.iter(lowered))
    except ImportError:
        pass
    try:
        import re2

        google = re2.compile(either)
        runs["google-re2"] = text, lambda: sum(1 for _ in google.finditer(data))
    except ImportError:
        pass
    try:
        import regex

        other = regex.compile(either)
        runs["regex"] = small, lambda: other.findall(small)
    except ImportError:
        pass
    return {
        name: megabytes(of) / min(seconds(run) for _ in range(rounds)) for name, (of, run) in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a UTF-8 file instead of prose")
    parser.add_argument("--characters", type=int, default=4_000_000)
    parser.add_argument("--part", type=int, default=200_000, help="characters for the slow methods")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--candidates", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.text is not None:
        text = arguments.text.read_text("utf-8")
    else:
        text = sown(prose(arguments.characters), random.Random(0))
    part = text[: arguments.part]
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"{len(text):,} characters, {megabytes(text):.1f} MB; verify and re on {len(part):,}\n")
    rows = []
    for name, policy in policies().items():
        row = measure(name, compile_policy(policy), text, part, arguments.rounds)
        speed = row["speed"]
        assert isinstance(speed, dict)
        if not rows:
            titles = [*speed, "to definition", "to re", "findings", "equal to definition", "equal to re"]
            print("| MB/s per core | " + " | ".join(titles) + " |")
            print("|---" * (len(titles) + 1) + "|")
        best = speed["Verifier, one text"]
        cells = [f"{value:.3g}" for value in speed.values()]
        cells += [
            f"{best / speed['definition']:.0f} x",
            f"{best / speed['re']:.0f} x",
            f"{row['findings']:,}",
        ]
        cells += ["yes" if row["equal to definition"] else "NO", "yes" if row["equal to re"] else "no"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        rows.append(row)
    result: dict[str, object] = {"rows": rows}
    if arguments.candidates:
        result["candidates"] = found = candidates(text, part, arguments.rounds)
        print("\n| the bare search for LDNOOBW's strings | MB/s per core |\n|---|---|")
        for name, value in found.items():
            print(f"| {name} | {value:.3g} |")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2), "utf-8")
    if not all(row["equal to definition"] for row in rows):
        sys.exit("the findings of Verifier differ from those of verify")


if __name__ == "__main__":
    main()
