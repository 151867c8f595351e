"""What must not be said: rules and the policy that holds them.

All models are frozen, refuse unknown fields and convert nothing silently. Whatever is wrong with them is a
`PolicyError` (a `ValueError`) that names the rule and the field; pydantic's own error is never seen.
What a model accepts is enforced; a setting that this version cannot enforce is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from interegular.fsm import FSM
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from nco_guard.errors import PolicyError, parted
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
from nco_guard.policy._errors import indexed, suggestion, typed_error, unknown_field
from nco_guard.policy._fsm import FSM_JSON_SCHEMA, fsm_to_plain, read_fsm

__all__ = [
    "AutomatonRule",
    "Policy",
    "RegexRule",
    "Rule",
    "StringRule",
    "canonical_json",
    "expand_entry",
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


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )

    # Hidden from type checkers, which take the fields' own types from pydantic instead.
    if not TYPE_CHECKING:

        def __init__(self, /, **data: Any) -> None:
            with parted():
                try:
                    super().__init__(**data)
                except ValidationError as error:
                    raise _typed(type(self), error, data) from None

        def __setattr__(self, name: str, value: Any) -> None:
            raise PolicyError(
                "rules and policies cannot be changed; make a copy with model_copy(update={...})", field=name
            )

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Like pydantic's, with a `PolicyError` for whatever is wrong."""
        with parted():
            try:
                return super().model_validate(obj, **options)
            except ValidationError as error:
                raise _typed(cls, error, obj) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Like pydantic's, with a `PolicyError` for whatever is wrong."""
        with parted():
            try:
                return super().model_validate_json(json_data, **options)
            except ValidationError as error:
                raise _typed(cls, error, None) from None

    @model_validator(mode="wrap")
    @classmethod
    def _without_input(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """In a model of somebody else's, too, errors do not repeat what was given."""
        try:
            return handler(data)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
        lines: list[Any] = [
            {"type": one["type"], "loc": one["loc"], "ctx": one.get("ctx", {}), "input": _HIDDEN}
            for one in details
        ]
        raise ValidationError.from_exception_data(cls.__name__, lines, hide_input=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """For `repr`, `str`, rich and pytest: how much there is of what is forbidden, never what it is."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in _SHOWN and value != field.default:
                yield name, value
            elif name in _COUNTED and value is not None:
                yield name, _Counted(value)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed; unlike pydantic's, the changed fields are checked."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **(update or {})})

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # Nothing in it can change, and a copy of interegular's anything_else would no longer be itself.
        return self


# What is shown of rules and policies: nothing that the owner forbids, and no text for people, which may quote it.
_SHOWN = frozenset(
    {
        *(
            "id",
            "name",
            "penalty",
            "monitor",
            "case",
            "whole_word",
            "normalize",
            "confusables",
            "json_escapes",
        ),
        *("context", "checksum", "on_dead_end", "on_audit_failure"),
    }
)
_COUNTED = frozenset({"strings", "regex", "stop_at", "fsm", "fallback", "rules"})
_HIDDEN = "(not shown)"


class _Counted:
    """Stands for a value of a policy where it is shown."""

    def __init__(self, value: Any) -> None:
        if isinstance(value, str):
            count, unit = len(value), "character"
        elif isinstance(value, FSM):
            count, unit = len(value.states), "state"
        else:
            count, unit = len(value), "rule" if value and isinstance(value[0], _Rule) else "string"
        self._shown = f"<{count:,} {unit}{'' if count == 1 else 's'}>"

    def __repr__(self) -> str:
        return self._shown


def _typed(model: type[BaseModel], error: ValidationError, data: Any) -> PolicyError:
    rule_id = data.get("id") if isinstance(data, Mapping) and issubclass(model, _Rule) else None
    return typed_error(error, model.model_fields, rule_id if isinstance(rule_id, str) else None, data)


class _Rule(_Model):
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

    Example: `StringRule(id="rival", strings=("Acme Corp",), case="fold", whole_word=True)`.
    """

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
    `re.search` would report. `luhn` (payment cards): its digits; `mod97` (IBAN): its digits and letters, of which
    the first four move to the end. Other characters are skipped. Digits of any script count by their value, letters
    as the one of A to Z that `re.IGNORECASE` takes them for. No digits for `luhn`, or fewer than five digits and
    letters for `mod97`, never pass.

    Example: `RegexRule(id="ticket", regex=r"\bTCK-\d{6}\b", stop_at=r"\bTCK-\d")`.
    """

    key: ClassVar[str] = "regex"
    regex: str = Field(description="In the dialect of Python's re.")
    checksum: Literal["none", "luhn", "mod97"] = Field(
        default="none",
        description="Only matches that pass a check count: luhn (payment cards) or mod97 (IBAN).",
    )

    @field_validator("regex", mode="before")
    @classmethod
    def _read_regex(cls, value: Any) -> str:
        return check_regex(value, "regex")

    @model_validator(mode="after")
    def _checked_at_the_end(self) -> Self:
        if self.checksum != "none" and self.stop_at is not None:
            raise PolicyError(
                "whether a match passes its checksum is known at its end, so blocking at an earlier point would block "
                "those that fail too; remove either stop_at or checksum",
                rule_id=self.id,
                field="checksum",
            )
        return self


class AutomatonRule(_Rule):
    """Forbids texts of which some piece is accepted by a ready-made automaton over characters.

    `fsm` is an `interegular.FSM`, such as its users build with `&`, `|` and `-`; it should accept what a
    match is (`abc`, not `.*abc.*`). Fields that fold, and `whole_word`, cannot be applied to an automaton
    and are refused. Two rules are equal if their automata are the same up to the names of states.

    Raises `PolicyError` if the automaton accepts the empty text or nothing at all, or reads symbols other
    than single characters.

    Example: `AutomatonRule(id="pair", fsm=interegular.parse_pattern("a{2}").to_fsm())`.
    """

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


def _read_rules(value: Any) -> tuple[Rule, ...]:
    if not isinstance(value, list | tuple):
        raise PolicyError(f"a list of rules is needed, not {type(value).__name__}")
    rules: list[Rule] = []
    for index, entry in enumerate(value):
        try:
            rules.extend(expand_entry(entry))
        except PolicyError as error:
            raise indexed(error, index) from None
    if not rules:
        raise PolicyError("a policy without rules forbids nothing; add a rule or a preset")
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            raise PolicyError("another rule has the same id; ids must be unique", rule_id=rule.id, field="id")
        seen.add(rule.id)
    return tuple(rules)


def expand_entry(entry: Any) -> tuple[Rule, ...]:
    """The rules that one entry of a policy's `rules` stands for: a preset stands for several."""
    if isinstance(entry, StringRule | RegexRule | AutomatonRule):
        return (entry,)
    if not isinstance(entry, Mapping):
        raise PolicyError(f"a rule is a mapping of fields, not {type(entry).__name__}")
    if "preset" in entry:
        # Presets are made of rules, so they are imported late.
        from nco_guard.policy import presets

        return presets.load_entry(entry)
    return (rule_from_mapping(entry),)


class Policy(_Model):
    """Rules, in order, under a name: what a model must not write.

    Immutable, hashable and comparable. `rules` holds rules, or plain data for them as in a policy file,
    preset entries included; what is kept is always rules.

    Raises `PolicyError`, `PatternError` or `PresetError`, naming the rule and the field.

    Example: `Policy(name="support-bot", rules=(StringRule(id="rival", strings=("Acme Corp",)),))`.
    """

    name: Annotated[str, BeforeValidator(check_text)] = Field(
        description="For people and records.", min_length=1
    )
    description: Annotated[str, BeforeValidator(check_text)] = Field(
        default="", description="For people; it has no effect."
    )
    rules: Annotated[tuple[Rule, ...], BeforeValidator(_read_rules)] = Field(
        min_length=1, description="What may not be written; presets stand for their rules."
    )
    on_dead_end: Literal["raise", "end", "fallback"] = Field(
        default="raise",
        description="What to do where no token is left, because something else masks all that the rules allow: "
        "raise an error, end the text where it may end, or write `fallback` if the rules allow it.",
    )
    fallback: str | None = Field(
        default=None, min_length=1, description="The text of one token, for `on_dead_end: fallback`."
    )
    on_audit_failure: Literal["raise", "warn"] = Field(
        default="raise",
        description="What to do where an audit event cannot be recorded: stop with an error, or log a warning and "
        "go on, so that the event is lost.",
    )

    @model_validator(mode="after")
    def _fallback_given(self) -> Self:
        if (self.on_dead_end == "fallback") != (self.fallback is not None):
            raise PolicyError(
                "on_dead_end: fallback and the field fallback go together; give both or neither",
                field="fallback",
            )
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256, as 64 hex digits, of the UTF-8 bytes of `to_json()`; equal policies have equal digests."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no whitespace, defaults included, infinity as `"inf"`.

        `on_audit_failure` is left out where it is "raise": it says nothing about texts, and digests of policies from
        before it stay what they were.
        """
        plain = self.model_dump(mode="json")
        if plain["on_audit_failure"] == "raise":
            del plain["on_audit_failure"]
        return canonical_json(plain)

    def to_yaml(self) -> str:
        """YAML for people: fields with their default value are left out; presets appear as their rules."""
        from nco_guard.policy import files

        return files.dump_yaml(self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def from_yaml(cls, text: str) -> Policy:
        """The policy that a YAML text describes; errors name the line where it is known."""
        from nco_guard.policy import files

        return files.parse_yaml(text)

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """The policy that a JSON text describes, in the same shape as YAML."""
        from nco_guard.policy import files

        return files.parse_json(text)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Policy:
        """The policy in a file; `.yaml`, `.yml` and `.json` are known."""
        from nco_guard.policy import files

        return files.read_policy(path)

    @classmethod
    def from_presets(
        cls, *names: str, name: str | None = None, description: str = "", **options: Any
    ) -> Policy:
        r"""The rules of some presets, under `name` (their names joined by `+`).

        options: those that every preset has, for all their rules: `json_escapes=True` (`\u0040` is an @ then, as it is
        for whoever parses the output as JSON), `monitor=True`, `penalty=4`, ... For what only one preset has
        (`valid_only`), and for some of its rules, see `presets.load`. Raises `PresetError`, which names what there is,
        and `PolicyError` for a value that a rule would refuse.

        Example: `Policy.from_presets("pii", "secrets", json_escapes=True)`.
        """
        return cls(
            name=name if name is not None else "+".join(map(str, names)),
            description=description,
            rules=_read_rules([{"preset": preset, **options} for preset in names]),
        )

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """A JSON Schema (2020-12) of policy files, preset entries included, for editors and CI."""
        from nco_guard.policy import presets

        schema = cls.model_json_schema()
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        entries = presets.entry_schemas()
        schema["$defs"].update(entries)
        items = schema["properties"]["rules"]["items"]
        items["anyOf"] = [*items["anyOf"], *({"$ref": f"#/$defs/{name}"} for name in entries)]
        return schema

    def with_rules(self, *rules: Rule) -> Policy:
        """The same policy with more rules at its end."""
        return self.model_copy(update={"rules": (*self.rules, *rules)})

    def without(self, *rule_ids: str) -> Policy:
        """The same policy without some rules; ids that it does not have are refused."""
        present = [rule.id for rule in self.rules]
        for rule_id in rule_ids:
            if rule_id not in present:
                raise PolicyError(f"there is no rule {rule_id!r}, {suggestion(rule_id, present)}")
        return self.model_copy(
            update={"rules": tuple(rule for rule in self.rules if rule.id not in rule_ids)}
        )
