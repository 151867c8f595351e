"""What long lists of strings cost: set-up, memory, steps, and one string more; checked against the definition.

    python benchmarks/strings.py                                   10,000 and 100,000 strings, shipped tokenizer
    python benchmarks/strings.py 1000000 --tokenizer FOLDER        a folder with tokenizer.json
    python benchmarks/strings.py 100000 --case fold --whole-word   as whole words, in any case
    python benchmarks/strings.py 10000 --shape names --json out.json

Strings are distinct, 16 characters each: random lower-case letters, or pairs of made-up names (`--shape names`). Every
size runs in a process of its own. Times are the thread's own (CPU) time. Memory is the growth of the process's peak
from the ready policy on, the vocabulary read before. A *new* step meets a joint state for the first time: `advance` and
`forbidden_ids` of one sequence over a text in which beginnings of the strings are strewn.

The check: in sampled states the mask is compared, token by token, with look-ups of every piece of the text in the set
of the strings.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, StringRule
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary, read_vocabulary
from nco_guard.verify import verify

LENGTH = 16
# Everything runs in one thread; its own time is what a busy machine disturbs least.
clock = time.thread_time
TEXT = (
    "The assembly met again in the old town hall, and the secretary read the minutes of the last meeting. Questions "
    "about the budget were sent to the office, and nobody asked why the analysis had taken so long. A class of "
    "students listened from the gallery, one of them with a book of poems that he did not open all evening. "
)
T = TypeVar("T")


def made_up_strings(count: int, shape: str) -> list[str]:
    """Distinct strings of `LENGTH` characters."""
    rng = np.random.default_rng(1)
    found: dict[str, None] = {}
    while len(found) < count:
        wanted = count - len(found)
        if shape == "letters":
            data = rng.integers(97, 123, (wanted, LENGTH), dtype=np.uint8).tobytes().decode()
        else:
            consonants, vowels = np.frombuffer(b"bdfgklmnprstvz", np.uint8), np.frombuffer(b"aeiou", np.uint8)
            letters = np.where(
                np.arange(LENGTH) % 2 == 0,
                rng.choice(consonants, (wanted, LENGTH)),
                rng.choice(vowels, (wanted, LENGTH)),
            ).astype(np.uint8)
            letters[:, 7] = ord(" ")
            letters[:, [0, 8]] -= 32
            data = letters.tobytes().decode()
        found.update(dict.fromkeys(data[i : i + LENGTH] for i in range(0, len(data), LENGTH)))
    return list(found)


def timed(figures: dict[str, Any], name: str, call: Callable[[], T]) -> T:
    """The call's result; seconds are added to the figures."""
    started = clock()
    result = call()
    figures[name] = clock() - started
    return result


def peak_bytes() -> int:
    """The process's largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_bytes() -> int:
    """The process's resident size now; where the system does not tell, its peak."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak_bytes()
    return int(statm.read_text().split()[1]) * resource.getpagesize()


def reset_peak() -> None:
    """Let the peak begin at the present size, where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def read_tokenizer(folder: str | None) -> Any:
    """A tokenizer folder's, or the shipped one."""
    from transformers import AutoTokenizer

    if folder is None:
        folder = str(Path(__file__).resolve().parent.parent / "nco_guard" / "demo" / "model")
    return AutoTokenizer.from_pretrained(folder)


