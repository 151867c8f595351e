"""`python -m tests.leaks [ROOM] [--route PATTERN] [--shape PATTERN]`: run routes with shapes, and say what leaks where.

ROOM is core, values, langchain, agents or llama_index; without it all are run.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import zlib
from collections import Counter, defaultdict

from tests.leaks.corpus import CORPUS, ROOMS, routes_of
from tests.leaks.routes import Route, carried, check, shows_something
from tests.leaks.shapes import Shape

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
    looks, wrong = 0, 0
    for name in ROOMS:
        if given.room in ("", name):
            for one in routes_of(name):
                if re.search(given.route, one.name):
                    shapes = [shape for shape in carried(one, CORPUS) if re.search(given.shape, shape.name)]
                    # Routes begin at different shapes, so that all of them are run somewhere.
                    found = _run(one, shapes[zlib.crc32(one.name.encode()) % given.every :: given.every])
                    looks, wrong = looks + found[0], wrong + found[1]
    print(f"{looks:,} looks, {wrong} shapes that leak or are changed")
    return 1 if wrong else 0


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
    if not shows_something(one, shapes):
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
