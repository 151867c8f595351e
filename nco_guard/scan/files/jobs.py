"""Many files, in one process or several; results in the order of the files either way.

Large files of JSON lines are cut into parts for several processes; a text file is one text, so it stays whole.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace

from nco_guard.errors import InputError
from nco_guard.policy import Policy
from nco_guard.scan.files.sources import is_packed
from nco_guard.scan.files.task import FileResult, FileTask, verify_file
from nco_guard.scan.verifier import Verifier

__all__ = ["verify_files"]

_PART = 1 << 24
"""Bytes of a part of a file of JSON lines."""
_AHEAD = 4  # so many tasks wait per process

_verifier: Verifier | None = None  # of a worker process


def verify_files(
    verifier: Verifier,
    tasks: Sequence[FileTask],
    *,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
    part: int = _PART,
) -> Iterator[FileResult]:
    """The results of all tasks, in their order, each as soon as it and those before it are done.

    With `jobs` > 1 each of as many processes compiles the policy once; `progress` is told then of whole parts. Errors:
    as `verify_file`.
    """
    told = progress or (lambda _: None)
    if jobs == 1:
        for task in tasks:
            yield verify_file(verifier, task, told)
        return
    context = multiprocessing.get_context("spawn")
    policy = verifier.compiled.policy.to_json()
    parts = [(index, piece) for index, task in enumerate(tasks) for piece in _parts(task, part)]
    with ProcessPoolExecutor(min(jobs, max(1, len(parts))), context, _start, (policy,)) as pool:
        waiting: deque[tuple[int, FileTask, Future[FileResult]]] = deque()
        upcoming = iter(parts)
        current: FileResult | None = None
        last = -1
        while True:
            while len(waiting) < _AHEAD * jobs and (entry := next(upcoming, None)) is not None:
                waiting.append((*entry, pool.submit(_work, entry[1])))
            if not waiting:
                break
            index, piece, future = waiting.popleft()
            result = future.result()
            told(piece.source.size if piece.source.last is None else piece.source.last - piece.source.first)
            if index == last and current is not None:
                _append(current, result)
            else:
                if current is not None:
                    yield current
                current, last = result, index
        if current is not None:
            yield current


def _start(policy: str) -> None:
    global _verifier
    _verifier = Verifier(Policy.from_json(policy))


def _work(task: FileTask) -> FileResult:
    if _verifier is None:
        raise RuntimeError("this process was not started for it")
    return verify_file(_verifier, task)


def _parts(task: FileTask, size: int) -> Iterator[FileTask]:
    source = task.source
    if source.form == "text" or task.target is not None or is_packed(source.name) or source.size <= size:
        yield task
        return
    for first in range(0, source.size, size):
        last = min(first + size, source.size)
        yield replace(task, source=replace(source, first=first, last=last))


def _append(result: FileResult, more: FileResult) -> None:
    """Join what was found in the next part of a file, whose lines were counted from 1."""
    lines = result.lines
    result.findings += [replace(place, line=place.line + lines) for place in more.findings]
    errors = [
        InputError(e.file, e.problem, line=None if e.line is None else e.line + lines) for e in more.errors
    ]
    count = result.error_count + more.error_count
    result.add_errors(errors)
    result.error_count = count
    result.lines += more.lines
    result.length += more.length
    result.documents += more.documents
    result.fields |= more.fields
