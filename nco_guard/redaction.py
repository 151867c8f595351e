"""What to do about text that was not guarded while it was written: redact it, refuse it, hold it back as it streams.

The definition is on finished text (`redact`); `StreamVerifier` gives the same text piece by piece and
shows nothing before it is certain. Masks, tokenizers and sessions are never involved.

When not to use it: where the model can be guarded itself. Redacting tells the reader that something was there, and it
costs a search of every text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from nco_guard import arguments
from nco_guard.arguments import OnMatch
from nco_guard.automata import AlternatingMachine, FoldedMachine, FsmMachine
from nco_guard.automata.automaton import CharMachine
from nco_guard.automata.spans.streaming import SpanStream, span_stream
from nco_guard.compiler import CompiledPolicy, CompiledRule, compiled_of
from nco_guard.copies import Begun
from nco_guard.errors import ArgumentError, ClosedError, PolicyError, RedactionError, ViolationError
from nco_guard.policy import Policy
from nco_guard.verify import Finding, Report, verify

__all__ = [
    "REDACTED",
    "Placed",
    "Redaction",
    "Replacement",
    "Replacer",
    "SafeEnds",
    "Search",
    "StreamVerifier",
    "default_replacement",
    "redact",
    "require",
]

REDACTED = "[redacted]"
"""What stands in the place of a match unless something else is given, or the policy forbids it."""
Replacement = str | Callable[[str], str] | None
"""What stands where a match was: a fixed text, one for each rule id, or the default (None, `default_replacement`)."""

# In their order; no policy forbids the empty text.
_DEFAULTS = (REDACTED, "[removed]", "***", "---", "")
_defaults: WeakKeyDictionary[CompiledPolicy, str] = WeakKeyDictionary()
# Replacements that are known not to be forbidden, by policy.
_accepted: WeakKeyDictionary[CompiledPolicy, set[str]] = WeakKeyDictionary()
_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class Redaction:
    """A text without what the policy forbids, and the report on the text that it was made from."""

    text: str
    report: Report


class Search(Protocol):
    """What finds matches in a text: `verify` of a policy, or what finds the same."""

    def __call__(self, text: str, *, context: str = "") -> Report:
        """The report on a text that continues `context`."""
        ...


def redact(
    policy: Policy | CompiledPolicy,
    text: str,
    *,
    replacement: Replacement = None,
    context: str = "",
    search: Search | None = None,
) -> Redaction:
    """Replace every match of a hard rule.

    Matches that overlap are replaced together, once, by the replacement of the one that begins first (of several, the
    longest; then in the policy's order). Guarantee: the verifier finds no match of a hard rule in the result.

    `search` finds the matches: `verify`, the definition, unless another one is given that finds the same, such as
    `nco_guard.Verifier(policy).verify`, which `Guard.redact` uses. Without a `replacement` it is `default_replacement`.
    Cost: one search, two where something was replaced. Errors: `PolicyError` for a given replacement that is itself
    forbidden; `RedactionError` where the replaced text forms a match with what surrounds it.
    """
    compiled = compiled_of(policy)
    replacements = _replacements(compiled, replacement)
    arguments.text("text", text)
    arguments.text("context", context)
    find: Search = search if search is not None else partial(verify, compiled)
    report = find(text, context=context)
    if report.ok:
        return Redaction(text, report)
    result = _replaced(compiled, text, report.violations, replacements)
    _check_redacted(compiled, find(result, context=context))
    return Redaction(result, report)


def default_replacement(policy: Policy | CompiledPolicy) -> str:
    """What stands where a match was if nothing else is given: "[redacted]".

    Under a policy that forbids this it is the first of "[removed]", "***", "---" and the empty text that it allows, so
    no policy is refused for a text that nobody chose. Cost: a search of a few characters, once for each policy.
    """
    compiled = compiled_of(policy)
    found = _defaults.get(compiled)
    if found is None:
        found = _defaults[compiled] = next(text for text in _DEFAULTS if verify(compiled, text).ok)
    return found


def _replaced(
    compiled: CompiledPolicy, text: str, violations: Iterable[Finding], replacements: Mapping[str, str]
) -> str:
    pieces: list[str] = []
    position = 0
    for start, end, rule_id in _merged(compiled, violations):
        pieces += text[position:start], replacements[rule_id]
        position = end
    return "".join((*pieces, text[position:]))


def require(policy: Policy | CompiledPolicy, text: str, *, context: str = "", where: str = "text") -> Report:
    """The report on a text without matches of hard rules; raises `ViolationError` for any other."""
    compiled = compiled_of(policy)
    report = verify(compiled, text, context=context)
    if not report.ok:
        raise ViolationError(_in_order(compiled, {f.rule_id for f in report.violations}), where)
    return report


class StreamVerifier(Begun):
    """Text in, piece by piece; out comes what may be shown, as soon as that is certain.

    `feed` returns text that is safe to show, `finish` the rest. What is held back is the text from the first place at
    which a match of a hard rule began that could still be completed: the automata know where that is, there is no
    window.

    Args:
        action: "redact": all pieces joined are `redact(policy, whole).text`, however the text was cut. "raise": the
            same for a text without a match, else `ViolationError` from the call that completes one. "report": all text
            passes at once.

    Guarantee ("redact", "raise"): the pieces joined hold no match of a hard rule at any moment, as if the text ended
    there. `report` is exactly `verify(policy, whole)` once `finish` has returned.

    Cost: some microseconds per rule and character; `verify` on finished text is ten times faster. Memory: what is held.
    Errors: as `redact`; after an error nothing more is taken.
    """

    def __init__(
        self,
        policy: Policy | CompiledPolicy,
        *,
        action: OnMatch = "redact",
        replacement: Replacement = None,
        context: str = "",
        where: str = "text",
    ) -> None:
        arguments.choice("action", action, ("redact", "raise", "report"))
        arguments.text("context", context)
        self._compiled = compiled = compiled_of(policy)
        self._action = action
        self._where = where
        self._replacer = Replacer(compiled, replacement)
        self._streams: list[tuple[CompiledRule, SpanStream]] = []
        for rule in compiled.rules:
            with rule.lock:
                stream = span_stream(rule.stepper, context if rule.rule.context == "prompt" else "")
            self._streams.append((rule, stream))
        self._hard = [(rule.id, stream) for rule, stream in self._streams if rule.rule.mode == "hard"]
        self._watch = SafeEnds(compiled, context=context)
        self._findings: list[Finding] = []
        self._violated: set[str] = set()
        self._length = 0
        self._closed = False

    def feed(self, text: str) -> str:
        """Read on; the text that may be shown now, often less than what was read."""
        return self._read(text, final=False)

    def finish(self) -> str:
        """The text ends here; what is left of it to be shown."""
        return self._read("", final=True)

    @property
    def report(self) -> Report:
        """What was found so far, in the text as it was fed."""
        found = sorted(self._findings, key=lambda f: (f.start, f.end, f.rule_id))
        return Report(self._compiled.digest, self._length, tuple(found))

    @property
    def held(self) -> int:
        """How many characters were fed whose fate is open."""
        return self._replacer.held + len(self._watch.held)

    def _read(self, text: str, *, final: bool) -> str:
        arguments.text("text", text)
        if self._closed:
            raise ClosedError("this text is over; use a new StreamVerifier for another one")
        self._closed = True
        self._length += len(text)
        hard: list[Finding] = []
        for rule, stream in self._streams:
            with rule.lock:
                found = stream.feed(text) if text else []
                if final:
                    found += stream.finish()
            findings = [Finding(rule.id, start, end, rule.rule.mode) for start, end in found]
            self._findings += findings
            if rule.rule.mode == "hard":
                hard += findings
        if self._action == "report":
            self._closed = final
            return text
        if self._action == "raise":
            self._refuse(hard)
        safe = self._length
        if not final:
            safe = min((stream.safe for _, stream in self._hard), default=safe)
        shown = self._watch.feed(self._replacer.feed(text, hard, safe=safe, final=final), final=final)
        self._closed = final
        return shown

    def _refuse(self, found: Sequence[Finding]) -> None:
        self._violated.update(finding.rule_id for finding in found)
        broken = self._violated | {rule_id for rule_id, stream in self._hard if stream.matched}
        if broken:
            raise ViolationError(_in_order(self._compiled, broken), self._where)


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece of redacted text, and where in the text that was fed it comes from, or what it replaces begins."""

    place: int
    text: str
    replaces: bool = False

    def cut(self, size: int) -> tuple[Placed, Placed]:
        """Its first characters, and the rest."""
        after = self.place if self.replaces else self.place + size
        return replace(self, text=self.text[:size]), replace(self, place=after, text=self.text[size:])


class Replacer:
    """Puts replacements in the place of matches, while text and findings arrive.

    `feed` returns the redacted text up to where a match could still begin. All pieces joined are the text of `redact`,
    but nothing is checked: whoever uses it sees to it that no match is formed. Cost: linear in the text. Errors:
    `PolicyError` for a given replacement that is itself forbidden.
    """

    def __init__(self, compiled: CompiledPolicy, replacement: Replacement = None) -> None:
        self._compiled = compiled
        self._replacements = _replacements(compiled, replacement)
        self._spans: list[Finding] = []  # not yet shown as replaced
        self._text = ""  # from `_base` on
        self._base = 0
        self._hidden = 0  # the end of the last replaced stretch

    @property
    def held(self) -> int:
        """How many characters were fed that are not shown yet."""
        return len(self._text)

    def instead(self, rule_id: str | None = None) -> str:
        """What stands where a match of a rule was, or (None) what cannot be looked into."""
        return self._replacements[self._compiled.rules[0].id if rule_id is None else rule_id]

    def whole(self, text: str, findings: Iterable[Finding]) -> str:
        """A whole text with its findings replaced, whatever was fed before."""
        return _replaced(self._compiled, text, findings, self._replacements)

    def stretches(self, findings: Iterable[Finding]) -> list[tuple[int, int, str]]:
        """(start, end, what stands there) for each stretch of a whole text that its findings leave nothing of."""
        return [
            (start, end, self._replacements[rule]) for start, end, rule in _merged(self._compiled, findings)
        ]

    def feed(self, text: str, findings: Iterable[Finding], *, safe: int, final: bool = False) -> str:
        """Read on. `findings`: hard ones that are new; `safe`: those that are yet to come start here or later."""
        return "".join(piece.text for piece in self.feed_placed(text, findings, safe=safe, final=final))

    def feed_placed(
        self, text: str, findings: Iterable[Finding], *, safe: int, final: bool = False
    ) -> list[Placed]:
        """The same in pieces that know where they come from."""
        self._text += text
        self._spans += findings
        limit = self._base + len(self._text) if final else safe
        certain = [span for span in self._spans if final or span.start < limit]
        self._spans = [span for span in self._spans if not (final or span.start < limit)]
        pieces: list[Placed] = []
        position = max(self._base, self._hidden)
        for start, end, rule_id in _merged(self._compiled, certain):
            # One that overlaps what was replaced before only hides more.
            if start >= self._hidden:
                pieces.append(Placed(position, self._text[position - self._base : start - self._base]))
                pieces.append(Placed(start, self._replacements[rule_id], replaces=True))
            self._hidden = position = max(self._hidden, end)
        if position < limit:
            pieces.append(Placed(position, self._text[position - self._base : limit - self._base]))
        self._text = self._text[max(0, limit - self._base) :]
        self._base = limit
        return [piece for piece in pieces if piece.text]

    @property
    def decided(self) -> int:
        """What comes before this place is shown, or never will be."""
        return max(self._base, self._hidden)


# By state and class: the state after it, whether the text may end there, whether a match completes.
_Known = dict[tuple[int, int], tuple[int, bool, bool]]
# By machine; shared by all streams, under the lock of the rule.
_steps: WeakKeyDictionary[CharMachine, _Known] = WeakKeyDictionary()


_Stepper = AlternatingMachine | FoldedMachine | FsmMachine
# Of a rule its machine, which may be another one than the rule has by now, the state there, and what is known of it.
_Place = tuple[_Stepper, int, _Known]


class SafeEnds:
    """Cuts text back to where it may end, piece by piece: for text that somebody may stop at any moment.

    `feed` returns what may be shown: all of the text so far up to the last place where it could end without completing
    a match of a hard rule. What it still holds at the end is to be thrown away. The text itself must hold no match that
    is complete before its end: `RedactionError` otherwise. Cost: two steps per rule and character.
    """

    def __init__(self, policy: Policy | CompiledPolicy, *, context: str = "") -> None:
        compiled = compiled_of(policy)
        self._rules = [rule for rule in compiled.rules if rule.rule.mode == "hard"]
        self._at: list[_Place] = []
        arguments.text("context", context)
        for rule in self._rules:
            with rule.lock:
                self._at.append(_begun(rule.stepper, context if rule.rule.context == "prompt" else ""))
        self.held = ""

    def feed(self, text: str, *, final: bool = False) -> str:
        """Read on; what may be shown now. `final`: the text ends here and must be allowed to."""
        arguments.text("text", text)
        unfit: set[int] = set()
        for index, rule in enumerate(self._rules):
            with rule.lock:
                self._at[index] = self._step(rule, self._at[index], text, unfit, final)
        last = len(text)
        while not final and last and last - 1 in unfit:
            last -= 1
        shown, self.held = (self.held + text[:last], text[last:]) if last or final else ("", self.held + text)
        return shown

    def _step(self, rule: CompiledRule, place: _Place, text: str, unfit: set[int], final: bool) -> _Place:
        machine, state, known = place
        for index, cls in enumerate(machine.classes.of_text(text)):
            found = known.get((state, cls))
            if found is None:
                if machine.crowded:
                    machine, state = _with_room(machine, state)
                    known = _steps.setdefault(machine, {})
                reached = machine.step(state, cls)
                after = ~reached if reached < 0 else reached
                found = known[state, cls] = after, machine.may_end(after), reached < 0
            state, may_end, completes = found
            if completes:
                raise RedactionError((rule.id,))
            if not may_end:
                unfit.add(index)
        if final and not machine.may_end(state):
            raise RedactionError((rule.id,))
        return machine, state, known


def _begun(machine: _Stepper, context: str) -> _Place:
    """The state of an empty text after a prompt: what ends in the prompt does not count, whatever follows."""
    state = machine.start
    for cls in machine.classes.of_text(context):
        machine, state = _with_room(machine, state)
        state = machine.step(state, cls)
        state = ~state if state < 0 else state
    state = machine.past_prompt(state) if context else state
    return machine, state, _steps.setdefault(machine, {})


def _with_room(machine: _Stepper, state: int) -> tuple[_Stepper, int]:
    """The same state of a machine that has room to go on."""
    if not machine.crowded:
        return machine, state
    fresh, states = machine.carried((state,))
    return fresh, states[0]


def _replacements(compiled: CompiledPolicy, replacement: Any) -> dict[str, str]:
    """By rule id; each is checked, since it will be shown."""
    found: dict[str, str] = {}
    if replacement is None:
        return dict.fromkeys((rule.id for rule in compiled.rules), default_replacement(compiled))
    if not isinstance(replacement, str) and not callable(replacement):
        kind = type(replacement).__name__
        raise ArgumentError(
            f"replacement: {kind} is no text; give a str, or a function from a rule's id to one"
        )
    checked = _accepted.setdefault(compiled, set())
    for rule in compiled.rules:
        text = replacement if isinstance(replacement, str) else replacement(rule.id)
        if not isinstance(text, str):
            raise ArgumentError(f"replacement for rule {rule.id!r} must be a str, got {type(text).__name__}")
        if text not in checked and not (report := verify(compiled, text)).ok:
            raise PolicyError(
                f"the replacement itself matches {report.violations[0].rule_id!r}; choose another",
                rule_id=rule.id,
                field="replacement",
            )
        if len(checked) < _KEPT:
            checked.add(text)
        found[rule.id] = text
    return found


def _merged(compiled: CompiledPolicy, findings: Iterable[Finding]) -> list[tuple[int, int, str]]:
    """Stretches to be replaced, and the rule that each is replaced for."""
    order = {rule.id: index for index, rule in enumerate(compiled.rules)}
    merged: list[tuple[int, int, str]] = []
    for found in sorted(findings, key=lambda f: (f.start, -f.end, order[f.rule_id])):
        if merged and found.start < merged[-1][1]:
            start, end, rule_id = merged[-1]
            merged[-1] = start, max(end, found.end), rule_id
        else:
            merged.append((found.start, found.end, found.rule_id))
    return merged


def _check_redacted(compiled: CompiledPolicy, report: Report) -> None:
    if not report.ok:
        raise RedactionError(_in_order(compiled, {finding.rule_id for finding in report.violations}))


def _in_order(compiled: CompiledPolicy, rule_ids: Iterable[str]) -> tuple[str, ...]:
    wanted = set(rule_ids)
    return tuple(rule.id for rule in compiled.rules if rule.id in wanted)
