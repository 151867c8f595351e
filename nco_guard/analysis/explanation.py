"""What an explanation says: models without any text, so that none can leak through a log or a `repr`.

Places are offsets in code points of the output so far (`Session.text`); what begins in the prompt begins before 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Code", "Explanation", "Reason", "RuleExplanation", "TokenExplanation"]

Code = Literal[
    "match",
    "unavoidable",
    "end",
    "encoding",
    "dead-end",
    "token-limit",
    "unusable",
    "penalty",
    "monitor",
]
"""Why a token is forbidden, or what it costs:

* `match`: it completes a match of a rule (of its stop point, if it has one).
* `unavoidable`: it completes none yet, but every way to go on, ending included, would complete one.
* `end`: it ends the text, and the end would complete a match.
* `encoding`: the text would be no well-formed UTF-8, or would end within a character.
* `dead-end`: no rule alone forbids it, but the rules together leave no way to an allowed end.
* `token-limit`: the same only because so few tokens are left.
* `unusable`: the id has no token, or none with a meaning.
* `penalty`, `monitor`: it completes a match of a soft or of a monitored rule, and is not forbidden by that.
"""

_ALLOWING = ("penalty", "monitor")


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `rule_ids`: the rule, or the rules that only together forbid; `utf-8` stands for well-formed text.

    `start`, `end`: the span of the match in the text with the token, where there is one. `penalty`: what a soft rule
    subtracts from the logit.
    """

    code: Code
    rule_ids: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    penalty: float = 0.0

    @property
    def forbids(self) -> bool:
        """Whether it is a reason why the token is forbidden."""
        return self.code not in _ALLOWING

    @property
    def message(self) -> str:
        """The reason as a sentence; no text in it."""
        rules = ", ".join(self.rule_ids)
        where = "" if self.start is None else f" ({_place(self.start, self.end)})"
        return {
            "match": f"completes a match of {rules}{where}",
            "unavoidable": f"after it, every way on completes a match of {rules}",
            "end": f"the end of the text completes a match of {rules}{where}",
            "encoding": "the text would not be well-formed UTF-8",
            "dead-end": f"no allowed end within reach after it: {rules}",
            "token-limit": f"too few tokens are left for an allowed end after it: {rules}",
            "unusable": "no token of the tokenizer has this id",
            "penalty": f"completes a match of {rules}{where}: {-self.penalty:g}",
            "monitor": f"completes a match of {rules}{where}, only recorded",
        }[self.code]


def _place(start: int, end: int | None) -> str:
    if end is None:
        return f"from {start}"
    length = end - start
    begins = f"begins at {start}" if start >= 0 else f"begins {-start} before the output"
    return f"{begins}, {length} code point{'' if length == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class TokenExplanation:
    """Why one token is forbidden here, or what it costs. `forbidden` is what the mask says.

    A token is forbidden if, and only if, one of its `reasons` forbids it. Every hard rule that forbids it by itself is
    among them.
    """

    token_id: int
    forbidden: bool
    reasons: tuple[Reason, ...]

    @property
    def penalty(self) -> float:
        """What soft rules subtract from its logit."""
        return sum(reason.penalty for reason in self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = asdict(self)
        for reason, written in zip(self.reasons, plain["reasons"], strict=True):
            written["message"] = reason.message
        return {**plain, "penalty": self.penalty}


@dataclass(frozen=True, slots=True)
class RuleExplanation:
    """One rule and the text so far.

    `start`: where the earliest match, of the rule or of its stop point, began that is under way at the end of the text,
    and `length`, how many code points it has; None and 0 where none is. `tokens`: how many tokens the rule by itself
    forbids here (penalises or records, for a soft or a monitored one), ends of the text included. `may_end`: whether it
    lets the text end here.
    """

    rule_id: str
    mode: Literal["hard", "soft", "monitor"]
    start: int | None
    length: int
    tokens: int
    may_end: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is forbidden after the text so far, and why.

    `step`: how many tokens the text has, `length`: its code points. `ended`: end-of-sequence was written, nothing is
    masked any more. `forbidden` of `vocabulary` tokens are. `counts`: how many of them by the code of their first
    reason; `match` counts `unavoidable` too, which only a closer look tells apart. `rules`: all rules of the policy, in
    order. `tokens`: some of the tokens that rules forbid, of each kind of reason and of each rule in turn.
    """

    step: int
    length: int
    ended: bool
    vocabulary: int
    forbidden: int
    counts: Mapping[Code, int]
    rules: tuple[RuleExplanation, ...]
    tokens: tuple[TokenExplanation, ...]

    @property
    def under_way(self) -> tuple[RuleExplanation, ...]:
        """The rules of which a match is under way."""
        return tuple(rule for rule in self.rules if rule.start is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "step": self.step,
            "length": self.length,
            "ended": self.ended,
            "vocabulary": self.vocabulary,
            "forbidden": self.forbidden,
            "counts": dict(self.counts),
            "rules": [asdict(rule) for rule in self.rules],
            "tokens": [token.to_dict() for token in self.tokens],
        }
