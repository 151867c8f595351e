"""The kinds of rule: what must not be said.

Rules are frozen, refuse unknown fields and convert nothing silently. Whatever is wrong with them is a
`PolicyError` (a `ValueError`) that names the rule and the field; pydantic's own error is never seen.
What a model accepts is enforced; a setting that this version cannot enforce is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Required, Self, TypedDict, Unpack

from interegular.fsm import FSM
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from nco_guard.errors import PolicyError
from nco_guard.policy._base import Model
from nco_guard.policy._checks import (
    IGNORABLE_SETS,
    check_flag,
    check_id,
    check_ignore,
    check_penalty,
    check_regex,
    check_text,
    check_texts,
)
from nco_guard.policy._errors import unknown_field
from nco_guard.policy._fsm import FSM_JSON_SCHEMA, fsm_to_plain, read_fsm
from nco_guard.policy.check_digits import CheckDigits, ChecksumName, RuleChecksum, read_checksum

__all__ = [
    "AutomatonRule",
    "RegexRule",
    "Rule",
    "RuleFields",
    "StringRule",
    "Texts",
    "canonical_json",
    "rule_from_mapping",
]

_Penalty = Annotated[
    float,
    BeforeValidator(check_penalty),
    PlainSerializer(lambda value: "inf" if math.isinf(value) else value, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}),
]
_Flag = Annotated[bool, BeforeValidator(check_flag)]
_Ignore = Annotated[
    tuple[str, ...],
    BeforeValidator(check_ignore),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "anyOf": [
                    {"enum": list(IGNORABLE_SETS)},
                    {"type": "string", "minLength": 1, "maxLength": 1},
                ]
            },
        }
    ),
]
_Fsm = Annotated[
    FSM,
    BeforeValidator(read_fsm),
    PlainSerializer(fsm_to_plain, when_used="json"),
    WithJsonSchema(FSM_JSON_SCHEMA),
]


Texts = list[str] | tuple[str, ...]
"""What a field of texts is made of; it is kept as a tuple."""

_Checked = (
    ChecksumName | CheckDigits | Mapping[str, Any] | Sequence[ChecksumName | CheckDigits | Mapping[str, Any]]
)
"""What `checksum` is made of; it is kept as a name, as `CheckDigits`, or as a tuple of both."""


class RuleFields(TypedDict, total=False):
    """What every kind of rule can be told, as type checkers see it: lists will do where a field is a tuple."""

    id: Required[str]
    description: str
    penalty: float
    monitor: bool
    case: Literal["exact", "fold"]
    whole_word: bool
    normalize: Literal["none", "nfkc"]
    ignore: Texts
    confusables: Literal["none", "letters", "leet"]
    json_escapes: bool
    stop_at: str | None
    context: Literal["output", "prompt"]


class _Rule(Model):
    """The fields that all kinds of rule share."""

    # The field that tells the kinds apart in files.
    key: ClassVar[str]

    id: Annotated[str, BeforeValidator(check_id)] = Field(
        description="Names the rule in errors, audit records and metrics; unique in its policy."
    )
    description: Annotated[str, BeforeValidator(check_text)] = Field(
        default="", description="For people; it has no effect."
    )
    penalty: _Penalty = Field(
        default=math.inf,
        description="inf: a match cannot be written. A number: what completing one costs, in logits.",
    )
    monitor: _Flag = Field(default=False, description="Only record matches; nothing is masked or penalised.")
    case: Literal["exact", "fold"] = Field(
        default="exact",
        description="fold: upper and lower case are the same, as re.IGNORECASE compares them.",
    )
    whole_word: _Flag = Field(
        default=False,
        description=r"Match only where no \w character touches the match on either side (Unicode's \w, whatever flags "
        "a regex sets).",
    )
    normalize: Literal["none", "nfkc"] = Field(
        default="none",
        description="nfkc: each character counts as its NFKC form (full-width letters, ligatures, styled letters).",
    )
    ignore: _Ignore = Field(
        default=(),
        description=f"Characters that do not count, and sets of them: {', '.join(IGNORABLE_SETS)}.",
    )
    confusables: Literal["none", "letters", "leet"] = Field(
        default="none",
        description="letters: look-alikes of other scripts will do for a letter; leet: digits and signs too.",
    )
    json_escapes: _Flag = Field(
        default=False,
        description=r"Escapes of JSON strings (\u0066) count as the characters that they denote.",
    )
    stop_at: str | None = Field(
        default=None,
        description="An earlier point from which the rule blocks: a regex of which any match holds a match.",
    )
    context: Literal["output", "prompt"] = Field(
        default="output",
        description="prompt: a match may also begin in the prompt and be completed by the output.",
    )

    @field_validator("stop_at", mode="before")
    @classmethod
    def _read_stop_at(cls, value: Any) -> str | None:
        if value is None:
            return None
        if cls.key != "regex":
            raise PolicyError("only a rule with a regex has an earlier point to stop at; remove this field")
        return check_regex(value, "stop_at")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.monitor and math.isfinite(self.penalty):
            raise PolicyError(
                "a rule that only records has no penalty; remove either penalty or monitor",
                rule_id=self.id,
                field="penalty",
            )
        return self

    @property
    def mode(self) -> Literal["hard", "soft", "monitor"]:
        """What a match leads to: it cannot be written, it costs `penalty`, or it is only recorded."""
        if self.monitor:
            return "monitor"
        return "hard" if math.isinf(self.penalty) else "soft"


class StringRule(_Rule):
    """Forbids texts that contain one of some strings.

    `case="fold"` compares as `re.IGNORECASE` does, character by character (so `ß` is not `ss`);
    `whole_word=True` means `(?<!\\w)` before and `(?!\\w)` after each string. Exact duplicates are dropped.
    With `normalize` or `ignore` the strings are folded as the text is, and found in every canonically
    equivalent spelling.

    Raises `PolicyError` for no strings, an empty one, or one that UTF-8 cannot hold.

    Examples:
        >>> rule = StringRule(id="rival", strings=["Acme Corp"], case="fold", whole_word=True)
        >>> Guard(Policy(name="p", rules=[rule])).verify("ask ACME CORP").ok
        False
    """

    if TYPE_CHECKING:

        def __init__(self, *, strings: Texts, **fields: Unpack[RuleFields]) -> None: ...

    key: ClassVar[str] = "strings"
    strings: tuple[str, ...] = Field(description="Texts that may not appear.", min_length=1)

    @field_validator("strings", mode="before")
    @classmethod
    def _read_strings(cls, value: Any) -> tuple[str, ...]:
        strings = check_texts(value, "strings")
        if not strings:
            raise PolicyError("at least one text is needed; without any the rule would forbid nothing")
        return strings


class RegexRule(_Rule):
    r"""Forbids texts in which Python's `re.search` finds a regular expression.

    `case="fold"` adds `re.IGNORECASE` to `regex` and to `stop_at`; `whole_word=True` puts `(?<!\w)` before
    and `(?!\w)` after `regex`, and leaves `stop_at` as it is. These borders use Unicode's `\w` whatever flags the
    pattern sets for itself: with `(?a)abc` they are those of `(?<!\w)(?a:abc)(?!\w)`, so "éabc" is no match.
    `stop_at` names an earlier point from which the rule blocks, so that a value does not leak up to its last
    character: a pattern that is found in every text in which `regex` is found. With `normalize`, `ignore` or
    `json_escapes` both are about the folded text; a character that folding removes is refused in them when the
    policy is compiled.

    Raises `PatternError` for text that `re.compile` refuses or warns about. Constructs that cannot be
    enforced (atomic groups, for example) are refused when the policy is compiled.

    `checksum` narrows the rule to matches whose characters pass a check, so that a number that only looks like a
    card's may be written. Any piece of the text that `regex` matches where it stands counts, also a shorter one than
    `re.search` would report. `luhn` (payment cards), `mod11_10` (ISO/IEC 7064 MOD 11,10) and `verhoeff`: its digits;
    `mod97` (IBAN): its digits and letters, of which the first four move to the end; `CheckDigits`, or a mapping of its
    fields: what they say; a list: all of its entries. Other characters are skipped. Digits of any script count by their
    value, letters as the one of A to Z that `re.IGNORECASE` takes them for. No digits, or fewer than five digits and
    letters for `mod97`, never pass.

    With both, text that is generated is blocked at the stop point, where no check digit is known: numbers that would
    fail cannot be written either. Finished text is searched for matches that pass, as without `stop_at`.

    Examples:
        >>> rule = RegexRule(id="ticket", regex="TCK-[0-9]{6}", stop_at="TCK-[0-9]")
        >>> Guard(Policy(name="p", rules=[rule])).verify("see TCK-123456").findings[0].start
        4
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            regex: str,
            checksum: _Checked = "none",
            **fields: Unpack[RuleFields],
        ) -> None: ...

    key: ClassVar[str] = "regex"
    regex: str = Field(description="In the dialect of Python's re.")
    checksum: Annotated[RuleChecksum, BeforeValidator(read_checksum)] = Field(
        default="none",
        description="Only matches that pass a check count: luhn (payment cards), mod97 (IBAN), mod11_10 (ISO/IEC "
        "7064), verhoeff, one that is declared, or several, all of them. With stop_at, others are blocked too.",
    )

    @field_validator("regex", mode="before")
    @classmethod
    def _read_regex(cls, value: Any) -> str:
        return check_regex(value, "regex")


