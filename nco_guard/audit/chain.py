"""The chain in which the lines of a log stand: each line's hash covers the line before it.

A writer (one sink in one process) has a chain of its own: a random id, and a `seal` on each of its lines with
that id, the line's number in the chain, and two hashes,

    "seal": {"after": ..., "chain": ..., "prev": ..., "seq": ..., "sha256": ...}

`sha256` is that of the line without this one member; `prev` is the `sha256` of the chain's line before (64
zeros for the first). `after`, where it stands, is the `sha256` of the line that stood last in the file when
this one was appended, if that was another writer's; on the first line of a new file it is that of the last line of the
file before. So chains are woven, and the order of lines and of files shows, as does a beginning that is gone.

Canonical JSON, which is what is hashed and what is written: keys sorted by code point, no white space, ASCII
only with the rest as lower-case `\\uXXXX` (in UTF-16 units), numbers as Python's `json` writes them (shortest
form that reads back the same). It is RFC 8785 but for those two: that one leaves characters as they are, and
writes floats as JavaScript does. A line that is not canonical counts as edited.

Besides events a chain has records of its own: `chain_opened` first, `chain_head` now and then, `chain_closed`
last. With a signer each of them is signed, and with it all that it stands on. What a chain cannot tell is
where it ends, unless it was closed: that is what anchors are for (`nco_guard.audit.integrity`).

Cost: some microseconds a line; a signature per head.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Final, Literal
from uuid import UUID, uuid4

from nco_guard.audit.events import SCHEMA_VERSION, Event, canonical_line, event_schema, time_text
from nco_guard.audit.signing import Signer
from nco_guard.copies import Staying

__all__ = ["GENESIS", "Chain", "canonical_line", "log_schema", "seal_hash", "signed_bytes", "utc_text"]

GENESIS: Final = "0" * 64
_DOMAIN: Final = b"nco-guard audit record v1\n"


def seal_hash(fields: dict[str, Any]) -> str:
    """The SHA-256 that a record's seal should hold."""
    seal = {key: value for key, value in fields["seal"].items() if key != "sha256"}
    return hashlib.sha256(canonical_line({**fields, "seal": seal}).encode("ascii")).hexdigest()


def signed_bytes(fields: dict[str, Any]) -> bytes:
    """What a record's signature is about: the record without its signature and its own hash."""
    unsigned = {key: value for key, value in fields.items() if key != "signature"}
    if "seal" in fields:
        unsigned["seal"] = {key: value for key, value in fields["seal"].items() if key != "sha256"}
    return _DOMAIN + canonical_line(unsigned).encode("ascii")


def utc_text() -> str:
    """Now, as events have it."""
    return time_text(datetime.now(UTC))


def log_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one line of a log: an event, sealed or not, or a record of a chain.

    Examples:
        >>> log_schema()["$schema"]
        'https://json-schema.org/draft/2020-12/schema'
    """
    schema = event_schema()
    definitions = schema["$defs"]
    seal = {"$ref": "#/$defs/Seal"}
    events = [reference["$ref"].rpartition("/")[2] for reference in schema.pop("oneOf")]
    for name in events:
        definitions[name]["properties"]["seal"] = seal
    hexadecimal = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    text = {"type": "string"}
    definitions["Seal"] = {
        "title": "Seal",
        "type": "object",
        "properties": {
            "after": hexadecimal,
            "chain": {"type": "string", "format": "uuid"},
            "prev": hexadecimal,
            "seq": {"type": "integer", "minimum": 0},
            "sha256": hexadecimal,
        },
        "required": ["chain", "prev", "seq", "sha256"],
        "additionalProperties": False,
    }
    definitions["ChainRecord"] = {
        "title": "ChainRecord",
        "description": "The beginning or end of a chain, or a head between them.",
        "type": "object",
        "properties": {
            "kind": {"enum": ["chain_opened", "chain_head", "chain_closed"]},
            "schema_version": {"const": SCHEMA_VERSION},
            "time": {"type": "string", "format": "date-time"},
            "woven": {"type": "boolean"},
            "torn": hexadecimal,
            "seal": seal,
            "signature": {
                "type": "object",
                "properties": {"algorithm": text, "key_id": text, "value": text},
                "required": ["algorithm", "key_id", "value"],
                "additionalProperties": False,
            },
        },
        "required": ["kind", "schema_version", "time", "seal"],
        "additionalProperties": False,
    }
    kinds = definitions["ChainRecord"]["properties"]["kind"]["enum"]
    schema["discriminator"]["mapping"].update(dict.fromkeys(kinds, "#/$defs/ChainRecord"))
    schema["title"] = "nco-guard audit log line"
    schema["oneOf"] = [{"$ref": f"#/$defs/{name}"} for name in [*events, "ChainRecord"]]
    return schema


class Chain(Staying):
    """One writer's chain: seals records; not thread-safe.

    A seal counts only once it is `commit`ted, that is once the line is written: what could not be written is
    then no gap.
    """

    def __init__(self, signer: Signer | None = None) -> None:
        self.id: UUID = uuid4()
        self.head = GENESIS
        self.length = 0
        self._id_text = str(self.id)
        self._signer = signer
        self._next: tuple[str, int] | None = None

    def commit(self) -> None:
        """All lines sealed since the last commit are written."""
        if self._next is not None:
            self.head, self.length = self._next
            self._next = None

    def discard(self) -> None:
        """None of them is."""
        self._next = None

    def event(self, event: Event, after: str | None = None) -> bytes:
        """The sealed line of an event, line break included."""
        return self._seal(event.fields(), after, sign=False)

    def record(
        self,
        kind: Literal["chain_opened", "chain_head", "chain_closed"],
        after: str | None = None,
        **fields: str | bool | None,
    ) -> bytes:
        """The sealed line of one of the chain's own records, signed where there is a signer."""
        present = {key: value for key, value in fields.items() if value is not None}
        record = {"kind": kind, "schema_version": SCHEMA_VERSION, "time": utc_text(), **present}
        return self._seal(record, after, sign=True)

    def _seal(self, fields: dict[str, Any], after: str | None, *, sign: bool) -> bytes:
        prev, seq = self._next if self._next is not None else (self.head, self.length)
        # Canonical by hand: hexadecimal digits and a number. Only `after` is anybody's word, as it stood in the file.
        last = "" if after is None else f'"after":{canonical_line(after)},'
        seal = f'"seal":{{{last}"chain":"{self._id_text}","prev":"{prev}","seq":{seq}'
        before, behind = _around_seal(fields)
        if sign and self._signer is not None:
            unsigned = f"{before}{seal}}}{behind}".encode("ascii")
            fields["signature"] = self._signer.signature(_DOMAIN + unsigned)
            before, behind = _around_seal(fields)
        digest = hashlib.sha256(f"{before}{seal}}}{behind}".encode("ascii")).hexdigest()
        self._next = digest, seq + 1
        # "sha256" sorts after all other members of a seal.
        return f'{before}{seal},"sha256":"{digest}"}}{behind}\n'.encode("ascii")


def _around_seal(fields: dict[str, Any]) -> tuple[str, str]:
    """Canonical JSON of a record before its seal, and behind it."""
    fields["seal"] = None
    # Found at its place only: a quote inside of any text is escaped, and nothing else that is null is written.
    before, _, behind = canonical_line(fields).partition('"seal":null')
    return before, behind
