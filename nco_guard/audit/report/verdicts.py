"""The four questions that a report answers first, in words; no answer is better than what the log can show.

That nothing was let through is said without a qualification only of an intact log in which every guarded sequence was
verified, no event is missing, and which signatures and anchors vouch for: no answer speaks for what is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from nco_guard.audit.events import RewindTarget
from nco_guard.audit.report.model import Integrity, LogReport
from nco_guard.audit.report.wording import amount, percent, plural, shortened
from nco_guard.visible import visible

__all__ = ["answers"]

Tone = Literal["good", "bad", "doubt", "plain"]


@dataclass(frozen=True)
class Answer:
    """A question of the report's reader, a short answer, and what it rests on."""

    key: str
    question: str
    answer: str
    tone: Tone
    notes: tuple[str, ...]


def answers(report: LogReport) -> tuple[Answer, ...]:
    """Integrity, violations, interventions and mishaps, in this order."""
    return _intact(report), _let_through(report), _prevented(report), _mishaps(report)


def _intact(report: LogReport) -> Answer:
    integrity, totals = report.integrity, report.totals
    answer: str
    tone: Tone
    if integrity.state == "intact":
        answer, tone = ("Yes", "good") if integrity.vouched else ("Yes, as far as it goes", "plain")
    elif integrity.state == "open":
        answer, tone = "Not confirmed", "doubt"
    elif integrity.state == "altered":
        answer, tone = "No", "bad"
    else:
        answer, tone = "Cannot be told", "doubt"
    notes = _grounds(integrity)
    if totals.lost:
        notes.append(
            f"{plural(totals.lost, 'event')} of its runs never reached the log, or "
            f"{'is' if totals.lost == 1 else 'are'} gone: numbers are missing."
        )
    if totals.out_of_order:
        notes.append(f"{plural(totals.out_of_order, 'event')} repeated, or out of order within a run.")
    if totals.cut_runs:
        notes.append(f"{plural(totals.cut_runs, 'run')} whose beginning is not in the log.")
    if totals.set_aside:
        notes.append(
            f"{plural(totals.set_aside, 'run')} forgotten while reading, to bound memory; later events of such runs "
            "count as those of runs without a beginning."
        )
    return Answer("integrity", "Is the log as it was written?", answer, tone, tuple(notes))


def _grounds(integrity: Integrity) -> list[str]:
    if integrity.state == "untold":
        return [
            "It was written without a chain of hashes (a database, or lines without seals): whatever was done to it "
            "leaves no trace."
        ]
    if not integrity.lines:
        return ["It holds nothing."]
    chains = plural(integrity.chains, "chain")
    notes = []
    if integrity.state == "altered":
        counts = integrity.problem_counts.items()
        notes.append("Found: " + ", ".join(f"{amount(count)} {kind}" for kind, count in counts) + ".")
        if not integrity.chains:
            return notes
    elif integrity.state == "open":
        notes.append(
            f"{integrity.problem_counts['open']:,} of {chains} without an end: the log is in use, or its writer was "
            "killed, or its last lines were cut off."
        )
    else:
        notes.append(f"{plural(integrity.lines, 'line')} in {chains}; all hashes agree.")
    if integrity.signatures_checked:
        notes.append(
            f"Signed with the given key up to the last line: {integrity.signed_chains:,} of {chains}."
        )
    else:
        notes.append("Signatures were not checked.")
    if integrity.anchors:
        held = "does not hold" if "anchor" in integrity.problem_counts else "holds"
        notes.append(f"{plural(integrity.anchors, 'anchor')} checked: what came before {held}.")
    return [*notes, *(f"Not told: {visible(limit)}." for limit in integrity.limits)]


def _let_through(report: LogReport) -> Answer:
    totals, violations = report.totals, report.violations
    question = "Was anything forbidden let through?"
    texts = sum(corpus.texts for corpus in report.corpora if corpus.source in ("guarded", "cut"))
    missing = totals.guarded_unverified
    notes = []
    if missing:
        notes.append(f"{plural(missing, 'finished sequence')} without a verification on record.")
    if totals.unfinished:
        notes.append(f"{plural(totals.unfinished, 'run')} without an end on record.")
    if totals.lost or totals.cut_runs:
        notes.append("Events are missing, so more may have happened than is counted here.")
    notes += _not_here(report.integrity)
    elsewhere = [corpus for corpus in report.corpora if corpus.source in ("observed", "apart")]
    if elsewhere:
        found, of = sum(one.violations for one in elsewhere), sum(one.texts for one in elsewhere)
        notes.append(
            f"Texts that the guard did not write (calls that were watched, documents, corpora): {found:,} of {of:,} "
            "hold a match."
        )
    answer: str
    tone: Tone
    if violations:
        answer, tone = "Yes", "bad"
        rate = percent(100 * violations / texts)
        notes.insert(0, f"{violations:,} of {texts:,} verified texts ({rate}) hold a match of a hard rule.")
    elif not texts:
        answer, tone = "Nothing on record", "doubt" if totals.guarded_runs else "plain"
        notes.insert(0, "No text that the guard wrote was verified.")
    else:
        checked = f"0 of {texts:,} verified texts hold a match of a hard rule."
        if report.integrity.state == "altered":
            answer, tone = "Not known", "doubt"
            notes.insert(0, f"As far as this log can be believed, {checked}")
        elif missing or totals.unfinished or not _complete(report):
            answer, tone = "Not on record", "doubt"
            notes.insert(0, checked)
        else:
            answer, tone = _no(report)
            notes.insert(0, checked)
    return Answer("violations", question, answer, tone, tuple(notes))