def strewn(strings: Sequence[str], rng: random.Random) -> str:
    """Text with beginnings of some strings in it."""
    words = TEXT.split(" ")
    for at in range(3, 3 * len(words) // 2, 3):
        words.insert(at, rng.choice(strings)[: rng.randint(3, LENGTH - 2)])
    return " ".join(words)


def measure_steps(bound: BoundGuard, ids: Sequence[int]) -> tuple[list[float], list[float], list[int]]:
    """Milliseconds of new and of known steps, and the ids that were allowed and so written."""
    written: list[int] = []
    runs: list[list[float]] = []
    for _ in range(2):
        session, times = bound.session(), []
        session.forbidden_ids()
        written = []
        for token in ids:
            forbidden = session.forbidden_ids()
            at = int(np.searchsorted(forbidden, token))
            if at < len(forbidden) and forbidden[at] == token:
                continue
            started = clock()
            session.advance(token)
            session.forbidden_ids()
            times.append((clock() - started) * 1e3)
            written.append(token)
        runs.append(times)
    return runs[0], runs[1], written


def wrong_tokens(
    bound: BoundGuard, ids: Sequence[int], strings: Sequence[str], fold: bool, whole_word: bool
) -> int:
    """In how many tokens the mask after some ids differs from look-ups in the set of strings.

    Only tokens that leave the text well-formed UTF-8 are compared. For whole words the mask may also forbid what could
    not be ended well; the look-ups cannot tell, so those are left out: a token whose text holds no match but ends in
    one.
    """
    vocabulary: Vocabulary = bound.vocabulary
    session = bound.session()
    for token in ids:
        session.advance(token)
    mask = session.mask()
    known = {s.lower() if fold else s for s in strings}
    before = session.text
    wrong = 0
    for token, data in enumerate(vocabulary.tokens):
        if not data or token in vocabulary.eos_ids or token in vocabulary.unusable_ids:
            continue
        try:
            text = before + data.decode()
        except UnicodeDecodeError:
            continue
        # The shapes are ASCII, and no other characters than ASCII's fold to those that they use, except these two.
        folded = text.lower().replace("\u017f", "s") if fold else text
        found = pending = False
        for end in range(len(before), len(text) + 1):
            if folded[max(0, end - LENGTH) : end] not in known:
                continue
            if not whole_word:
                found = found or end > len(before)
            elif end == LENGTH or not (text[end - LENGTH - 1].isalnum() or text[end - LENGTH - 1] == "_"):
                if end == len(text):
                    pending = True
                elif not (text[end].isalnum() or text[end] == "_"):
                    found = True
        wrong += not pending and bool(mask[token]) != found
    return wrong


def measure(count: int, options: argparse.Namespace) -> dict[str, Any]:
    """All figures for one size: seconds, milliseconds (`_ms`), bytes."""
    fold, whole_word = options.case == "fold", options.whole_word
    strings = tuple(made_up_strings(count, options.shape))
    vocabulary = read_vocabulary(read_tokenizer(options.tokenizer))
    tokenizer = read_tokenizer(options.tokenizer)
    figures: dict[str, Any] = {"strings": count, "shape": options.shape, "tokens": vocabulary.width}
    rule = StringRule(id="list", strings=("x",), case=options.case, whole_word=whole_word)
    policy = timed(
        figures,
        "policy",
        lambda: Policy(name="strings", rules=(rule.model_copy(update={"strings": strings}),)),
    )
    timed(figures, "digest", lambda: policy.digest)
    reset_peak()
    resident = resident_bytes()
    compiled = timed(figures, "compile", lambda: compile_policy(policy))
    # Built once and kept; binding uses it again.
    timed(figures, "automaton", compiled.constraints)
    bound = timed(figures, "bind", lambda: BoundGuard(compiled, vocabulary))
    figures["set_up"] = figures["compile"] + figures["automaton"] + figures["bind"]
    figures["peak_bytes"] = peak_bytes() - resident
    automaton = bound.tables.constraints[-1].automaton
    figures["states"] = automaton.state_count
    figures["automaton_bytes"] = automaton.nbytes

    rng = random.Random(2)
    ids = tokenizer.encode(strewn(strings, rng), add_special_tokens=False)
    new, known, written = measure_steps(bound, ids)
    for name, times in (("new", new), ("known", known)):
        figures[f"{name}_median_ms"] = statistics.median(times)
        figures[f"{name}_p99_ms"] = float(np.quantile(times, 0.99))
    figures["steps"] = len(new)

    figures["verify"] = min(_seconds(lambda: verify(compiled, TEXT)) for _ in range(2))
    extra = StringRule(id="more", strings=("quite another",), case=options.case, whole_word=whole_word)
    revised_policy = timed(figures, "add_policy", lambda: policy.with_rules(extra))
    old = bound.tables.constraints
    timed(figures, "add", lambda: compiled.revised(revised_policy).constraints(reuse=old))

    ends = sorted(rng.sample(range(len(written)), min(len(written), options.states)))
    figures["states_checked"] = len(ends)
    figures["wrong_tokens"] = sum(
        wrong_tokens(bound, written[:end], strings, fold, whole_word) for end in ends
    )
    return figures


def _seconds(call: Callable[[], object]) -> float:
    started = clock()
    call()
    return clock() - started


def report(results: Sequence[dict[str, Any]]) -> str:
    """A Markdown table, one column a size."""
    rows = [
        ("policy from strings", "policy", "{:.2f} s"),
        ("its digest", "digest", "{:.2f} s"),
        ("compile, automaton and bind", "set_up", "{:.2f} s"),
        ("of these the automaton", "automaton", "{:.2f} s"),
        ("peak memory added", "peak_bytes", "{:,.0f} B"),
        ("automaton holds", "automaton_bytes", "{:,.0f} B"),
        ("its states", "states", "{:,}"),
        ("new step, median", "new_median_ms", "{:.3f} ms"),
        ("new step, p99", "new_p99_ms", "{:.2f} ms"),
        ("known step, median", "known_median_ms", "{:.4f} ms"),
        ("one string more: policy", "add_policy", "{:.4f} s"),
        ("one string more: automata", "add", "{:.4f} s"),
        ("verify 330 characters", "verify", "{:.4f} s"),
        ("states checked", "states_checked", "{}"),
        ("wrong tokens in them", "wrong_tokens", "{}"),
    ]
    lines = [
        "| strings | " + " | ".join(f"{r['strings']:,}" for r in results) + " |",
        "|---|" + "---:|" * len(results),
    ]
    lines += [
        f"| {name} | " + " | ".join(form.format(r[key]) for r in results) + " |" for name, key, form in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Each size in a process of its own, then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--tokenizer", help="a folder with tokenizer.json")
    parser.add_argument("--shape", choices=["letters", "names"], default="letters")
    parser.add_argument("--case", choices=["exact", "fold"], default="exact")
    parser.add_argument("--whole-word", action="store_true")
    parser.add_argument("--states", type=int, default=6, help="states in which masks are checked")
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.sizes[0], options)))
        return
    passed = [a for a in sys.argv[1:] if not a.isdigit() or sys.argv[sys.argv.index(a) - 1] == "--states"]
    results: list[dict[str, Any]] = []
    for size in options.sizes:
        command = [sys.executable, str(Path(__file__).resolve()), str(size), "--one", *passed]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
    print(
        f"Python {platform.python_version()}, {platform.machine()}, shape {options.shape}, case {options.case}"
    )
    print(report(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    if any(result["wrong_tokens"] for result in results):
        raise SystemExit("masks differ from the definition")


if __name__ == "__main__":
    main()
