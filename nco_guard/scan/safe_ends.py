"""Where a text may end that somebody may stop at any moment."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from nco_guard import arguments
from nco_guard.automata import AlternatingMachine, FoldedMachine, FsmMachine
from nco_guard.automata.characters import CharMachine
from nco_guard.compiler import CompiledPolicy, CompiledRule, compiled_of
from nco_guard.errors import RedactionError
from nco_guard.policy import Policy

__all__ = ["SafeEnds"]

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

    Examples:
        >>> ends = SafeEnds(Policy(name="p", rules=[StringRule(id="a", strings=["ass"], whole_word=True)]))
        >>> ends.feed("an ass"), ends.feed("et")
        ('an as', 'set')
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
    """This state in a machine that has room to go on."""
    if not machine.crowded:
        return machine, state
    fresh, states = machine.carried((state,))
    return fresh, states[0]