class AutomatonRule(_Rule):
    """Forbids texts of which some piece is accepted by a ready-made automaton over characters.

    `fsm` is an `interegular.FSM`, such as its users build with `&`, `|` and `-`; it should accept what a
    match is (`abc`, not `.*abc.*`). Fields that fold, and `whole_word`, cannot be applied to an automaton
    and are refused. Two rules are equal if their automata are the same up to the names of states.

    Raises `PolicyError` if the automaton accepts the empty text or nothing at all, or reads symbols other
    than single characters.

    Examples:
        >>> import interegular
        >>> rule = AutomatonRule(id="pair", fsm=interegular.parse_pattern("a{2}").to_fsm())
        >>> Guard(Policy(name="p", rules=[rule])).verify("baa").ok
        False
    """

    if TYPE_CHECKING:

        def __init__(self, *, fsm: FSM, **fields: Unpack[RuleFields]) -> None: ...

    key: ClassVar[str] = "fsm"
    fsm: _Fsm = Field(description="An automaton; any piece of the text that it accepts is a match.")

    @model_validator(mode="after")
    def _nothing_to_fold(self) -> Self:
        for field in ("case", "whole_word", "normalize", "ignore", "confusables", "json_escapes"):
            if getattr(self, field) != type(self).model_fields[field].default:
                raise PolicyError(
                    "an automaton cannot be folded or given borders; build that into it, or use a regex",
                    rule_id=self.id,
                    field=field,
                )
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AutomatonRule):
            return NotImplemented
        return self.model_dump(mode="json") == other.model_dump(mode="json")

    def __hash__(self) -> int:
        return hash(canonical_json(self.model_dump(mode="json")))

    def __reduce__(self) -> tuple[Any, ...]:
        # interegular's anything_else is told by identity, which pickling would not keep.
        return type(self).model_validate, (self.model_dump(mode="json"),)


