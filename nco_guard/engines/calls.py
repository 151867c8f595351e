"""What a call of any engine comes with and comes to: a guard for each prompt, texts with all that is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from nco_guard.audit import PolicyLog
from nco_guard.automata import Cutting
from nco_guard.engines.endings import Outcome
from nco_guard.errors import TokenizerError, UnsupportedError
from nco_guard.rewinding import RewindCounts
from nco_guard.scan import Report, Verifier
from nco_guard.session import BoundGuard
from nco_guard.tokens import Borders, Vocabulary

__all__ = ["GenerationResult", "GuardLike", "chosen_tool", "common_vocabulary", "guards_for"]


class GuardLike(Protocol):
    """What engines need of `nco_guard.Guard`."""

    def bind(
        self,
        tokenizer: Any,
        *,
        vocab_width: int | None = None,
        skip_special_tokens: bool = True,
        eos_token_ids: Iterable[int] | None = None,
        borders: Borders = None,
        regions: Cutting | None = None,
    ) -> BoundGuard:
        """The guard, seen through a tokenizer."""

    @property
    def verifier(self) -> Verifier:
        """The independent verifier of finished texts."""

    @property
    def log(self) -> PolicyLog:
        """Where runs are recorded."""


_AGuard = TypeVar("_AGuard", bound=GuardLike)


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


def guards_for(
    guard: _AGuard, guards: Sequence[_AGuard | None] | None, prompts: int | None = None
) -> list[_AGuard]:
    """The guard of each prompt; `prompts` None: nobody knows yet how many there are.

    Errors: `UnsupportedError` for another number of guards, or for what is no guard.
    """
    if guards is None:
        return [guard] * (1 if prompts is None else prompts)
    given: Any = guards
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise UnsupportedError("guards: give a list, one guard (or None, for this one) for each prompt")
    if prompts is not None and len(guards) != prompts:
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


def chosen_tool(choice: Any, names: Sequence[str]) -> str | None:
    """A choice of tools in one form: None (as the model likes), "none", "any" (one of several) or a tool's name.

    choice: one of these, in any of the words of hosted models:

    * None, False, "auto", `{"type": "auto"}`: as the model likes;
    * "none", `{"type": "none"}`: no call;
    * "any", "required", True, `{"type": "any"}`, `{"type": "required"}`: some call;
    * a tool's name, `{"type": "function", "function": {"name": ...}}`, `{"type": "function", "name": ...}`,
      `{"type": "tool", "name": ...}`, or one of the last three without its type: a call of that tool.

    names: of the tools on offer. Errors: `UnsupportedError` for anything else, for a tool that is not on offer, and
    where a call is required and no tools are given.

    Examples:
        >>> chosen_tool({"type": "tool", "name": "find"}, ["find", "send"])
        'find'
    """
    if isinstance(choice, Mapping):
        named, kind = _mapped_choice(choice)
        if kind is None:
            if named not in names:
                raise _no_such_tool(named, names)
            return named
        choice = kind
    if choice is None or choice is False or choice == "auto":
        return None
    if choice is True or choice in ("any", "required"):
        if not names:
            raise UnsupportedError("tool_choice: a tool call is required and no tools are given")
        return names[0] if len(names) == 1 else "any"
    if isinstance(choice, str) and (choice == "none" or choice in names):
        return choice
    raise _no_such_tool(choice, names)


def _mapped_choice(choice: Mapping[str, Any]) -> tuple[str, str | None]:
    """The tool that is named in a choice; where its type says what may be called, that word."""
    kind = choice.get("type")
    if kind in ("auto", "any", "none", "required"):
        fields = {"type"}
    elif kind in ("function", "tool", None):
        fields = {"type", "function" if "function" in choice else "name"}
    elif kind == "allowed_tools":
        raise UnsupportedError(
            "tool_choice['type'] 'allowed_tools': offer only those tools, and say 'auto' or 'any'"
        )
    else:
        raise UnsupportedError(
            f"tool_choice['type'] {kind!r}: give 'function' or 'tool' with a name, 'auto', 'any', 'required' or 'none'"
        )
    for field in choice:
        if field == "disable_parallel_tool_use":
            raise UnsupportedError(
                f"tool_choice[{field!r}]: say parallel_tool_calls=False beside tool_choice"
            )
        if field not in fields:
            raise UnsupportedError(f"tool_choice[{field!r}]: nothing is done about it; leave it out")
    if kind in ("auto", "any", "none", "required"):
        return "", kind
    function = choice.get("function", choice)
    named = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(named, str):
        raise UnsupportedError("tool_choice: no tool is named in it")
    return named, None


def _no_such_tool(choice: Any, names: Sequence[str]) -> UnsupportedError:
    known = ", ".join((*names, repr("any"), repr("auto"), repr("none")))
    return UnsupportedError(f"tool_choice {choice!r}: no such tool; one of {known}")
