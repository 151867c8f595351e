"""Every error this library raises on purpose, as one tree.

A message names the rule, field or position at fault and says what to do instead. No message ever holds
generated text, a prompt or a matched value: errors end up in logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = [
    "ArgumentError",
    "ArgumentValueError",
    "AuditError",
    "CacheError",
    "ClosedError",
    "ContradictionError",
    "DeadEndError",
    "ForbiddenTokenError",
    "ForcedTokenWarning",
    "GenerationError",
    "InputError",
    "MissingExtraError",
    "NCOGuardError",
    "PatternError",
    "PolicyError",
    "PresetError",
    "RedactionError",
    "ShapeError",
    "ShapeLimitError",
    "StateLimitError",
    "TokenizerError",
    "UnsupportedError",
    "ViolationError",
    "parted",
    "re_complaint",
]


class NCOGuardError(Exception):
    """Base of all errors of this library.

    They can be copied and pickled, with all that they name: errors cross from one process to another.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # The message is not what constructors take.
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[NCOGuardError], args: tuple[object, ...], named: dict[str, object]) -> NCOGuardError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(named)
    return error


@contextmanager
def parted() -> Iterator[None]:
    """Errors of policies that are raised in here lose what led to them.

    What `re`, YAML, JSON and pydantic raise holds the pattern or the document, and `raise ... from None` only hides it:
    loggers and tracers show `__context__` all the same.
    """
    try:
        yield
    except PolicyError as error:
        error.__cause__ = error.__context__ = None
        raise


# `re` quotes the pattern in some of its messages, always after one of these beginnings.
_SAID_BY_RE = (
    "bad character in group name",
    "bad character range",
    "bad conditional backref",
    "bad escape (end of pattern)",
    "bad escape",
    "bad group number",
    "bad inline flags",
    "cannot refer to an open group",
    "cannot refer to group defined in the same lookbehind subpattern",
    "conditional backref with more than two branches",
    "global flags not at the start of the expression",
    "incomplete escape",
    "invalid group reference",
    "look-behind requires fixed-width pattern",
    "looks too much behind",
    "min repeat greater than max repeat",
    "missing ), unterminated comment",
    "missing ), unterminated subpattern",
    "missing",
    "multiple repeat",
    "nothing to repeat",
    "octal escape value outside of range 0-0o377",
    "octal escape value",
    "redefinition of group name",
    "too many groups",
    "unbalanced parenthesis",
    "undefined character name",
    "unexpected end of pattern",
    "unknown extension",
    "unknown group name",
    "unterminated character set",
)


def re_complaint(error: re.error) -> str:
    """What `re` says is wrong with a pattern, without the piece of it that `re` quotes; `error.pos` says where."""
    return next((known for known in _SAID_BY_RE if error.msg.startswith(known)), "it is not valid")


class ArgumentError(NCOGuardError, TypeError):
    """An argument is of a type that cannot be what is meant; the message names it and says what to pass."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument is of the right type and has a value that cannot be meant; the message says which there are."""


class ClosedError(NCOGuardError, ValueError):
    """What reads a text or a value in pieces was used again after its end, or after an error."""


class PolicyError(NCOGuardError, ValueError):
    """A policy, rule or field cannot be accepted.

    `rule_id` and `field` name the place, where known; the message repeats them and states the remedy.
    """

    def __init__(self, message: str, *, rule_id: str | None = None, field: str | None = None) -> None:
        place = "".join(
            [f"rule {rule_id!r}: " if rule_id else "", f"field {field!r}: " if field else ""],
        )
        super().__init__(f"{place}{message}")
        self.message = message
        self.rule_id = rule_id
        self.field = field


class PatternError(PolicyError):
    """A regular expression uses a construct that cannot be enforced exactly, or is not valid `re` syntax.

    `construct` names it, `position` is its offset in code points in the pattern (None where `re`
    gives none), and the message says what to write instead.
    """

    def __init__(
        self,
        message: str,
        *,
        construct: str,
        position: int | None = None,
        rule_id: str | None = None,
        field: str | None = None,
    ) -> None:
        where = f" at position {position}" if position is not None else ""
        super().__init__(f"{construct}{where}: {message}", rule_id=rule_id, field=field)
        self.reason = message
        self.construct = construct
        self.position = position

    def named(self, rule_id: str, field: str | None = None) -> PatternError:
        """This error with the rule that it belongs to; patterns are parsed before rules are known."""
        return PatternError(
            self.reason, construct=self.construct, position=self.position, rule_id=rule_id, field=field
        )