def _prevented(report: LogReport) -> Answer:
    total, totals = report.all, report.totals
    question = "What was prevented?"
    if not total.interventions:
        note = "Nothing was recorded: the model never wanted what is forbidden, or steps were not recorded."
        return Answer("interventions", question, "No interventions", "plain", (note, *_went_back(report)))
    notes = []
    if totals.runs:
        notes.append(f"In {totals.runs_changed:,} of {plural(totals.runs, 'run')}.")
    for rule_id, rule in [(one.rule_id, one) for one in report.rules if one.interventions][:2]:
        if rule_id is not None:
            share = percent(100 * rule.interventions / total.interventions)
            notes.append(f"Most by rule {shortened(visible(rule_id))} ({share} of interventions).")
            break
    for model_id, model in [(one.model_id, one) for one in report.models if one.interventions][:2]:
        if model_id is not None:
            notes.append(f"Most with {shortened(visible(model_id))} ({model.interventions:,}).")
            break
    if total.removed_known:
        notes.append(
            f"Probability removed: {amount(total.removed_probability)} in all. That many forbidden tokens would be "
            "expected at these steps, had the model been left to choose."
        )
    notes += _went_back(report)
    return Answer(
        "interventions", question, plural(total.interventions, "intervention"), "plain", tuple(notes)
    )


_TARGETS: Final[dict[RewindTarget, str]] = {
    "match": "where a match began",
    "sentence": "the beginning of its sentence",
    "text": "the beginning of the text",
}


def _went_back(report: LogReport) -> list[str]:
    """How often texts could not go back as far as they were to, and what may be said of those that could."""
    notes = []
    for one in report.back:
        notes.append(
            f"{plural(one.texts, 'text')} that could go back to {_TARGETS[one.back_to]}: {one.fallen:,} "
            f"({percent(one.rate)}) could not at least once, {plural(one.fallbacks, 'time')} in all."
        )
        if one.bound is not None:
            notes.append(
                "What they were sampled from is then within that share (total variation) of the model's own "
                f"distribution given that it says no match, as far as {plural(one.texts, 'text')} can tell."
            )
    return notes


def _complete(report: LogReport) -> bool:
    """Whether the log holds all that there ever was to hold, as far as that can be shown."""
    integrity, totals = report.integrity, report.totals
    gone = integrity.open_chains or integrity.absent or totals.lost or totals.cut_runs
    return integrity.state == "intact" and not gone


def _no(report: LogReport) -> tuple[str, Tone]:
    """That nothing happened, as far as the log can show it: what is not here may say otherwise."""
    return ("No", "good") if report.integrity.vouched else ("No, in what is here", "plain")


def _not_here(integrity: Integrity) -> list[str]:
    """Lines that this page cannot speak for."""
    if integrity.state != "intact":
        return []
    notes = []
    if integrity.absent:
        notes.append(
            f"{plural(integrity.absent, 'line')} that were put away {'was' if integrity.absent == 1 else 'were'} not "
            "read: what they say is not counted here."
        )
    if integrity.open_chains:
        notes.append("The log has no end yet: what comes after its last line is not known.")
    if not integrity.anchors:
        notes.append(
            "This speaks for the lines that are here. No anchor was given, so whole chains could be gone from the end "
            "of the log without a trace."
        )
    if not integrity.signatures_checked:
        notes.append("No key was given, so somebody could have written all of it anew.")
    return notes


def _mishaps(report: LogReport) -> Answer:
    question = "Did anything go wrong?"
    found = []
    if report.all.dead_ends:
        found.append(plural(report.all.dead_ends, "dead end"))
    if report.totals.errors:
        found.append(plural(report.totals.errors, "run with an error", "runs with errors"))
    notes = []
    if report.all.dead_ends:
        ways = ", ".join(f"{one.resolution or 'further ones'} {one.count:,}" for one in report.dead_ends)
        notes.append(f"Dead ends were resolved: {ways}.")
    if report.errors:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in list(report.errors.items())[:4])
        notes.append(f"Errors: {kinds}.")
    if not found:
        notes.append("No dead ends, and no run that ended by an error.")
    tone: Tone
    if found:
        answer, tone = ", ".join(found), "doubt"
    elif _complete(report):
        answer, tone = _no(report)
    else:
        answer, tone = "Not on record", "doubt"
    return Answer("mishaps", question, answer, tone, tuple(notes))
