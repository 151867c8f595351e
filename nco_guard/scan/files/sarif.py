"""Results as SARIF 2.1.0 (OASIS, 2020): what code hosts and CI systems show beside a file.

Never what matched: rule, place and length only. Hard rules are errors, soft ones warnings, monitored ones notes. What
could not be read is a notification of the invocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from urllib.parse import quote

from nco_guard.compiler import CompiledPolicy
from nco_guard.errors import InputError
from nco_guard.scan.files.task import FileResult, Place

__all__ = ["sarif_log"]

_LEVELS = {"hard": "error", "soft": "warning", "monitor": "note"}


def sarif_log(
    compiled: CompiledPolicy,
    results: Iterable[FileResult],
    errors: Sequence[InputError] = (),
    *,
    version: str,
) -> object:
    """One SARIF log with one run, as plain data. `errors`: those that belong to no result; `version`: this tool's."""
    rules = {compiled_rule.id: index for index, compiled_rule in enumerate(compiled.rules)}
    found: list[object] = []
    notes = [_notification(error) for error in errors]
    for result in results:
        found += [_result(result, place, rules[place.rule_id]) for place in result.findings]
        notes += [_notification(error) for error in result.errors]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "nco-guard",
                        "semanticVersion": version,
                        "rules": [
                            {
                                "id": entry.id,
                                "shortDescription": {"text": entry.rule.description or f"Rule {entry.id}"},
                                "defaultConfiguration": {"level": _LEVELS[entry.rule.mode]},
                            }
                            for entry in compiled.rules
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {"executionSuccessful": not notes, "toolExecutionNotifications": notes},
                ],
                "results": found,
                "properties": {"policy": compiled.policy.name},
            }
        ],
    }


def _result(result: FileResult, place: Place, rule_index: int) -> object:
    length = place.end - place.start
    region: dict[str, int] = {"startLine": place.line}
    location: dict[str, object] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(result.name)}, "region": region}
    }
    if place.field is None:
        region |= {
            "startColumn": place.column,
            "endLine": place.end_line,
            "endColumn": place.end_column,
            "charOffset": place.start,
            "charLength": length,
        }
        where = ""
    else:
        location["logicalLocations"] = [{"fullyQualifiedName": place.field, "kind": "member"}]
        where = f" in {place.field}" if place.field else ""
    size = f"{length} character{'' if length == 1 else 's'}"
    return {
        "ruleId": place.rule_id,
        "ruleIndex": rule_index,
        "level": _LEVELS[place.mode],
        "message": {"text": f"A match of {place.rule_id}, {size}{where}."},
        "locations": [location],
        "properties": {"start": place.start, "end": place.end},
    }


def _notification(error: InputError) -> object:
    location: dict[str, object] = {"artifactLocation": {"uri": _uri(error.file)}}
    if error.line is not None:
        location["region"] = {"startLine": error.line}
    return {
        "level": "error",
        "message": {"text": error.problem},
        "locations": [{"physicalLocation": location}],
    }


def _uri(name: str) -> str:
    if name == "-":
        return "stdin"
    path = PurePath(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