class PresetError(PolicyError):
    """An unknown preset, or an option (such as a language) that the preset does not have."""


class StateLimitError(PolicyError):
    """A rule's automaton needs more states than its memory limit allows."""


class ShapeError(NCOGuardError, ValueError):
    """What is given as a shape cannot be enforced exactly, or nothing that it asks for can be written under the policy.

    `place` is a JSON Pointer into the schema (`#/properties/age`), where it is one; the message repeats it.
    """

    def __init__(self, message: str, *, place: str | None = None) -> None:
        super().__init__(f"{place}: {message}" if place is not None else message)
        self.message = message
        self.place = place


class ShapeLimitError(ShapeError):
    """Whether anything of a shape can be written was not decided within the bounds of the search, or of the library.

    It need not contradict the policy; a narrower shape (a pattern without `.*`, less `minLength`) may be decided.
    """


class ContradictionError(ShapeError):
    """A schema asks for what the policy forbids, so that nothing can be written that keeps both.

    `places`: for each place of the schema that can only hold what is forbidden, a JSON Pointer and the ids of the
    rules; `place` is the first of them, `rule_ids` are those of all.
    """

    def __init__(self, places: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        first, ids = places[0]
        others = f" (and {len(places) - 1} other places)" if len(places) > 1 else ""
        super().__init__(
            f"all that the schema asks for here is forbidden by {', '.join(map(repr, ids))}{others}; make it optional, "
            "allow other values, or change the policy",
            place=first,
        )
        self.places = tuple(places)
        self.rule_ids = tuple(dict.fromkeys(each for _, named in places for each in named))

    def within(self, place: str) -> ContradictionError:
        """This error as it is said of a schema that stands within something else; `place`: where."""
        return ContradictionError([(f"{place}{each}", ids) for each, ids in self.places])


class TokenizerError(NCOGuardError, ValueError):
    """A tokenizer, or one of its settings, cannot be modelled exactly; the message names which and why."""


class GenerationError(NCOGuardError, RuntimeError):
    """Something went wrong while text was being generated."""


class DeadEndError(GenerationError):
    """No token is allowed here and the text may not end here either."""


class ForbiddenTokenError(GenerationError):
    """A session was advanced by a token that its mask forbids."""


class ForcedTokenWarning(UserWarning):
    """A token that the masks forbid was written all the same: by another processor, or by the decoding loop itself.

    What a reader has of that text is not what the policy allows. It is guarded on.
    """


class UnsupportedError(GenerationError, ValueError):
    """An option of the decoding engine under which the guarantee would not hold."""


class ViolationError(NCOGuardError, ValueError):
    """A text holds what the policy forbids.

    `rule_ids` names the rules, in the policy's order; the text is nowhere in here. `where` is what was searched: "model
    output", "tool result", ...
    """

    def __init__(self, rule_ids: tuple[str, ...], where: str = "text") -> None:
        super().__init__(
            f"{where}: matches of {', '.join(map(repr, rule_ids))} were found and withheld; redact them, ask again, or "
            "guard the model itself"
        )
        self.rule_ids = rule_ids
        self.where = where


class RedactionError(NCOGuardError, ValueError):
    """What is left after redaction forms a match itself, so nothing may be shown."""

    def __init__(self, rule_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"{', '.join(map(repr, rule_ids))}: the text around a replacement forms a match with it, or several "
            "values do together; choose another replacement, or raise instead of redacting"
        )
        self.rule_ids = rule_ids


class InputError(NCOGuardError, ValueError):
    """A file that is to be verified cannot be read, or a part of it: `file`, and `line` (from 1) where there is one.

    The message says what is wrong there, never what stands there.
    """

    def __init__(self, file: str, problem: str, *, line: int | None = None) -> None:
        super().__init__(f"{file}: {problem}" if line is None else f"{file}:{line}: {problem}")
        self.file = file
        self.problem = problem
        self.line = line


class CacheError(NCOGuardError, ValueError):
    """The folder of a cache cannot be trusted: it is somebody else's, or open to others. The message says the mend."""


class AuditError(NCOGuardError, RuntimeError):
    """An audit event could not be recorded."""


class MissingExtraError(NCOGuardError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs packages that are not installed: pip install 'nco-guard[{extra}]'")
        self.extra = extra
