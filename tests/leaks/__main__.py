"""`python -m tests.leaks [ROOM] [--route PATTERN] [--shape PATTERN]`: run routes with shapes, and say what leaks where.

ROOM is core, values, langchain or llama_index; without it all are run.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter, defaultdict

from tests.leaks.corpus import CORPUS, rooms
from tests.leaks.routes import Route, carried, check
from tests.leaks.shapes import Shape

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run; 1 if something leaks."""
    parser = argparse.ArgumentParser("python -m tests.leaks", description=__doc__)
    parser.add_argument("room", nargs="?", default="")
    parser.add_argument("--route", default="", help="only routes whose name this expression finds")
    parser.add_argument("--shape", default="", help="only shapes whose name this expression finds")
    given = parser.parse_args(arguments)
    looks, wrong = 0, 0
    for name, routes in rooms().items():
        if given.room in ("", name):
            for one in routes:
                if re.search(given.route, one.name):
                    shapes = [shape for shape in carried(one, CORPUS) if re.search(given.shape, shape.name)]
                    found = _run(one, shapes)
                    looks, wrong = looks + found[0], wrong + found[1]
    print(f"{looks:,} looks, {wrong} shapes that leak or are changed")
    return 1 if wrong else 0


def _run(one: Route, shapes: list[Shape]) -> tuple[int, int]:
    begun, looks = time.process_time(), Counter[str]()
    by: dict[str, list[str]] = defaultdict(list)
    for shape in shapes:
        places, wrong = check(one, shape, control=True)
        looks += places
        for what in dict.fromkeys(
            each.split(":")[0] if each.startswith("leak") else each[:170] for each in wrong
        ):
            by[what].append(shape.name)
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
