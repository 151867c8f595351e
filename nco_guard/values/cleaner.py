"""`Cleaner`: what an integration does about values that it hands on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar, overload

from nco_guard import arguments
from nco_guard.arguments import OnMatch
from nco_guard.audit import RunRecorder
from nco_guard.errors import ArgumentError, RedactionError, UnsupportedError, ViolationError
from nco_guard.scan.findings import Report
from nco_guard.scan.replacing import Replacement
from nco_guard.values.faults import clean_error
from nco_guard.values.finding import Finder
from nco_guard.values.flows import TextFlow
from nco_guard.values.redacting import Searched, cleaned, cleaned_pieces
from nco_guard.values.roles import Role
from nco_guard.values.texts import SEPARATORS, joined, texts_of_tree
from nco_guard.values.trees import Tree
from nco_guard.values.value_stream import ValueStream

__all__ = ["Cleaner"]

T = TypeVar("T")


class Cleaner:
    """Looks into any Python value under a policy, and redacts, refuses or reports what it finds.

    Args:
        guard: a `Guard`, a `Policy`, a preset's name or several, the path of a policy file (`nco_guard.guards`), or a
            compiled policy.
        action: "redact" puts `replacement` where a match was; "raise" raises `ViolationError`; "report" changes
            nothing.
        replacement: None, the default, is `nco_guard.scan.default_replacement`, which no policy forbids.
        where: what is looked at, for errors.
        record: receives a verification for each text and for each value that holds a match; never text.

    Guarantee ("redact", "raise"): no match of a hard rule in any text of what comes back (`texts_of` says which these
    are). What nothing was found in is the same object. Containers and objects keep their class; a number, date or other
    scalar that matches becomes the replacement, also where a model's field could not hold it (it is not validated
    again). Keys that become equal are numbered.

    Cost: one search of all texts together, some tenths of a millisecond for large policies; about as much again for
    each match. Errors: `PolicyError` for a given replacement that is itself forbidden; `ViolationError`;
    `RedactionError` where the match is made by what surrounds values; `UnsupportedError` ("raise") for what cannot be
    looked into, such as an iterator, in whose place "redact" puts its type's name.

    Examples:
        >>> Cleaner("pii").value({"to": "jane.doe@example.com", "size": 12})
        {'to': '[redacted]', 'size': 12}
    """

    def __init__(
        self,
        guard: Any,
        action: OnMatch = "redact",
        *,
        replacement: Replacement = None,
        where: str = "value",
        record: RunRecorder | None = None,
    ) -> None:
        arguments.choice("action", action, ("redact", "raise", "report"))
        if record is not None and not isinstance(record, RunRecorder):
            raise ArgumentError(f"record: give a RunRecorder, or None, not {type(record).__name__}")
        self.action: OnMatch = action
        self.where = where
        self.finder = Finder(guard, replacement)
        self._record = record

    def at(self, where: str) -> Cleaner:
        """A cleaner like this one for another place, which its errors name."""
        return self._like(self.action, where)

    def _like(self, action: OnMatch, where: str) -> Cleaner:
        other = Cleaner.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.action, other.where = action, where
        return other

    @property
    def replacement(self) -> Replacement:
        """What stands where a match was."""
        return self.finder.replacement

    # -- values ------------------------------------------------------------------------------------------------

    def value(self, value: Any) -> Any:
        """Any Python value."""
        if type(value) is str:
            return self.text(value)
        return self._value(value, Role.VALUE)

    def field(self, value: Any, role: Role) -> Any:
        """A value as a field with this role is read."""
        _check_role(role)
        if role is Role.METADATA:
            return self.metadata(value)
        return self._value(value, role)

    def metadata(self, value: Any) -> Any:
        """What a provider says about an answer: log probabilities left out, and redacted whatever the action is."""
        searched = Searched(Tree(value, Role.METADATA), self.finder)
        self._record_others(searched, ())
        return cleaned(value, self.finder, Role.METADATA, searched)

    def rules(self, value: Any) -> tuple[str, ...]:
        """The ids of the hard rules that match anywhere in a value, in the policy's order; nothing is changed."""
        return self.finder.rules(texts_of_tree(Tree(value)))

    def _value(self, value: Any, role: Role) -> Any:
        searched = Searched(Tree(value, role), self.finder)
        self._record_others(searched, self._record_groups(searched.tree))
        if self.action == "report":
            return value
        if self.action == "raise":
            if searched.own:
                raise ViolationError(searched.own, self.where)
            self._refuse_opaque(searched.tree)
        return cleaned(value, self.finder, role, searched)

    def _refuse_opaque(self, tree: Tree) -> None:
        for node in tree.opaque:
            if not node.meta:
                raise UnsupportedError(
                    f"{self.where}: a {type(node.value).__name__} cannot be looked into; hand on text, data or "
                    "objects with attributes"
                )

    # -- texts -------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """A text that a reader sees, or a program parses: its JSON escapes are read as well."""
        report = self.finder.report(arguments.text("text", text))
        self._record_report(report, text)
        return self._acted(text, report, lambda: self.finder.without(text, report))

    def json_text(self, text: str) -> str:
        """Text that somebody will parse as JSON: clean as text, through its escapes, and once it is parsed."""
        return str(self._value(arguments.text("text", text), Role.JSON))

    def texts(self, pieces: Sequence[str]) -> list[str]:
        """Neighbouring pieces that a reader sees joined, with nothing or a line break between; as many come back.

        Errors: `RedactionError` where as many pieces, however they are replaced, make a match.
        """
        arguments.texts("pieces", pieces)
        reports = [self.finder.report(separator.join(pieces)) for separator in SEPARATORS]
        self._record_report(reports[0], SEPARATORS[0].join(pieces))
        worst = next((report for report in reports if not report.ok), reports[0])
        if worst.ok and self.finder.rules(pieces):
            worst = next(report for piece in pieces if not (report := self.finder.report(piece)).ok)
        return self._acted(list(pieces), worst, lambda: self._pieces(pieces))

    def _pieces(self, pieces: Sequence[str]) -> list[str]:
        new = cleaned_pieces(pieces, self.finder)
        # Where nothing but line breaks between pieces is left, these alone may make a match.
        if rules := self.finder.rules([*new, *(separator.join(new) for separator in SEPARATORS)]):
            raise RedactionError(rules)
        return new

    def identifier(self, text: str) -> str:
        """An id. One that matches becomes another, the same for the same everywhere in this process."""
        return str(self._value(arguments.text("text", text), Role.IDENTIFIER))

    def name(self, text: str) -> str:
        """The name of a tool. Errors: `ViolationError` if it matches, whatever the action: nothing could be called."""
        report = self.finder.report(arguments.text("text", text))
        if not report.ok:
            self._record_report(report, text)
            raise ViolationError(self.finder.verifier.broken(report.findings), self.where)
        return text

    @overload
    def error(self, error: Exception, kind: Callable[[str], Exception]) -> Exception: ...

    @overload
    def error(self, error: BaseException, kind: Callable[[str], Exception]) -> BaseException: ...

    def error(self, error: BaseException, kind: Callable[[str], Exception]) -> BaseException:
        """An error as it may be shown, with its causes, notes, arguments, attributes and members, and errors in these.

        One that holds a match becomes `kind(text)`, or a `ViolationError` under "raise"; one whose causes do is parted
        from them. What cancels or ends (`CancelledError`, `KeyboardInterrupt`, `GeneratorExit`, `SystemExit`) keeps its
        class under every action, with clean arguments; other exceptions that are no `Exception` become a
        `BaseException`, groups of them a group of clean members. An `AttributeError` is parted from the object that
        it was about. Raise it outside of the `except` block, or it carries the old one as its context.
        """
        if not isinstance(error, BaseException):
            raise ArgumentError(f"error: an exception is needed, not {type(error).__name__}")
        arguments.function("kind", kind, "a function from a text to an exception")
        if self.action == "report":
            return error
        return clean_error(error, self.finder, self._text_of_error, kind)

    def _text_of_error(self, text: str, rules: tuple[str, ...]) -> str:
        if self.action == "raise":
            self._record_rules(rules, len(text))
            raise ViolationError(rules, self.where)
        return self.text(text)

    def _acted(self, value: T, report: Report, redacted: Callable[[], T]) -> T:
        if report.ok or self.action == "report":
            return value
        if self.action == "raise":
            raise ViolationError(self.finder.verifier.broken(report.findings), self.where)
        return redacted()

    # -- streams -----------------------------------------------------------------------------------------------

    def stream(self, role: Role = Role.VALUE) -> ValueStream:
        """For a value that arrives in pieces. See `ValueStream`."""
        _check_role(role)
        return ValueStream(self, role)

    def unrecorded(self) -> Cleaner:
        """A cleaner like this one that records nothing: for parts of what is looked at as a whole."""
        other = self._like(self.action, self.where)
        other._record = None
        return other

    def recorded(self, flow: TextFlow) -> None:
        """Write down what was found in a text that arrived in pieces and is over."""
        self._record_report(flow.report, flow.text)

    # -- records -----------------------------------------------------------------------------------------------

    def _record_groups(self, tree: Tree) -> set[str]:
        """Write down what was found in the texts of messages, clean ones too; the rules that matched in them."""
        if self._record is None:
            return set()
        texts = [
            str(node.value) for node in tree.nodes if node.role in (Role.TEXT, Role.BLOCKS) and node.is_text
        ]
        texts += [next(joined(group)) for group in tree.groups if group.role is Role.BLOCKS]
        reports = [self.finder.report(text) for text in texts]
        for report, text in zip(reports, texts, strict=True):
            self._record_report(report, text)
        return {found.rule_id for report in reports for found in report.violations}

    def _record_others(self, searched: Searched, written: Collection[str]) -> None:
        if others := [rule for rule in searched.rules if rule not in written]:
            self._record_rules(others, searched.length)

    def _record_rules(self, rules: Sequence[str], length: int) -> None:
        self._record_report(Report.somewhere(self.finder.compiled.digest, length, rules))

    def _record_report(self, report: Report, text: str | None = None) -> None:
        if self._record is not None and report.length:
            self._record.report(report, text=text)


def _check_role(role: Any) -> None:
    if not isinstance(role, Role):
        raise ArgumentError(f"role: a Role is needed, not {type(role).__name__}")
