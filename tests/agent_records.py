"""What tests of guarded agents share: personal data for tools to return, and all that is written while agents run."""

from __future__ import annotations

import io
import json
import logging
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nco_guard.audit import JsonLinesSink, LoggingSink, MemorySink, fan_out, verify_log
from nco_guard.audit.otel import OpenTelemetrySink
from nco_guard.audit.sqlite import SqliteSink

__all__ = ["CANARIES", "RECORD", "Record", "silent"]

CANARIES = ("maria.lopez@canary-mail.example", "312-555-0155", "4111 1111 1111 1111")
PIECES = ("canary-mail", "maria.lopez", "555-0155", "5550155", "4111 1111", "41111111")
RECORD = json.dumps({"name": "Maria Lopez", "email": CANARIES[0], "phone": CANARIES[1], "card": CANARIES[2]})


class Record:
    """Everything that is written while agents run, and what was raised."""

    def __init__(self, folder: Path) -> None:
        self.log, self.database = folder / "log.jsonl", folder / "log.db"
        self.stream, self.memory = io.StringIO(), MemorySink()
        logger = logging.getLogger("canary-test")
        logger.handlers = [logging.StreamHandler(self.stream)]
        logger.setLevel(logging.DEBUG)
        self.exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.lines, self.rows = JsonLinesSink(self.log), SqliteSink(self.database)
        tracer = provider.get_tracer("test")
        self.sink = fan_out(
            self.lines, self.rows, self.memory, LoggingSink(logger), OpenTelemetrySink(tracer)
        )
        self.caught: list[BaseException] = []
        self.others: list[str] = []

    def of(self, *objects: Any) -> None:
        """Objects of this library that somebody might print."""
        self.others += [form(one) for one in objects for form in (repr, str)]

    def error(self, error: BaseException) -> None:
        """With all that led to it, shown by tracebacks or not."""
        chain: list[BaseException | None] = [error]
        for one in chain:
            if one is not None and one not in self.caught:
                self.caught.append(one)
                chain += [one.__cause__, one.__context__]

    def more(self) -> Iterable[str]:
        """What only one framework writes."""
        return ()

    def everything(self) -> str:
        self.lines.close()
        self.rows.close()
        return "\n".join(
            [
                self.log.read_text(),
                self.database.read_bytes().decode("latin-1"),
                self.stream.getvalue(),
                *(span.to_json() for span in self.exporter.get_finished_spans()),
                *self.more(),
                *map(repr, self.memory.events),
                *("".join(traceback.format_exception(error)) + repr(error) for error in self.caught),
                *self.others,
            ]
        )


@contextmanager
def silent(
    made: Record,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    logger: str | None = None,
) -> Iterator[Record]:
    """No canary is written meanwhile, by the record, by `logger` at DEBUG, to the terminal or as a warning."""
    with caplog.at_level(logging.DEBUG, logger), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield made
    written = made.everything()
    assert len(made.memory.events) > 3
    text = "\n".join([written, caplog.text, *capfd.readouterr(), *(str(one.message) for one in warned)])
    for canary in (*CANARIES, *PIECES):
        assert canary not in text, text[max(0, text.find(canary) - 600) : text.find(canary) + 200]
    assert verify_log(made.log).ok
