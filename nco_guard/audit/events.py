"""What an audit log is made of: small frozen records with ids, counts and offsets, and never any text.

No event holds a prompt, an output or a matched value, and none has a field that could: free text is not
accepted anywhere, names are short labels, and findings are offsets (and a keyed hash of what was found, only
where a key was given for it). So a log may be kept where the text itself may not. Whether a log is whole is
not told by its events but by the chain that they are written in: `nco_guard.audit.chain`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, Self, get_args
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import to_jsonable_python

from nco_guard.arguments import text
from nco_guard.errors import AuditError

__all__ = [
    "OUTCOMES",
    "SCHEMA_VERSION",
    "AnyEvent",
    "DeadEnd",
    "DecodeView",
    "Event",
    "GuaranteeConfigured",
    "Intervention",
    "LoadedRule",
    "PolicyLoaded",
    "RunFinished",
    "RunStarted",
    "Span",
    "Verification",
    "canonical_line",
    "event_schema",
    "outcome_of",
    "parse_event",
    "time_text",
    "value_hmac",
]

SCHEMA_VERSION: Final = 1
"""The version that every event carries; it changes with the meaning or the names of fields."""

Count = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Digest = Annotated[str, StringConstraints(pattern=r"^((hmac-)?sha256:)?[0-9a-f]{64}$")]
# Labels are for programs (outcomes, reasons, ends): too narrow for a sentence of somebody's text to slip in.
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=64)]
# How a guarded sequence ended; `nco_guard.engines.hf.GenerationResult` says what each means.
GuardedOutcome = Literal["ended", "length", "stopped", "trimmed", "dead_end", "violated", "state_limit"]
Outcome = Literal[
    GuardedOutcome,
    # Of models and providers that were watched.
    "answered",
    "abandoned",
    "cancelled",
    "complete",
    "completed",
    "content_filter",
    "end_turn",
    "eos",
    "eos_token",
    "error",
    "filtered",
    "function_call",
    "incomplete",
    "max_tokens",
    "none",
    "pause_turn",
    "refusal",
    "safety",
    "stop",
    "stop_sequence",
    "tool_call",
    "tool_calls",
    "tool_use",
    "other",
]
"""How a sequence ended; "other" for whatever else somebody said."""
OUTCOMES: Final[frozenset[str]] = frozenset(get_args(Outcome))
# What else providers say, in words of the set.
_SPELLINGS: Final = {
    "max_output_tokens": "length",
    "model_length": "length",
    **dict.fromkeys(("recitation", "blocklist", "prohibited_content", "spii"), "content_filter"),
}
# Where responses say it, the surest name first: "status" may be that of something else.
_REASONS: Final = ("outcome", "finish_reason", "stop_reason", "stopReason", "done_reason", "status")
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


def _outcome(said: object) -> str:
    # A provider's finish reason is its own word, and so may be a piece of text: only words known beforehand are kept.
    word = said.strip().lower().replace("-", "_") if isinstance(said, str) and len(said) <= 64 else ""
    word = _SPELLINGS.get(word, word)
    return word if word in OUTCOMES else "other"


def outcome_of(*places: object) -> str:
    """Why a model ended, as its response says: the first finish reason in `places`, as one of `OUTCOMES`.

    Places are mappings, or objects with attributes, whose `choices` (the first) are looked at too. "answered" where
    none says anything.

    Examples:
        >>> outcome_of({"id": "7"}, {"stop_reason": "END_TURN"})
        'end_turn'
    """
    for place in places:
        get = place.get if isinstance(place, Mapping) else partial(getattr, place)
        for name in _REASONS:
            if said := get(name, None):
                return _outcome(said)
        choices = get("choices", None)
        if isinstance(choices, Sequence) and choices and (found := outcome_of(choices[0])) != "answered":
            return found
    return "answered"


def time_text(moment: datetime) -> str:
    """A time as a log has it: UTC, always six digits and a Z, so that equal times are equal text and text sorts like
    time.
    """
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return utc.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class _Record(BaseModel):
    # A pydantic error prints what it was given; events must not leak even when somebody hands them text.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Event(_Record):
    """What every event carries.

    `run_id` is one call of generate, or one verification; `number` counts the events of a run from 0, so that
    a gap shows. `parent_id` and `request_id` are the caller's own ids (a trace, a conversation, an HTTP
    request). `time` is UTC; `monotonic_ns` (nanoseconds, the process's monotonic clock) orders and times
    events when the wall clock is set.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: str
    run_id: UUID
    number: Count
    parent_id: Name | None = None
    request_id: Name | None = None
    time: AwareDatetime
    monotonic_ns: Count

    @field_validator("time")
    @classmethod
    def _in_utc(cls, value: datetime) -> datetime:
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise ValueError("the time is outside of the years 1 to 9999 in UTC") from None

    @field_serializer("time")
    def _time_text(self, value: datetime) -> str:
        return time_text(value)

    def fields(self) -> dict[str, Any]:
        """The fields that are there, by name, with their values as they are; for `canonical_line`. A new dictionary."""
        return _present(self)

    def to_json(self) -> str:
        """The event as one line of canonical JSON, without a line break.

        Keys sorted, no spaces, ASCII only, absent optional fields left out: equal events give equal lines,
        and `parse_event` gives the event back.
        """
        return canonical_line(self.fields())


def _present(record: BaseModel) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if value is not None}


