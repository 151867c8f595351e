"""What a rule's `checksum` says, as a sum that is read from left to right."""

from __future__ import annotations

from nco_guard.automata import CHECKSUMS, AllOf, Checksum, Repeated, Weighted, WholeNumber
from nco_guard.policy import CheckDigits
from nco_guard.policy.check_digits import CHECK, RuleChecksum

__all__ = ["checksum_of"]


def checksum_of(checksum: RuleChecksum) -> Checksum:
    """The sum for a checksum of a rule, which is not "none"."""
    if isinstance(checksum, tuple):
        return AllOf([checksum_of(part) for part in checksum])
    return _declared(checksum) if isinstance(checksum, CheckDigits) else CHECKSUMS[checksum]


def _declared(digits: CheckDigits) -> Checksum:
    accept = digits.accept if digits.accept is not None else (0,)
    letters = digits.letter_values
    if digits.weights is None:
        return WholeNumber(digits.modulus, accept=accept, check=digits.check or "", letters=letters)
    tables = digits.table_values
    places = [
        tables[weight] if isinstance(weight, str) else weight for weight in digits.weights if weight != CHECK
    ]
    if digits.repeat == "right":
        return Repeated(places, digits.modulus, accept=accept, letters=letters, digit_sums=digits.digit_sums)
    at = digits.weights.index(CHECK) if digits.check is not None else None
    return Weighted(
        places if at is None else [*places[:at], None, *places[at:]],
        digits.modulus,
        accept=accept,
        check=digits.check or "",
        letters=letters,
        digit_sums=digits.digit_sums,
    )
