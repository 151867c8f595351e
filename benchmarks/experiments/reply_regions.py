"""What it costs that masks follow the fields of a reply: binding, the first reply, later ones, and a mask.

`python -m benchmarks.experiments.reply_regions [--tokenizer NAME] [--format NAME] [--preset NAME]`. One reply of the
format is walked with and without regions, by turns, each time under a guard of its own. The tokenizer is that of the
model that ships, SmolLM2's (`smollm2`, 49,152 tokens), or one in a folder.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks.inputs import smollm2
from nco_guard import Guard
from nco_guard.replies import shipped_formats
from nco_guard.replies.fields import FormatFields

TURNS = 3
CALL = {"name": "find_order", "arguments": {"order": "A-1042", "days": 3}}
SAID = ("Let me look up the order A-1042 first, then answer.", "Sure, one moment. ")


def tokenizer_of(name: str) -> Any:
    """The tokenizer of the model that ships, SmolLM2's, or that in a folder."""
    if name == "shipped":
        from nco_guard import demo

        return demo.load()[1]
    if name == "smollm2":
        return smollm2.load()[1]
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


def reply_of(name: str) -> str:
    """Reasoning, text, and the calls of the format's own longest example."""
    form = shipped_formats()[name]
    thought = (
        f"{form.reasoning.open}{SAID[0]}{form.reasoning.close}" if form.reasoning is not None else SAID[0]
    )
    return thought + SAID[1] + max((example.text for example in form.examples), key=len)


def walk(bound: Any, ids: list[int]) -> tuple[float, float]:
    """Seconds of processor time of a walk, and of the median mask."""
    session, masks, begun = bound.session(), list[float](), time.process_time()
    for token in ids:
        started = time.process_time()
        session.mask()
        masks.append(time.process_time() - started)
        session.advance(token)
    return time.process_time() - begun, statistics.median(masks)


def measured(preset: str, tokenizer: Any, ids: list[int], regions: FormatFields | None) -> list[float]:
    """Seconds: to bind, of the first reply, of the second, and of the median mask of that."""
    guard = Guard.from_presets(preset)
    started = time.process_time()
    bound = guard.bind(tokenizer, skip_special_tokens=False, regions=regions)
    binding = time.process_time() - started
    first, _ = walk(bound, ids)
    second, mask = walk(bound, ids)
    return [binding, first, second, mask]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="shipped")
    parser.add_argument("--format", default="hermes-line")
    parser.add_argument("--preset", default="pii")
    given = parser.parse_args()
    tokenizer, form = tokenizer_of(given.tokenizer), shipped_formats()[given.format]
    ids = tokenizer(reply_of(given.format), add_special_tokens=False)["input_ids"]
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    for turn in range(TURNS):
        for fields in (False, True):
            # Hidden texts that never come: each turn has a cutter of its own, of which nothing is known.
            regions = FormatFields(form, hidden=(f"<|turn {turn}|>",)) if fields else None
            found[fields].append(measured(given.preset, tokenizer, ids, regions))
    print(
        f"{len(tokenizer):,} tokens, {given.format}, {given.preset}, a reply of {len(ids)} tokens; medians of {TURNS}"
    )
    for at, name in enumerate(("bind", "first reply", "later reply", "mask, median")):
        without, within = (statistics.median(one[at] for one in found[fields]) for fields in (False, True))
        print(f"{name:14} {without * 1e3:10.3f} ms {within * 1e3:10.3f} ms   x {within / without:.2f}")


if __name__ == "__main__":
    main()
