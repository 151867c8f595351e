"""Rules made ready: personal data, secrets, and offensive words.

In a policy file, or as plain data for `Policy(rules=...)`, a preset is an entry of its own; it is expanded to
rules at once, so a policy's digest depends on the rules and not on where they came from:

    rules:
      - preset: pii
        except: [ipv4, ipv6]
      - preset: ldnoobw
        languages: [en, de]
        penalty: 4

Options of all presets: `only` and `except` (lists of short names: `email` for `pii.email`), and `penalty`, `monitor`,
`context`, `normalize`, `ignore`, `confusables` and `json_escapes` (as on a rule; `case` and `whole_word` are each
pattern's own). `ldnoobw` also has `languages` and `substring`, `pii` has `valid_only` and `stop`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

from nco_guard.errors import PolicyError, PresetError
from nco_guard.policy._errors import FIELDS, like, named, suggestion
from nco_guard.policy.presets import ldnoobw, pii, pii_paper, secrets
from nco_guard.policy.presets.pattern import Early, Examples, Pattern, StopName
from nco_guard.policy.rules import Rule, StringRule, Texts

__all__ = [
    "Early",
    "Examples",
    "Pattern",
    "PresetInfo",
    "PresetOptions",
    "available",
    "describe",
    "entry_schemas",
    "load",
    "load_entry",
    "patterns",
]

_TABLES = {"pii": pii, "pii_paper": pii_paper, "secrets": secrets}
_NAMES = ("ldnoobw", "pii", "pii_paper", "secrets")
_OVERRIDES = ("penalty", "monitor", "context", "normalize", "ignore", "confusables", "json_escapes")
_SHARED = {
    "only": "keep only the rules with these short names",
    "except": "leave out the rules with these short names",
    **dict.fromkeys(_OVERRIDES, "as on a rule, for all rules of the preset"),
}
_OWN = {
    "ldnoobw": {
        "languages": "a list of language codes, or all; [en] if not given",
        "substring": "true: raw substrings in exact case, as in the paper",
    },
    "pii": {
        "valid_only": (
            "true: block card numbers and IBANs only if their check digits are right; they are then blocked at "
            "their last character, not earlier, unless stop says so"
        ),
        "stop": (
            "late: block where ordinary text no longer looks the same; early: before more of a value shows (an address "
            "at its @, a card after its first group), at the cost of ordinary text that begins alike"
        ),
    },
}


class PresetOptions(TypedDict, total=False):
    """Options of presets, as `load` and `from_presets` take them by keyword; `describe` says which preset has which.

    `except_` is what a policy file calls `except`, which Python reserves.
    """

    only: Texts
    except_: Texts
    penalty: float
    monitor: bool
    context: Literal["output", "prompt"]
    normalize: Literal["none", "nfkc"]
    ignore: Texts
    confusables: Literal["none", "letters", "leet"]
    json_escapes: bool
    languages: Texts | Literal["all"]
    substring: bool
    valid_only: bool
    stop: StopName


@dataclass(frozen=True, slots=True)
class PresetInfo:
    """What a preset is: a description, its options, and the rules it can give.

    `options` maps each option to what it does; `rules` maps each rule's id to its description (for `ldnoobw`
    all languages, of which only English is the default).
    """

    name: str
    description: str
    options: Mapping[str, str]
    rules: Mapping[str, str]


def available() -> tuple[str, ...]:
    """The names of all presets, sorted.

    Examples:
        >>> available()
        ('ldnoobw', 'pii', 'pii_paper', 'secrets')
    """
    return _NAMES


def _known(name: Any) -> str:
    if not isinstance(name, str) or name not in _NAMES:
        raise PresetError(
            f"there is no preset {named(name, _NAMES)}; there are: {', '.join(_NAMES)}", field="preset"
        )
    return name


def patterns(name: str) -> tuple[Pattern, ...]:
    """The patterns of a preset with their examples; empty for `ldnoobw`, which is made of words.

    Examples:
        >>> "pii.email" in [pattern.rule().id for pattern in patterns("pii")]
        True
    """
    table = _TABLES.get(_known(name))
    return table.PATTERNS if table is not None else ()


def _all_rules(name: str, options: Mapping[str, Any]) -> tuple[Rule, ...]:
    if name == "ldnoobw":
        return ldnoobw.rules(**options)
    valid_only, stop = options.get("valid_only", False), options.get("stop", "late")
    if not isinstance(valid_only, bool):
        raise PresetError("true or false is needed", field="valid_only")
    if stop not in ("late", "early"):
        raise PresetError("late or early is needed", field="stop")
    return tuple(pattern.rule(valid_only=valid_only, stop=stop) for pattern in patterns(name))


def _short_names(value: Any, option: str, known: Iterable[str], preset: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise PresetError("a list of short names is needed, such as [email]", field=option)
    names = list(known)
    for name in value:
        if name not in names:
            hint = suggestion(name, names)
            raise PresetError(
                f"preset {preset!r} has no rule {named(name, names)} here{hint} (there are: {', '.join(names)})",
                field=option,
            )
    return tuple(value)


def load(name: str, **given: Unpack[PresetOptions]) -> tuple[Rule, ...]:
    """The rules of a preset, in its order. `except_` may be written for `except`, which Python reserves.

    Raises `PresetError` for an unknown preset, option, short name or language, listing what exists, and
    `PolicyError` for a value that a rule would refuse.

    Examples:
        >>> [rule.id for rule in load("pii", only=["email", "ssn"], context="prompt")]
        ['pii.email', 'pii.ssn']
    """
    _known(name)
    options: dict[str, Any] = {**given}
    if "except_" in options:
        options.setdefault("except", options.pop("except_"))
    own = _OWN.get(name, {})
    for option in options:
        if option not in _SHARED and option not in own:
            known = (*own, *_SHARED)
            raise PresetError(
                f"preset {name!r} has no option {named(option, known)}; it has: {', '.join(known)}",
                field=option if like(option, (*known, *FIELDS)) else None,
            )
    rules = _all_rules(name, {option: options[option] for option in own if option in options})
    short = {rule.id.removeprefix(f"{name}."): rule for rule in rules}
    if "only" in options:
        kept = _short_names(options["only"], "only", short, name)
        short = {one: rule for one, rule in short.items() if one in kept}
    if "except" in options:
        dropped = _short_names(options["except"], "except", short, name)
        short = {one: rule for one, rule in short.items() if one not in dropped}
    if not short:
        raise PresetError(f"no rule of preset {name!r} is left; it would forbid nothing")
    overrides = {option: options[option] for option in _OVERRIDES if option in options}
    return tuple(rule.model_copy(update=overrides) if overrides else rule for rule in short.values())


def load_entry(entry: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules that a `preset:` entry of a policy stands for.

    Examples:
        >>> [rule.id for rule in load_entry({"preset": "pii", "only": ["email"]})]
        ['pii.email']
    """
    if not all(isinstance(option, str) for option in entry):
        raise PolicyError("the names of options must be text; in YAML put them between quotes")
    return load(**{("name" if option == "preset" else option): value for option, value in entry.items()})


