"""A policy: rules in order, made of plain data, of files and of presets.

What a policy accepts is enforced; a setting that this version cannot enforce is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Unpack

from pydantic import BeforeValidator, Field, model_validator

from nco_guard.arguments import one_by_one
from nco_guard.errors import PolicyError, parted
from nco_guard.policy import files, presets
from nco_guard.policy._base import Model
from nco_guard.policy._checks import check_text
from nco_guard.policy._errors import indexed, located, named, suggestion, unknown_field
from nco_guard.policy.applies import AppliesTo
from nco_guard.policy.files import Written
from nco_guard.policy.presets import PresetOptions
from nco_guard.policy.rewind import Rewind
from nco_guard.policy.rules import (
    AutomatonRule,
    RegexRule,
    Rule,
    StringRule,
    canonical_json,
    rule_from_mapping,
)

__all__ = ["Policy"]


_LATER = ("on_audit_failure", "when_blocked", "rewind", "applies_to")


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
        raise PolicyError(
            f"a rule is a mapping of fields (or a StringRule, RegexRule or AutomatonRule), not {type(entry).__name__}; "
            "a preset is written as the mapping {preset: name}"
        )
    if "preset" in entry:
        return presets.load_entry(entry)
    return (rule_from_mapping(entry),)


class Policy(Model):
    """Rules, in order, under a name: what a model must not write.

    Immutable, hashable and comparable. `rules` holds rules, or plain data for them as in a policy file,
    preset entries included; what is kept is always rules.

    Raises `PolicyError`, `PatternError` or `PresetError`, naming the rule and the field.

    Examples:
        >>> rival = StringRule(id="rival", strings=["Acme Corp"])
        >>> policy = Policy(name="support-bot", rules=[rival, {"preset": "pii"}])
        >>> policy.rules[0].id, policy == Policy.from_yaml(policy.to_yaml())
        ('rival', True)
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            rules: Sequence[Rule | Mapping[str, Any]],
            description: str = "",
            on_dead_end: Literal["raise", "end", "fallback"] = "raise",
            fallback: str | None = None,
            on_audit_failure: Literal["raise", "warn"] = "raise",
            when_blocked: Literal["mask", "rewind"] = "mask",
            rewind: Rewind | Mapping[str, Any] | None = None,
            applies_to: AppliesTo | Mapping[str, Any] | None = None,
        ) -> None: ...

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
    when_blocked: Literal["mask", "rewind"] = Field(
        default="mask",
        description="What to do where the model would complete a match: choose among the tokens that are left, or go "
        "back to where the match began and write on from there. Where `rewind` is given it need not be.",
    )
    rewind: Rewind | None = Field(
        default=None,
        description="How far to go back, and how often; texts then go back, also where `when_blocked` is left out.",
    )

    applies_to: AppliesTo | None = Field(
        default=None,
        description="To which fields of a reply the rules apply, where a reply is cut into fields; left out: to all.",
    )

    @property
    def unbound_fields(self) -> tuple[str, ...]:
        """The fields of a reply that no rule looks at."""
        applied = self.applies_to
        return () if applied is None or applied.reasoning == "guarded" else ("reasoning",)

    @model_validator(mode="before")
    @classmethod
    def _goes_back(cls, data: Any) -> Any:
        """Who says how far texts go back has said that they do."""
        if not isinstance(data, Mapping) or data.get("rewind") is None or "when_blocked" in data:
            return data
        return {**data, "when_blocked": "rewind"}

    @model_validator(mode="after")
    def _rewind_has_effect(self) -> Self:
        if self.rewind is not None and self.when_blocked == "mask":
            raise PolicyError(
                "it has no effect with when_blocked: mask; say when_blocked: rewind, or leave rewind out",
                field="rewind",
            )
        return self

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

        Fields that came later are left out at their defaults, so that digests of policies from before stay what they
        were.
        """
        plain = self.model_dump(mode="json")
        for name in _LATER:
            if plain[name] == type(self).model_fields[name].default:
                del plain[name]
        return canonical_json(plain)

    def to_yaml(self) -> str:
        """YAML for people: fields with their default value are left out; presets appear as their rules."""
        return files.dump_yaml(self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def from_yaml(cls, text: str) -> Policy:
        """The policy that a YAML text describes; errors name the line where it is known."""
        with parted():
            return _made(files.read_yaml(text))

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """The policy that a JSON text describes, in the same shape as YAML."""
        with parted():
            return _made(files.read_json(text))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Policy:
        """The policy in a file; `.yaml`, `.yml` and `.json` are known."""
        with parted():
            return _made(files.read_file(path))

    @classmethod
    def from_presets(
        cls,
        *names: str,
        name: str | None = None,
        description: str = "",
        **options: Unpack[PresetOptions],
    ) -> Policy:
        r"""The rules of some presets, under `name` (their names joined by `+`).

        options: those that every preset has, for all their rules: `json_escapes=True` (`\u0040` is an @ then, as it is
        for whoever parses the output as JSON), `monitor=True`, `penalty=4`, ... For what only one preset has
        (`valid_only`), and for some of its rules, see `presets.load`; `presets.PresetOptions` lists all. Raises
        `PresetError`, which names what there is, and `PolicyError` for a value that a rule would refuse.

        Examples:
            >>> Policy.from_presets("pii", "secrets", json_escapes=True).name
            'pii+secrets'
        """
        one_by_one("names", names, (str,), "the name of a preset", "from_presets")
        return cls(
            name=name if name is not None else "+".join(map(str, names)),
            description=description,
            rules=_read_rules([{"preset": preset, **options} for preset in names]),
        )

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """A JSON Schema (2020-12) of policy files, preset entries included, for editors and CI."""
        schema = cls.model_json_schema()
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        entries = presets.entry_schemas()
        schema["$defs"].update(entries)
        items = schema["properties"]["rules"]["items"]
        items["anyOf"] = [*items["anyOf"], *({"$ref": f"#/$defs/{name}"} for name in entries)]
        return schema

    def with_rules(self, *rules: Rule | Mapping[str, Any]) -> Policy:
        """This policy with more rules at its end; plain data for rules will do, as for `Policy`."""
        one_by_one(
            "rules",
            rules,
            (StringRule, RegexRule, AutomatonRule, Mapping),
            'a rule, as StringRule(id="mine", strings=["text"]),',
            "with_rules",
        )
        return self.model_copy(update={"rules": (*self.rules, *rules)})

    def without(self, *rule_ids: str) -> Policy:
        """This policy without some rules; ids that it does not have are refused."""
        present = [rule.id for rule in self.rules]
        one_by_one("rule_ids", rule_ids, (str,), "the id of a rule", "without")
        for rule_id in rule_ids:
            if rule_id not in present:
                raise PolicyError(f"there is no rule {named(rule_id, present)}{suggestion(rule_id, present)}")
        return self.model_copy(
            update={"rules": tuple(rule for rule in self.rules if rule.id not in rule_ids)}
        )


def _made(written: Written) -> Policy:
    data, source, lines = written
    if not isinstance(data, dict):
        raise PolicyError(f"a policy is a mapping with 'name' and 'rules' ({source})")
    for place, key in enumerate(data, 1):
        if key not in Policy.model_fields:
            raise located(unknown_field(key, place, Policy.model_fields), source)
    rules: list[Rule] = []
    origin: dict[str, int] = {}
    entries = data.get("rules")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        try:
            made = expand_entry(entry)
            for rule in made:
                if rule.id in origin:
                    raise PolicyError(
                        "another rule has the same id; ids must be unique", rule_id=rule.id, field="id"
                    )
                origin[rule.id] = index
        except PolicyError as error:
            field = re.split(r"[.\[]", error.field or "")[0]
            line = lines.get((index, field), lines.get((index, None)))
            where = f"{source}, line {line}" if line is not None else source
            raise located(indexed(error, index), where) from None
        rules.extend(made)
    try:
        return Policy(**{**data, **({"rules": rules} if isinstance(entries, list) else {})})
    except PolicyError as error:
        raise located(error, source) from None
