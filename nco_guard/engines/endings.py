"""How a generated sequence came to end: trimmed to where its text may end, verified, given an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from nco_guard.audit.events import GuardedOutcome
from nco_guard.engines.dead_ends import why_empty
from nco_guard.errors import DeadEndError, GenerationError, StateLimitError
from nco_guard.masking import ENDED, VIOLATED
from nco_guard.masking.answers import Tables
from nco_guard.scan import Report, Verifier
from nco_guard.session import BoundGuard, TextState

__all__ = ["CUT", "Outcome", "refuse_broken", "settle", "verified"]

Outcome = GuardedOutcome
#: The outcomes of sequences whose tail was cut back.
CUT: tuple[Outcome, ...] = ("trimmed", "dead_end", "violated", "state_limit")


class _Cut(NamedTuple):
    """Where an answer may stand no longer; nothing is cut where all of it may. why: what did not let it go on."""

    outcome: Outcome
    why: str


def settle(
    bound: BoundGuard,
    prompt: list[int],
    answer: list[int],
    pad: int | None,
    limit: int,
    *,
    fills: bool = False,
) -> tuple[list[int], Outcome]:
    """The longest beginning of `answer` that keeps the policy and may end there, and how it came to end.

    fills: the decoding loop fills up with impossible candidates where too few possible ones are left, as beam search
    does; then a forbidden token is nobody's doing. Errors: where no beginning may end, not even the empty one, as under
    a shape, `DeadEndError`, and `StateLimitError` if that is for a limit.
    """
    if pad is not None and pad not in bound.vocabulary.eos_ids:
        while answer and answer[-1] == pad:
            answer = answer[:-1]
    text = TextState(bound, prompt)
    try:
        cut, why = text.ask(partial(_read, bound, text, answer, limit, fills=fills))
    except StateLimitError:
        cut, why = "state_limit", _LIMIT  # in fresh tables too
    while not _may_end(text):
        if not text.ids:
            whole = "it may end" if bound.shape is None else "its shape was closed"
            error = StateLimitError if cut == "state_limit" else DeadEndError
            raise error(f"the text was stopped before {whole}: {why}")
        text.cut(len(text.ids) - 1)
    kept = len(text.ids)
    if cut == "ended" or kept < len(answer) or cut in ("violated", "state_limit"):
        return answer[:kept], cut
    return answer, "length" if len(answer) >= limit else "stopped"


_LIMIT = (
    "what could still be written was not decided within the bounds, or a rule met the limit of its automaton; make "
    "counted repeats shorter, or ask for a simpler shape"
)
_STOPPED = "something else stopped it; leave that out (stop_strings, stopping_criteria, ...)"
_FILLED = (
    "beam search went on with forbidden tokens, since fewer were left than there are beams; ask for fewer beams, allow "
    "more max_new_tokens, or relax what runs before the guard (min_new_tokens, suppress_tokens, ...)"
)


def _read(
    bound: BoundGuard,
    text: TextState,
    answer: list[int],
    limit: int,
    tables: Tables,
    state: int,
    *,
    fills: bool,
) -> _Cut:
    """Append what follows of the answer as far as the policy lets it stand; what cut off the rest ("trimmed": nothing).

    To be asked of a text.
    """
    for length, token in enumerate(answer[len(text.ids) :], start=len(text.ids) + 1):
        before, state = state, text.step(tables, state, token)
        ends = token in bound.vocabulary.eos_ids
        # A text that met a limit is ended by whoever masks; here it is looked at again.
        if ends and bound.limits_met and tables.stuck(before, limit - length):
            text.cut(length - 1)
            return _Cut("state_limit", _LIMIT)
        if state == ENDED:
            return _Cut("ended", "")
        if state == VIOLATED:
            if ends and bound.policy.on_dead_end == "end":
                # What the policy says, not somebody else.
                return _Cut("dead_end", why_empty(bound, tables, before, limit - length))
            if ends and bound.limits_met and not fills:
                return _Cut("state_limit", _LIMIT)
            return _Cut("trimmed", _FILLED) if fills else _Cut("violated", _forced(tables, before, token))
    if len(answer) >= limit:
        return _Cut("trimmed", "the limit of tokens was met; give more max_new_tokens")
    # What beam search fills up with may look like pads.
    return _Cut("trimmed", f"{_STOPPED}; or {_FILLED}" if fills else _STOPPED)


def _forced(tables: Tables, state: int, token: int) -> str:
    rules = tables.rules_at_fault(state, token)
    reason = f"it breaks {', '.join(map(repr, rules))}" if rules else "the text could not end well after it"
    return f"a token was written that the guard forbids ({reason}); put the guard last among the processors"


def _may_end(text: TextState) -> bool:
    try:
        return text.ask(lambda tables, state: tables.may_end(state))
    except StateLimitError:
        return False


def verified(
    verifier: Verifier, bound: BoundGuard, prompts: Sequence[list[int]], kept: Sequence[list[int]]
) -> list[Report]:
    """The verifier's reports on texts; `prompts` are what they continue, where rules look at that."""
    if bound.vocabulary.borders:
        return [_verified_parts(verifier, bound, *pair) for pair in zip(prompts, kept, strict=True)]
    if bound.vocabulary.regions is not None:
        return [_verified_regions(verifier, bound, *pair) for pair in zip(prompts, kept, strict=True)]
    if not bound.needs_context:
        return verifier.verify_many([bound.vocabulary.text_of(ids) for ids in kept])
    return [_verified_after(verifier, bound, *pair) for pair in zip(prompts, kept, strict=True)]


def _verified_parts(verifier: Verifier, bound: BoundGuard, prompt: list[int], kept: list[int]) -> Report:
    vocabulary = bound.vocabulary
    parts = vocabulary.parts_of(kept)
    if not bound.needs_context or not prompt:
        return verifier.verify(parts=parts)
    context, continued = vocabulary.continuation_of(prompt, kept)
    # A first space that the text itself loses stands between it and the prompt.
    return verifier.verify(parts=parts, context=context + continued[: len(continued) - len("".join(parts))])


def _verified_regions(verifier: Verifier, bound: BoundGuard, prompt: list[int], kept: list[int]) -> Report:
    text, context = bound.vocabulary.text_of(kept), ""
    if bound.needs_context and prompt:
        context, continued = bound.vocabulary.continuation_of(prompt, kept)
        context += continued[: len(continued) - len(text)]
    regions = bound.vocabulary.regions
    return verifier.verify(text, context=context, regions=regions and regions.begun_by(bound.begun))


def _verified_after(verifier: Verifier, bound: BoundGuard, prompt: list[int], kept: list[int]) -> Report:
    context, text = "", bound.vocabulary.text_of(kept)
    if prompt:
        context, continued = bound.vocabulary.continuation_of(prompt, kept)
        # A first space that the text itself loses stands between it and the prompt.
        between = len(continued) - len(text)
        if continued.endswith(text):
            context += continued[:between]
        else:
            text = continued
    return verifier.verify(text, context=context)


def refuse_broken(reports: Sequence[Report]) -> None:
    """Raise `GenerationError` if the verifier found what the masks should have kept out."""
    broken = sorted({found.rule_id for report in reports for found in report.violations})
    if broken:
        raise GenerationError(
            f"the verifier found matches of {', '.join(broken)} in a guarded text; nothing is returned. This is a "
            f"defect of this library: please report it with the policy and the tokenizer"
        )
