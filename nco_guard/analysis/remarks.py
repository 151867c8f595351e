"""What a review of a policy says: remarks, each with a code that stays, the rules it is about, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Remark", "RemarkCode"]

RemarkCode = Literal[
    "nothing-enforced",
    "not-enforced",
    "short-string",
    "high-penalty",
    "blocks-unchecked",
    "redundant-rule",
    "redundant-string",
    "unsatisfiable-rule",
    "forbids-all-text",
    "only-short-text",
    "forbidden-fallback",
    "nothing-to-write",
    "expensive-rule",
    "expensive-tables",
    "bound-met",
    "not-decided",
]
"""What a remark is about:

* `nothing-enforced`: no rule is hard.
* `not-enforced`: rules that are soft or only monitored (a note).
* `short-string`: strings of two characters or fewer, within words too.
* `high-penalty`: a soft rule that looks as if it were meant to be hard.
* `blocks-unchecked`: a rule with a checksum stops before it is known, so it blocks numbers that fail too (a note).
* `redundant-rule`: every text that the rule forbids is forbidden by another hard rule already.
* `redundant-string`: strings of a list that hold another forbidden string, or are the same but for case (a note).
* `unsatisfiable-rule`: no text has a match of the rule, or of its stop point.
* `forbids-all-text`: hard rules leave nothing but the empty text.
* `only-short-text`: hard rules leave no text beyond some length.
* `forbidden-fallback`: the policy's `fallback` breaks a hard rule by itself.
* `nothing-to-write`: over this vocabulary, no token but the end of the text is allowed at its beginning.
* `expensive-rule`: the automaton of the rule finds new states all the time.
* `expensive-tables`: the policy's tables over this vocabulary take much of their memory limit.
* `not-decided`: a proof met its bound (a note).
"""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing about a policy. Holds ids, numbers of strings and counts: no string, no pattern.

    `rule_ids`: the rules at fault first, then those that they are compared with. `message`: what is so; `advice`: what
    to do. `level`: `note` for what may well be intended.
    """

    code: RemarkCode
    rule_ids: tuple[str, ...]
    message: str
    advice: str
    level: Literal["warning", "note"] = "warning"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)
