"""One file verified, and written without its matches if that is asked for.

A text file is one text: matches go across its lines. In JSON lines every text of a record is one of its own, so no
match goes from one to another. Results hold places, never what stands there unless it is asked for.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import code_points
from nco_guard.errors import InputError, RedactionError
from nco_guard.scan.files.records import RecordFields, RecordText, leaves, parse, replaced, shown_path
from nco_guard.scan.files.sources import STDIN, Source, is_packed, lines_of, texts_of
from nco_guard.scan.findings import Finding
from nco_guard.scan.replacing import Replacer
from nco_guard.scan.verifier import Verifier

__all__ = ["FileResult", "FileTask", "Place", "verify_file"]

_SHOWN_ERRORS = 100
"""So many errors of one file are named; all are counted."""


@dataclass(frozen=True, slots=True)
class Place:
    """One finding, placed for a reader: line and column count from 1, columns and offsets in code points.

    In text `start` and `end` count from the start of the file, in JSON lines from the start of the text that `field`
    names, and there is no column. `text` is what matched, if that was asked for.
    """

    rule_id: str
    mode: str
    line: int
    start: int
    end: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    field: str | None = None
    text: str | None = None


@dataclass(slots=True)
class FileResult:
    """What was found in one file. `length` in code points; `errors` are the first hundred of `error_count`.

    `fields`: those that were asked for and that some record of it held.
    """

    name: str
    form: str
    findings: list[Place] = field(default_factory=list)
    errors: list[InputError] = field(default_factory=list)
    error_count: int = 0
    length: int = 0
    lines: int = 0
    documents: int = 0
    fields: frozenset[str] = frozenset()
    found: bool = False
    redacted: str | None = None

    @property
    def ok(self) -> bool:
        """Whether no hard rule has a match."""
        return all(place.mode != "hard" for place in self.findings)

    def add_errors(self, errors: Sequence[InputError]) -> None:
        """Count errors, and keep the first ones."""
        self.error_count += len(errors)
        self.errors += errors[: max(0, _SHOWN_ERRORS - len(self.errors))]


@dataclass(frozen=True, slots=True)
class FileTask:
    """What is to be done with a file. `target`: where the redacted copy goes, if there is to be one."""

    source: Source
    fields: tuple[str, ...] = ()
    show: bool = False
    target: str | None = None
    replacement: str | None = None


def verify_file(
    verifier: Verifier, task: FileTask, progress: Callable[[int], None] | None = None
) -> FileResult:
    """Verify a file; `progress` is told how many bytes were read. What cannot be read is in the result's errors.

    Raises `RedactionError` where a replacement forms a match with what surrounds it; no copy is left then. Memory: a
    piece of the file, and what a match under way holds (see `FindingStream`). Cost: see `Verifier`.
    """
    source = task.source
    result = FileResult(source.name, source.form, found=source.found, redacted=task.target)
    told = progress or (lambda _: None)
    try:
        with _copy(task.target) as copy:
            if source.form == "text":
                _verify_text(verifier, task, result, copy, told)
            else:
                _verify_records(verifier, task, result, copy, told)
    except InputError as error:
        result.redacted = None
        result.add_errors([error])
    except OSError as error:
        result.redacted = None
        result.add_errors([InputError(error.filename or source.name, error.strerror or "cannot be read")])
    return result


@contextmanager
def _copy(target: str | None) -> Iterator[IO[str] | None]:
    """The redacted copy, which is there under its name only when it is whole."""
    if target is None:
        yield None
        return
    if target == STDIN:
        raise InputError(target, "a redacted copy needs a file to go to")
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open(partial, "xb") as raw:
            if is_packed(path.name):
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed, _text(packed) as file:
                    yield file
            else:
                with _text(raw) as file:
                    yield file
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def _text(raw: IO[bytes] | gzip.GzipFile) -> Iterator[IO[str]]:
    file = io.TextIOWrapper(raw, "utf-8", newline="")
    yield file
    file.flush()
    file.detach()


# -- text ------------------------------------------------------------------------------------------------------


def _verify_text(
    verifier: Verifier, task: FileTask, result: FileResult, copy: IO[str] | None, told: Callable[[int], None]
) -> None:
    stream, lines = verifier.stream(), _Lines()
    writer = None if copy is None else _Writer(verifier, task.replacement, copy)
    findings: list[Finding] = []
    result.documents = 1

    def settle(text: str, found: list[Finding], *, final: bool) -> None:
        for one in found:
            findings.append(one)
            result.findings.append(lines.place(one, show=task.show))
        if writer is not None:
            writer.feed(text, found, safe=stream.safe, final=final)
        lines.forget(stream.safe)

    for text, count, errors in texts_of(task.source):
        result.add_errors(errors)
        lines.add(text)
        settle(text, stream.feed(text), final=False)
        told(count)
    settle("", stream.finish(), final=True)
    result.length, result.lines = stream.length, lines.count
    result.findings.sort(key=lambda place: (place.start, place.end, place.rule_id))


class _Writer:
    """Writes a text without its matches, and sees to it that none is formed by that."""

    def __init__(self, verifier: Verifier, replacement: str | None, file: IO[str]) -> None:
        self._replacer = Replacer(verifier.compiled, replacement)
        self._check = verifier.stream()
        self._broken = verifier.broken
        self._file = file

    def feed(self, text: str, findings: Sequence[Finding], *, safe: int, final: bool) -> None:
        hard = [found for found in findings if found.mode == "hard"]
        pieces = self._replacer.feed(text, hard, safe=safe, final=final)
        shown = "".join(piece.text for piece in pieces)
        left = self._check.feed(shown)
        if final:
            left += self._check.finish()
        if broken := self._broken(left):
            raise RedactionError(broken)
        self._file.write(shown)


class _Lines:
    """The lines of a text, as far back as a finding can still be placed in it."""

    def __init__(self) -> None:
        self._first: list[int] = []  # of each piece: its first character,
        self._line: list[int] = []  # the line that it is in, from 1,
        self._start: list[int] = []  # and where that line begins
        self._texts: list[str] = []
        self._breaks: list[NDArray[np.int64] | None] = []
        self._length, self._next_line, self._next_start = 0, 1, 0

    @property
    def count(self) -> int:
        """How many lines there are, an unfinished last one included."""
        return self._next_line - (1 if self._next_start == self._length else 0)

    def add(self, text: str) -> None:
        self._first.append(self._length)
        self._line.append(self._next_line)
        self._start.append(self._next_start)
        self._texts.append(text)
        self._breaks.append(None)
        self._next_line += text.count("\n")
        last = text.rfind("\n")
        self._next_start = self._length + last + 1 if last >= 0 else self._next_start
        self._length += len(text)

    def forget(self, before: int) -> None:
        """No place before this one will be asked for."""
        done = bisect_right(self._first, before) - 1
        if done > 0:
            for kept in (self._first, self._line, self._start, self._texts, self._breaks):
                del kept[:done]

    def place(self, found: Finding, *, show: bool) -> Place:
        line, column = self._at(found.start)
        end_line, end_column = self._at(found.end)
        text = self._slice(found.start, found.end) if show else None
        return Place(
            found.rule_id, found.mode, line, found.start, found.end, column, end_line, end_column, None, text
        )

    def _at(self, offset: int) -> tuple[int, int]:
        piece = max(0, bisect_right(self._first, offset) - 1)
        if piece >= len(self._first):
            return 1, 1
        breaks = self._breaks[piece]
        if breaks is None:
            line_ends = np.flatnonzero(code_points(self._texts[piece]) == 10)
            breaks = self._breaks[piece] = line_ends + self._first[piece]
        before = int(np.searchsorted(breaks, offset))
        start = int(breaks[before - 1]) + 1 if before else self._start[piece]
        return self._line[piece] + before, offset - start + 1

    def _slice(self, start: int, end: int) -> str:
        pieces: list[str] = []
        for first, text in zip(self._first, self._texts, strict=True):
            if first < end and first + len(text) > start:
                pieces.append(text[max(0, start - first) : end - first])
        return "".join(pieces)


# -- JSON lines ------------------------------------------------------------------------------------------------


def _verify_records(
    verifier: Verifier, task: FileTask, result: FileResult, copy: IO[str] | None, told: Callable[[int], None]
) -> None:
    fields = RecordFields(task.fields)
    # So that a replacement that is forbidden is refused before anything is written.
    replacer = None if copy is None else Replacer(verifier.compiled, task.replacement)
    for lines, count in lines_of(task.source):
        batch = _Batch(verifier, task, result, fields)
        for raw in lines:
            batch.read(raw)
        changed = batch.verify(replacer)
        if copy is not None:
            for number, line in batch.lines:
                copy.write(changed.get(number, line) + "\n")
        result.lines += len(lines)
        told(count)
    result.fields = frozenset(fields.met)


class _Batch:
    """Some lines of a file: read first, then verified together."""

    def __init__(self, verifier: Verifier, task: FileTask, result: FileResult, fields: RecordFields) -> None:
        self._verifier = verifier
        self._task = task
        self._result = result
        self._fields = fields
        self._number = result.lines
        self.lines: list[tuple[int, str]] = []
        self._leaves: list[RecordText] = []
        self._owners: list[int] = []  # of each text its place in `lines`

    def read(self, raw: bytes) -> None:
        """One more line; what is wrong with it is counted, and it is left out."""
        self._number += 1
        name = self._task.source.name
        try:
            line = raw.decode("utf-8")
            if not line.strip():
                self.lines.append((self._number, line))
                return
            record = parse(line)
        except UnicodeDecodeError as error:
            problem = f"not UTF-8 at byte {error.start} of the line"
            self._result.add_errors([InputError(name, problem, line=self._number)])
            return
        except json.JSONDecodeError as error:
            problem = f"not JSON at column {error.colno}: {error.msg}"
            self._result.add_errors([InputError(name, problem, line=self._number)])
            return
        except RecursionError:
            problem = "JSON that is nested too deep"
            self._result.add_errors([InputError(name, problem, line=self._number)])
            return
        found = list(leaves(record, self._fields))
        self._leaves += found
        self._owners += [len(self.lines)] * len(found)
        self.lines.append((self._number, line))
        self._result.documents += len(found)

    def verify(self, replacer: Replacer | None) -> dict[int, str]:
        """Enter the findings into the result; the lines that are to be written otherwise, by number."""
        texts = [leaf.text for leaf in self._leaves]
        self._result.length += sum(map(len, texts))
        by_line: dict[int, list[tuple[RecordText, list[Finding]]]] = {}
        for index, findings in self._verifier.find_many(texts):
            by_line.setdefault(self._owners[index], []).append((self._leaves[index], findings))
        changed: dict[int, str] = {}
        for owner, found in by_line.items():
            number, line = self.lines[owner]
            hidden = {leaf.text for leaf, _ in found if leaf.is_key}
            for leaf, findings in found:
                path = shown_path(leaf.path, hidden)
                self._result.findings += [
                    Place(
                        one.rule_id, one.mode, number, one.start, one.end, field=path,
                        text=leaf.text[one.start : one.end] if self._task.show else None,
                    )
                    for one in findings
                ]  # fmt: skip
            if replacer is not None and (redacted := self._redacted(found, replacer)):
                changed[number] = replaced(line, redacted)
        return changed

    def _redacted(
        self, found: Sequence[tuple[RecordText, list[Finding]]], replacer: Replacer
    ) -> dict[int, str]:
        done: dict[int, str] = {}
        for leaf, findings in found:
            hard = [finding for finding in findings if finding.mode == "hard"]
            if hard:
                done[leaf.index] = replacer.whole(leaf.text, hard)
        again = self._verifier.find_many(list(done.values()))
        if broken := self._verifier.broken(one for _, findings in again for one in findings):
            raise RedactionError(broken)
        return done