Rule = StringRule | RegexRule | AutomatonRule
"""Any kind of rule."""
_KINDS: dict[str, type[Rule]] = {kind.key: kind for kind in (StringRule, RegexRule, AutomatonRule)}


def canonical_json(data: Any) -> str:
    """JSON with sorted keys and no whitespace, characters as they are; its UTF-8 bytes are what is hashed."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def rule_from_mapping(data: Mapping[str, Any]) -> Rule:
    """One rule from plain data; which kind is told by the one of `strings`, `regex` and `fsm` that it has."""
    if not all(isinstance(key, str) for key in data):
        raise PolicyError("the names of fields must be text; in YAML put them between quotes")
    rule_id = data["id"] if isinstance(data.get("id"), str) else None
    keys = [key for key in _KINDS if key in data]
    if len(keys) > 1:
        raise PolicyError(
            f"a rule has only one of {' and '.join(map(repr, keys))}; write a rule for each", rule_id=rule_id
        )
    if keys:
        return _KINDS[keys[0]](**data)
    known = {*_KINDS, *_Rule.model_fields}
    for place, key in enumerate(data, 1):
        if key not in known:
            raise unknown_field(key, place, known, rule_id)
    raise PolicyError("a rule needs one of 'strings', 'regex' or 'fsm', or is a 'preset'", rule_id=rule_id)