def _plain(value: object) -> object:
    """What JSON has no word for, as events have it: what `model_dump(mode="json")` makes of it, without the copies."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, _Record):
        return _present(value)
    found: object = to_jsonable_python(value)
    return found


# Made once: `json.dumps` makes a new encoder for each call with options. No record holds itself.
_encode = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=True,
    allow_nan=False,
    check_circular=False,
    default=_plain,
).encode


def canonical_line(fields: object) -> str:
    """Canonical JSON of one record, as `nco_guard.audit.chain` says; without a line break."""
    return _encode(fields)


class DecodeView(_Record):
    """Which text the guarantee is about: how the ids are decoded, and which ends of the text are covered.

    `covered_ends` names the ways a generation may end under which rules with an end condition hold, for
    example "eos", "max_length", "stop_strings". `borders`: how many tokens cut the text into parts. `fields`: where
    marks cut it into fields, those that rules look at; `free_fields`: those that they do not.
    """

    skip_special_tokens: bool
    covered_ends: tuple[Label, ...] = ()
    borders: Count = 0
    fields: tuple[Label, ...] = ()
    free_fields: tuple[Label, ...] = ()


class LoadedRule(_Record):
    """A rule of a policy: its id, what it is made of, and what a match leads to; not what it forbids."""

    rule_id: Name
    type: Literal["strings", "regex", "fsm"]
    mode: Literal["hard", "soft", "monitor"]


class PolicyLoaded(Event):
    """A guard was built: this policy is compiled and can be enforced.

    Events that belong to no generation carry a run id of the guard's own.
    """

    kind: Literal["policy_loaded"] = "policy_loaded"
    policy_name: Name
    policy_digest: Digest
    rules: tuple[LoadedRule, ...]
    on_dead_end: Label
    on_audit_failure: Label


class GuaranteeConfigured(Event):
    """What the guarantee is about from here on: this policy, seen through this tokenizer, in this decode view.

    Recorded before the first run of each such combination in a guard; runs repeat the decode view.
    """

    kind: Literal["guarantee_configured"] = "guarantee_configured"
    policy_digest: Digest
    tokenizer_digest: Digest
    vocabulary_size: Count
    decode_view: DecodeView


class RunStarted(Event):
    """A guarded generation begins: which policy, tokenizer and model, and how many sequences."""

    kind: Literal["run_started"] = "run_started"
    policy_name: Name
    policy_digest: Digest
    rule_ids: tuple[Name, ...]
    sequences: Count
    tokenizer_digest: Digest | None = None
    model_id: Name | None = None
    decode_view: DecodeView | None = None


Action = Literal["masked", "penalized", "rewound", "recorded"]
"""What an intervention did."""


class Intervention(Event):
    """The guard changed what the model could choose at one step of one sequence.

    `sequence` is the index of the sequence in the run, `step` the index of the generated token, both from 0.
    `removed_probability` is the model's probability of all tokens masked there; `first_allowed_rank` is the
    rank, in the model's order, of the first token left (0: the model's own first choice was allowed). Either
    is None, and `rule_ids` is empty, where the engine does not know. "rewound": the text went back instead, and so many
    tokens were thrown away (`discarded`).
    """

    kind: Literal["intervention"] = "intervention"
    sequence: Count
    step: Count
    action: Action = "masked"
    rule_ids: tuple[Name, ...] = ()
    removed_probability: Probability | None = None
    first_choice_forbidden: bool | None = None
    first_allowed_rank: Count | None = None
    discarded: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        rank, forbidden = self.first_allowed_rank, self.first_choice_forbidden
        if rank is not None and forbidden is not None and forbidden != (rank > 0):
            raise ValueError("first_allowed_rank is 0 exactly when the first choice is allowed")
        return self


class DeadEnd(Event):
    """No token was allowed at one step of one sequence; `resolution` says what was done about it."""

    kind: Literal["dead_end"] = "dead_end"
    sequence: Count
    step: Count
    resolution: Label
    rule_ids: tuple[Name, ...] = ()


RewindTarget = Literal["match", "sentence", "text"]
"""How far a text goes back where it would come to a match; see `nco_guard.Rewind`."""


class RunFinished(Event):
    """A guarded generation is over: one outcome per sequence, and totals over all of them.

    An outcome is one of `OUTCOMES`; whatever else is said becomes "other". `error` is the name of the exception's type
    when the run ended by one. Where texts could go back (`when_blocked="rewind"`), `back_to` says how far, and
    `fallbacks` how often each could not go back so far: it went back to the match only, or the mask acted.
    """

    kind: Literal["run_finished"] = "run_finished"
    outcomes: tuple[Annotated[Outcome, BeforeValidator(_outcome)], ...]
    interventions: Count
    tokens: Count
    seconds: Seconds
    error: Label | None = None
    back_to: RewindTarget | None = None
    fallbacks: tuple[Count, ...] | None = None

    @model_validator(mode="after")
    def _for_each(self) -> Self:
        if (self.back_to is None) != (self.fallbacks is None):
            raise ValueError("back_to and fallbacks go together")
        if self.fallbacks is not None and len(self.fallbacks) != len(self.outcomes):
            raise ValueError("fallbacks needs one number for each outcome")
        return self


class Span(_Record):
    """Where a rule matches in a verified text: offsets in code points, end exclusive; not what matched.

    `value_hmac` is there only where a correlation key was given: see the function of that name.
    """

    rule_id: Name
    start: Count
    end: Count
    value_hmac: Sha256 | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end < self.start:
            raise ValueError("end lies before start")
        return self


class Verification(Event):
    """A finished text was searched by the independent verifier.

    `length` is the text's length in code points, `sequence` its index in the run (None outside of a run).
    `exposures` says how far the text gets towards a match, for each rule at most one stretch, the longest (see
    `nco_guard.scan.exposure`); None if nobody measured it.
    """

    kind: Literal["verification"] = "verification"
    ok: bool
    length: Count
    findings: tuple[Span, ...] = ()
    exposures: tuple[Span, ...] | None = None
    sequence: Count | None = None
    policy_digest: Digest | None = None

    @model_validator(mode="after")
    def _inside(self) -> Self:
        exposures = self.exposures or ()
        if any(span.end > self.length for span in (*self.findings, *exposures)):
            raise ValueError("a finding or an exposure ends past the end of the text")
        if any(span.value_hmac is not None for span in exposures):
            raise ValueError("only a finding has a value_hmac")
        if len({span.rule_id for span in exposures}) != len(exposures):
            raise ValueError("more than one exposure of a rule")
        return self


AnyEvent = (
    PolicyLoaded | GuaranteeConfigured | RunStarted | Intervention | DeadEnd | RunFinished | Verification
)
"""Any of the seven events, told apart by `kind`."""
_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="kind")])


def parse_event(line: str | bytes | dict[str, Any]) -> AnyEvent:
    """The event of one line of JSON, or of the mapping that such a line holds.

    A seal (see `nco_guard.audit.chain`) is dropped, not checked. Raises `AuditError` where the line is not an
    event of this schema version; the message does not quote the line.

    Examples:
        >>> line = RunRecorder(MemorySink()).verification(ok=True, length=12).to_json()
        >>> parse_event(line).length
        12
    """
    try:
        fields = json.loads(line) if isinstance(line, str | bytes) else line
    except (ValueError, RecursionError):
        raise AuditError("not an audit event: the line is no JSON") from None
    if not isinstance(fields, dict):
        raise AuditError(f"not an audit event: {type(fields).__name__} is no object of JSON")
    if "seal" in fields:
        fields = {key: value for key, value in fields.items() if key != "seal"}
    try:
        # By way of JSON, in which tuples, ids and times are what their text says.
        return _ADAPTER.validate_json(json.dumps(fields))
    except TypeError:
        raise AuditError("not an audit event: it holds what JSON cannot") from None
    except RecursionError:
        raise AuditError(f"not an audit event of schema version {SCHEMA_VERSION}: nested too deep") from None
    except ValidationError as error:
        places = sorted(
            {".".join(map(str, item["loc"])) or "line" for item in error.errors(include_input=False)}
        )
        raise AuditError(f"not an audit event of schema version {SCHEMA_VERSION}: see {places[0]}") from None


def value_hmac(key: bytes, value: str) -> str:
    """HMAC-SHA256 of a matched value, as 64 hex digits: equal values can be recognised across events by it.

    Only who has the key can find out whether a guessed value is the one; a hash without a key would not do,
    for nine digits are guessed in a moment. Raises `AuditError` for a key shorter than 16 bytes.

    Examples:
        >>> len(value_hmac(bytes(range(32)), "jane.doe@example.com"))
        64
    """
    if not isinstance(key, bytes) or len(key) < 16:
        raise AuditError("a correlation key needs at least 16 bytes; secrets.token_bytes(32) makes one")
    text("value", value)
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def event_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of an event, as `Event.to_json` writes it; in a chained log each has a `seal` too.

    Examples:
        >>> event_schema()["$schema"]
        'https://json-schema.org/draft/2020-12/schema'
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nco-guard audit event",
        **_ADAPTER.json_schema(mode="serialization"),
    }
