"""What a call of any engine comes with and comes to: a guard for each prompt, texts with all that is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nco_guard.audit import PolicyLog
from nco_guard.engines.endings import Outcome
from nco_guard.errors import TokenizerError, UnsupportedError
from nco_guard.rewinding import RewindCounts
from nco_guard.scan import Report, Verifier
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary

__all__ = ["GenerationResult", "GuardLike", "common_vocabulary", "guards_for"]


class GuardLike(Protocol):
    """What engines need of `nco_guard.Guard`."""

    def bind(
        self,
        tokenizer: Any,
        *,
        vocab_width: int | None = None,
        skip_special_tokens: bool = True,
        eos_token_ids: Iterable[int] | None = None,
    ) -> BoundGuard:
        """The guard, seen through a tokenizer."""

    @property
    def verifier(self) -> Verifier:
        """The independent verifier of finished texts."""

    @property
    def log(self) -> PolicyLog:
        """Where runs are recorded."""


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """Texts with all that is known about them; the lists run in parallel.

    With several sequences per prompt, those of the first prompt come first.

    Attributes:
        texts: continuations only, without prompts, decoded as the guard sees them.
        token_ids: their ids, end-of-sequence included where there is one, without pads.
        outcomes: "ended" by end-of-sequence; "length": by the length limit; "stopped": by a stop string or
            criterion; "trimmed": the engine stopped where the text may not end, and its tail was cut back to
            where it may; "violated": the same, before a forbidden token that something else forced; "dead_end":
            the same, where no token was left and the policy says `on_dead_end: end`; "state_limit": the same, where
            the text met a limit of a rule's automaton or of how far ways out are looked for.
        reports: the verifier's report on each text.
        output: what `model.generate` returned (scores, logits, ... if asked for), its sequences trimmed the same
            way.
        rewinds: where texts could go back (`when_blocked="rewind"`), how often each did; else None.
    """

    texts: list[str]
    token_ids: list[list[int]]
    outcomes: list[Outcome]
    reports: list[Report]
    output: Any
    rewinds: list[RewindCounts] | None = None


def guards_for(guard: GuardLike, guards: Sequence[GuardLike | None] | None, prompts: int) -> list[GuardLike]:
    """The guard of each prompt. `UnsupportedError` for another number of them, or for what is no guard."""
    if guards is None:
        return [guard] * prompts
    if not isinstance(guards, Sequence):
        raise UnsupportedError("guards: give a list, one guard (or None, for this one) for each prompt")
    if len(guards) != prompts:
        raise UnsupportedError(
            f"guards: {len(guards)} guards for {prompts} prompts; give one for each, or None"
        )
    for number, each in enumerate(guards):
        if each is not None and not all(hasattr(each, name) for name in ("bind", "log")):
            raise UnsupportedError(
                f"guards[{number}]: {type(each).__name__} is no guard; give Guard(policy), not yet bound"
            )
    return [guard if each is None else each for each in guards]


def common_vocabulary(bounds: Sequence[BoundGuard]) -> Vocabulary:
    """The vocabulary of guards that share a batch; `UnsupportedError` or `TokenizerError` if they have none."""
    for number, bound in enumerate(bounds):
        if not isinstance(bound, BoundGuard):
            raise UnsupportedError(
                f"bound[{number}]: {type(bound).__name__} is no bound guard; use guard.bind(tokenizer)"
            )
        if bound.vocabulary.digest != bounds[0].vocabulary.digest:
            raise TokenizerError(
                f"bound[{number}]: bound to another vocabulary than the first; bind all guards of a batch to one "
                f"tokenizer, with the same vocab_width, skip_special_tokens and eos_token_ids"
            )
    if not bounds:
        raise UnsupportedError("bound: at least one guard is needed")
    return bounds[0].vocabulary
