"""`nco-guard check`, `presets` and `schema`: what a policy says, what ships, and what files look like."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_guard.cli.inputs import encoder, load_policy, load_tokenizer, read_text
from nco_guard.cli.output import console, print_json, table
from nco_guard.errors import NCOGuardError
from nco_guard.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from nco_guard import BoundGuard, Guard
    from nco_guard.analysis import Overblocking, Remark, TokenBlocking
    from nco_guard.policy import Rule

__all__ = ["CheckSettings", "run_check", "run_presets", "run_schema"]

# Read through the masks where there is no corpus, to see how many states everyday text leads to.
SAMPLE = (
    "Thank you for your letter of 12 May. We will call you back on Monday, before noon.",
    "The quick brown fox jumps over the lazy dog; 1,024 of them do so every day (see page 7).",
    "def total(items): return sum(item.price * item.count for item in items)  # in cents",
)
SHOWN = 100  # characters of an example


@dataclass(frozen=True)
class CheckSettings:
    """How `check` looks at a policy. `show`: examples a rule that are printed of the corpus."""

    tokenizer: Path | None = None
    corpus: tuple[str, ...] = ()
    sentences: bool = False
    show: int = 0
    strict: bool = False
    verbose: bool = False


def run_check(policy: str, settings: CheckSettings, *, as_json: bool) -> int:
    """Load, compile, review and describe a policy; bind it to a tokenizer and try it on a corpus if they are given.

    Returns the exit status: 1 with `strict` if there is a warning.
    """
    from nco_guard import Guard
    from nco_guard.analysis import overblocking, refused_tokens, review, review_bound

    loaded = load_policy(policy)
    if settings.tokenizer is not None and not settings.tokenizer.exists():
        raise NCOGuardError(
            f"no tokenizer at {settings.tokenizer}"
        )  # before the review, which can take a while
    guard = Guard(loaded)  # compiles, so that patterns that cannot be enforced are refused here
    texts = _texts(settings)
    document: dict[str, Any] = {
        "name": loaded.name,
        "digest": loaded.digest,
        "rules": [_rule(rule) for rule in loaded.rules],
    }
    # Shown on a terminal only.
    with console(stderr=True).status("reading the policy", spinner="line") as status:
        remarks = list(review(guard.verifier.compiled, progress=status.update))
    tokens: TokenBlocking | None = None
    if settings.tokenizer is not None:
        bound, encode, seconds = _bind(guard, settings.tokenizer)
        tokens = refused_tokens(bound, encode, texts or SAMPLE)
        remarks += review_bound(bound)
        document["tokenizer"] = {
            "family": bound.vocabulary.family,
            "vocabulary": bound.vocabulary.width,
            "digest": bound.vocabulary.digest,
            "bind_seconds": seconds,
            "sample_tokens": tokens.tokens,
            **bound.stats,
        }
    found = overblocking(guard.verifier.compiled, texts, examples=settings.show) if texts else None
    if found is not None:
        document["corpus"] = {**found.to_dict(), "tokens": tokens.to_dict() if tokens is not None else None}
    remarks = [r for r in remarks if settings.verbose or r.code != "not-decided"]
    document["warnings"] = [remark.to_dict() for remark in remarks]
    if as_json:
        print_json(document)
    else:
        out = console()
        _print_policy(out, document)
        _print_remarks(out, remarks)
        if settings.tokenizer is not None:
            sizes = table(out, "tokenizer", "")
            for name, value in document["tokenizer"].items():
                shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                sizes.add_row(name.replace("_", " "), shown)
            out.print(sizes)
        if found is not None:
            _print_corpus(out, found, tokens, texts, sentences=settings.sentences)
    return int(settings.strict and any(remark.level == "warning" for remark in remarks))


def _texts(settings: CheckSettings) -> list[str]:
    from nco_guard.analysis import sentences

    found: list[str] = []
    for name in settings.corpus:
        text = read_text(name)
        found += sentences(text) if settings.sentences else [s for s in text.splitlines() if s.strip()]
    if settings.corpus and not found:
        raise NCOGuardError("the corpus holds no text")
    return found


def _bind(guard: Guard, tokenizer: Path) -> tuple[BoundGuard, Any, float]:
    loaded = load_tokenizer(tokenizer)
    started = time.perf_counter()
    bound = guard.bind(loaded)
    return bound, encoder(loaded), time.perf_counter() - started


def _print_policy(out: Console, document: dict[str, Any]) -> None:
    out.print(f"policy {document['name']}", markup=False)
    out.print(f"sha256 {document['digest']}", markup=False)
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


def _print_remarks(out: Console, remarks: Sequence[Remark]) -> None:
    for remark in remarks:
        style = "yellow" if remark.level == "warning" else "dim"
        out.print(f"{remark.level}: {remark.message} ({remark.code})", markup=False, style=style)
        if remark.level == "warning":
            out.print(f"  {remark.advice}", markup=False)


def _print_corpus(
    out: Console,
    found: Overblocking,
    tokens: TokenBlocking | None,
    texts: Sequence[str],
    *,
    sentences: bool,
) -> None:
    unit = "sentences" if sentences else "lines"

    def share(count: int, of: int) -> str:
        return f"{100 * count / of:.2f} %"

    out.print()
    out.print(
        f"corpus: {found.texts:,} {unit}, {share(found.forbidden, found.texts)} of them forbidden",
        markup=False,
    )
    if tokens is not None and tokens.tokens:
        out.print(
            f"tokens: {tokens.tokens:,} read, {share(tokens.refused, tokens.tokens)} refused", markup=False
        )
    rows = table(out, "rule", "enforcement", f">{unit}", ">share", "strings that occur most")
    hits = [rule for rule in found.rules if rule.forbidden]
    for rule in sorted(hits, key=lambda rule: -rule.forbidden):
        strings = ", ".join(f"strings[{number}] {times}" for number, times in rule.strings)
        rows.add_row(
            rule.rule_id, rule.mode, str(rule.forbidden), share(rule.forbidden, found.texts), strings
        )
    if hits:
        out.print(rows)
    for advice in found.advice:
        out.print(f"try: {advice.message.replace('the texts', f'the {unit}')}", markup=False)
    for rule in hits:
        for number in rule.examples:
            out.print(f"{rule.rule_id}: {visible(texts[number])[:SHOWN]}", markup=False)


def _rule(rule: Rule) -> dict[str, Any]:
    """A rule without its strings and patterns: those are often what must not stand in a log."""
    from nco_guard.policy import RegexRule, StringRule
    from nco_guard.policy.check_digits import checksum_title

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
        described["checksum"] = checksum_title(rule.checksum)
    return described


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