def describe(name: str) -> PresetInfo:
    """What a preset is, which options it has, and which rules it can give.

    Examples:
        >>> "pii.email" in describe("pii").rules
        True
    """
    _known(name)
    options = {"languages": "all"} if name == "ldnoobw" else {}
    table = _TABLES.get(name)
    return PresetInfo(
        name=name,
        description=table.DESCRIPTION if table is not None else ldnoobw.DESCRIPTION,
        options={**_OWN.get(name, {}), **_SHARED},
        rules={rule.id: rule.description for rule in _all_rules(name, options)},
    )


def entry_schemas() -> dict[str, Any]:
    """A JSON Schema for the entry of each preset in a policy file, by the name of its definition.

    Examples:
        >>> sorted(entry_schemas())[:2]
        ['Preset_ldnoobw', 'Preset_pii']
    """
    schemas: dict[str, Any] = {}
    fields = StringRule.model_json_schema()["properties"]
    for name in _NAMES:
        info = describe(name)
        short = {"type": "array", "items": {"enum": [rule.removeprefix(f"{name}.") for rule in info.rules]}}
        known: dict[str, Any] = {
            "only": short,
            "except": short,
            "penalty": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]},
            "monitor": {"type": "boolean"},
            **{
                field: fields[field]
                for field in ("context", "normalize", "ignore", "confusables", "json_escapes")
            },
            "substring": {"type": "boolean"},
            "valid_only": {"type": "boolean"},
            "stop": {"enum": ["late", "early"]},
            "languages": {
                "anyOf": [
                    {"type": "array", "minItems": 1, "items": {"enum": list(ldnoobw.LANGUAGES)}},
                    {"const": "all"},
                ]
            },
        }
        schemas[f"Preset_{name}"] = {
            "type": "object",
            "description": info.description,
            "additionalProperties": False,
            "required": ["preset"],
            "properties": {
                "preset": {"const": name},
                **{option: {**known[option], "description": text} for option, text in info.options.items()},
            },
        }
    return schemas
