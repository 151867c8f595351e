"""`nco-guard check`, `presets` and `schema`: what a policy says, what ships, and what files look like."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_guard.cli.inputs import load_policy, load_tokenizer
from nco_guard.cli.output import console, print_json, table

if TYPE_CHECKING:
    from nco_guard.policy import Policy, Rule

__all__ = ["run_check", "run_presets", "run_schema"]

#: Strings of at most this many characters, as substrings of anything, forbid a good part of the language.
SHORT = 2


def run_check(policy: str, tokenizer: Path | None, *, as_json: bool) -> None:
    """Load, compile and describe a policy; bind it to a tokenizer too if one is given."""
    from nco_guard import Guard

    loaded = load_policy(policy)
    guard = Guard(loaded)  # compiles, so that patterns that cannot be enforced are refused here
    document: dict[str, Any] = {
        "name": loaded.name,
        "digest": loaded.digest,
        "rules": [_rule(rule) for rule in loaded.rules],
        "warnings": _warnings(loaded),
    }
    if tokenizer is not None:
        loaded_tokenizer = load_tokenizer(tokenizer)
        started = time.perf_counter()
        bound = guard.bind(loaded_tokenizer)
        document["tokenizer"] = {
            "family": bound.vocabulary.family,
            "vocabulary": bound.vocabulary.width,
            "digest": bound.vocabulary.digest,
            "bind_seconds": time.perf_counter() - started,
            **bound.stats,
        }
    if as_json:
        print_json(document)
        return
    out = console()
    out.print(f"policy {loaded.name}", markup=False)
    out.print(f"sha256 {loaded.digest}", markup=False)
    rules = table(out, "rule", "kind", "enforcement", "matches", "stops early", "context")
    for rule in document["rules"]:
        rules.add_row(
            rule["id"],
            rule["kind"] if rule["kind"] != "strings" else f"{rule['strings']} strings",
            rule["mode"] if rule["mode"] != "soft" else f"soft (-{rule['penalty']:g})",
            ", ".join(
                word
                for word, on in (
                    ("whole words", rule["whole_word"]),
                    ("any case", rule["case"] == "fold"),
                    ("NFKC", rule["normalize"] == "nfkc"),
                    ("look-alikes", rule["confusables"] != "none"),
                    ("ignored characters", rule["ignore"]),
                    ("JSON escapes", rule["json_escapes"]),
                    (f"if {rule.get('checksum')} passes", rule.get("checksum", "none") != "none"),
                )
                if on
            )
            or "exactly",
            "yes" if rule["stop_at"] else "no",
            rule["context"],
        )
    out.print(rules)
    for warning in document["warnings"]:
        out.print(f"warning: {warning}", markup=False)
    if tokenizer is not None:
        sizes = table(out, "tokenizer", "")
        for name, value in document["tokenizer"].items():
            sizes.add_row(name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
        out.print(sizes)


def _rule(rule: Rule) -> dict[str, Any]:
    """A rule without its strings and patterns: those are often what must not stand in a log."""
    from nco_guard.policy import RegexRule, StringRule

    described: dict[str, Any] = {
        "id": rule.id,
        "kind": rule.key,
        "mode": rule.mode,
        "case": rule.case,
        "whole_word": rule.whole_word,
        "normalize": rule.normalize,
        "ignore": list(rule.ignore),
        "confusables": rule.confusables,
        "json_escapes": rule.json_escapes,
        "stop_at": rule.stop_at is not None,
        "context": rule.context,
    }
    if rule.mode == "soft":
        described["penalty"] = rule.penalty
    if isinstance(rule, StringRule):
        described["strings"] = len(rule.strings)
    if isinstance(rule, RegexRule):
        described["checksum"] = rule.checksum
    return described


def _warnings(policy: Policy) -> list[str]:
    from nco_guard.policy import StringRule

    warnings = []
    loose = [rule.id for rule in policy.rules if rule.mode != "hard"]
    if len(loose) == len(policy.rules):
        warnings.append("no rule is hard: this policy forbids nothing")
    elif loose:
        warnings.append(f"not enforced, only discouraged or recorded: {', '.join(loose)}")
    for rule in policy.rules:
        if isinstance(rule, StringRule) and not rule.whole_word and min(map(len, rule.strings)) <= SHORT:
            warnings.append(
                f"rule {rule.id!r} forbids strings of {SHORT} characters or fewer, within words too; "
                "whole_word: true would spare the words that contain them"
            )
        if rule.mode == "soft" and math.isfinite(rule.penalty) and rule.penalty > 50:
            warnings.append(f"rule {rule.id!r} is soft: a high penalty is no guarantee")
    return warnings


def run_presets(name: str | None, *, as_json: bool) -> None:
    """List the presets, or the rules and options of one."""
    from nco_guard.policy import presets

    listed = [presets.describe(one) for one in ([name] if name else presets.available())]
    if as_json:
        described = [
            {
                "name": preset.name,
                "description": preset.description,
                "options": dict(preset.options),
                "rules": dict(preset.rules),
            }
            for preset in listed
        ]
        print_json(described[0] if name else described)
        return
    out = console()
    if name is None:
        rows = table(out, "preset", ">rules", "what it forbids")
        for preset in listed:
            rows.add_row(preset.name, str(len(preset.rules)), preset.description, end_section=True)
        out.print(rows)
        return
    out.print(listed[0].description, markup=False)
    for title, entries in (("rule", listed[0].rules), ("option", listed[0].options)):
        rows = table(out, title, "")
        for key, text in entries.items():
            rows.add_row(key, text)
        out.print(rows)


def run_schema(*, events: bool) -> None:
    """Print the JSON Schema of policy files, or of an audit log's lines."""
    from nco_guard.audit import log_schema
    from nco_guard.policy import Policy

    print_json(log_schema() if events else Policy.json_schema())
