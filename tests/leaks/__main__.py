"""`python -m tests.leaks [ROOM] [--route PATTERN] [--shape PATTERN]`: run routes with shapes, and say what leaks where.

At the end it prints the table of `docs/guarantees.md`, with the places that it looked at and the leaks that it found.

ROOM is core, values, langchain, agents or llama_index; without it all are run.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import zlib
from collections import Counter, defaultdict

import torch

from tests.leaks.corpus import CORPUS, ROOMS, routes_of
from tests.leaks.routes import Route, carried, check, shows_something
from tests.leaks.shapes import Shape
from tests.leaks.table import table

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run; 1 if something leaks."""
    parser = argparse.ArgumentParser("python -m tests.leaks", description=__doc__)
    parser.add_argument("room", nargs="?", default="")
    parser.add_argument("--route", default="", help="only routes whose name this expression finds")
    parser.add_argument("--shape", default="", help="only shapes whose name this expression finds")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="only every Nth shape, others for each route"
    )
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # of models so small, more of them mostly wait for each other
    counts: dict[str, tuple[int, int]] = {}
    for name in ROOMS:
        if given.room in ("", name):
            looks, wrong = 0, 0
            for one in routes_of(name):
                if re.search(given.route, one.name):
                    shapes = [shape for shape in carried(one, CORPUS) if re.search(given.shape, shape.name)]
                    # Routes begin at different shapes, so that all of them are run somewhere.
                    part = shapes[zlib.crc32(one.name.encode()) % given.every :: given.every]
                    found = _run(one, part) if part else (0, 0)
                    looks, wrong = looks + found[0], wrong + found[1]
            if looks:
                counts[name] = looks, wrong
    print(table(counts))
    return 1 if any(wrong for _, wrong in counts.values()) else 0


def _run(one: Route, shapes: list[Shape]) -> tuple[int, int]:
    begun, looks = time.process_time(), Counter[str]()
    by: dict[str, list[str]] = defaultdict(list)
    for shape in shapes:
        places, wrong = check(one, shape)
        looks += places
        for what in dict.fromkeys(
            each.split(":")[0] if each.startswith("leak") else each[:170] for each in wrong
        ):
            by[what].append(shape.name)
    # Whatever part of the shapes is run: one of all that it carries must show it.
    if not shows_something(one, carried(one, CORPUS)):
        by["under no policy nothing is found either"] += ["all"]
    bad = {name for names in by.values() for name in names}
    print(
        f"{one.name}: {looks.total()} looks, {time.process_time() - begun:.1f} s, {len(bad)} wrong",
        flush=True,
    )
    for what, names in sorted(by.items(), key=lambda item: -len(item[1]))[:12]:
        print(f"    {what} <- {len(names)}: {', '.join(names[:16])}", flush=True)
    return looks.total(), len(bad)


if __name__ == "__main__":
    sys.exit(main())
