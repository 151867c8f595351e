"""`nco-guard explain`: after a text, what is forbidden, by which rule, and because of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_guard.cli.inputs import encoder, load_policy, load_tokenizer
from nco_guard.cli.output import console, marked, print_json, stacked, table
from nco_guard.errors import ForbiddenTokenError, NCOGuardError
from nco_guard.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from nco_guard import Session
    from nco_guard.analysis import Explanation, TokenExplanation
    from nco_guard.tokens import Vocabulary

__all__ = ["ExplainSettings", "run_explain"]

SHOWN = 400  # characters of the text, at its end


@dataclass(frozen=True)
class ExplainSettings:
    """What is explained: after `prompt` and `text`, the named tokens, and `limit` of the others that are forbidden."""

    text: str
    prompt: str | None = None
    tokens: tuple[str, ...] = ()
    remaining: int | None = None
    limit: int = 20


def run_explain(policy: str, tokenizer: Path, settings: ExplainSettings, *, as_json: bool) -> int:
    """Explain the mask after a text; returns the exit status: 1 if the text breaks the policy already.

    Then the first token of it that is forbidden is explained, after what comes before it.
    """
    from nco_guard import Guard

    guard = Guard(load_policy(policy))
    loaded = load_tokenizer(tokenizer)
    session = guard.bind(loaded).session(settings.prompt)
    vocabulary = guard.bind(loaded).vocabulary
    ids = encoder(loaded)(settings.text)
    broken: int | None = None
    for token in ids:
        try:
            session.advance(token)
        except ForbiddenTokenError:
            broken = token
            break
    remaining = settings.remaining
    asked = [broken] if broken is not None else [_token(vocabulary, name) for name in settings.tokens]
    answers = [session.explain(token, remaining=remaining) for token in asked]
    whole = session.explain(remaining=remaining, limit=settings.limit)
    if as_json:
        print_json(
            {
                "policy": guard.policy.digest,
                "ok": broken is None,
                "asked": [_described(vocabulary, answer) for answer in answers],
                **whole.to_dict(),
                "tokens": [_described(vocabulary, token) for token in whole.tokens],
            }
        )
    else:
        out = console()
        if broken is not None:
            done = len(session.token_ids)
            out.print(f"the text breaks the policy at token {done + 1} of {len(ids)}", style="bold red")
        _print_text(out, session, whole)
        _print_rules(out, session.text, whole)
        if answers:
            _print_tokens(out, vocabulary, session, answers, "asked")
        if broken is None and whole.tokens:
            _print_tokens(out, vocabulary, session, whole.tokens, "forbidden")
            left = sum(whole.counts.values()) - len(whole.tokens)
            if left > 0:
                out.print(f"and {left:,} more; --limit shows more of those that rules forbid", style="dim")
    return int(broken is not None)


def _token(vocabulary: Vocabulary, name: str) -> int:
    """A token by its id or by its text; digits are an id."""
    if name.isascii() and name.isdigit():
        if int(name) >= vocabulary.width:
            raise NCOGuardError(f"--token: the vocabulary has ids up to {vocabulary.width - 1}")
        return int(name)
    data = name.encode("utf-8", "replace")
    if not data or data not in vocabulary.tokens:
        raise NCOGuardError(
            "--token: no single token of this tokenizer reads so; give its id, or one of its tokens"
        )
    return vocabulary.tokens.index(data)


def _read(vocabulary: Vocabulary, token: int) -> str:
    if token in vocabulary.unusable_ids:
        return "(no token)"
    text = vocabulary.tokens[token].decode("utf-8", "backslashreplace")
    if not text:
        return "(end of text)" if token in vocabulary.eos_ids else "(special token)"
    return f"'{visible(text)}'"


def _described(vocabulary: Vocabulary, token: TokenExplanation) -> dict[str, Any]:
    return {"token": _read(vocabulary, token.token_id), **token.to_dict()}


def _print_text(out: Console, session: Session, whole: Explanation) -> None:
    out.print(
        f"{whole.step} tokens, {whole.length} code points; {whole.forbidden:,} of {whole.vocabulary:,} tokens are "
        "forbidden next",
        markup=False,
    )
    if whole.counts:
        kinds = ", ".join(f"{count:,} {code}" for code, count in whole.counts.items())
        out.print(f"  {kinds}", style="dim", markup=False)
    text = session.text
    cut = max(0, len(text) - SHOWN)
    spans = [(max(cut, r.start), r.start + r.length) for r in whole.under_way if r.start is not None]
    spans = [(start - cut, min(end, len(text)) - cut) for start, end in spans if end > start]
    if text:
        out.print()
        out.print(marked(text[cut:], spans, colours=out.is_terminal))
        out.print()


def _print_rules(out: Console, text: str, whole: Explanation) -> None:
    shown = [rule for rule in whole.rules if rule.start is not None or rule.tokens or not rule.may_end]
    if shown:
        rows = table(out, "rule", "enforcement", "under way", ">begins at", ">forbids", "may end")
        for rule in shown:
            piece = "" if rule.start is None else text[max(0, rule.start) : rule.start + rule.length]
            before = "... " if rule.start is not None and rule.start < 0 else ""
            rows.add_row(
                rule.rule_id,
                rule.mode,
                before + piece,
                "" if rule.start is None else str(rule.start),
                f"{rule.tokens:,}",
                "yes" if rule.may_end else "no",
            )
        out.print(rows)
    if len(shown) < len(whole.rules):
        out.print(f"{len(whole.rules) - len(shown)} rules with nothing to say here", style="dim")


def _print_tokens(
    out: Console, vocabulary: Vocabulary, session: Session, tokens: Sequence[TokenExplanation], title: str
) -> None:
    rows = table(out, f">{title}", "token", "why")
    for token in tokens:
        reasons = [reason.message for reason in token.reasons]
        if not token.forbidden:
            reasons = ["; ".join(["allowed", *reasons[:1]]), *reasons[1:]]
        rows.add_row(str(token.token_id), _read(vocabulary, token.token_id), stacked(reasons))
    out.print(rows)
