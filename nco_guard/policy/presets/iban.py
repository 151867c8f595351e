"""The shape of an IBAN, country by country."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["IBAN", "IBAN_EARLY", "IBAN_STOP"]

# The structure of the account part (BBAN) behind the two check digits, as the SWIFT IBAN registry writes it:
# n digits, a letters, c letters or digits.
_BBAN = {
    "AD": "8n12c", "AE": "19n", "AL": "8n16c", "AT": "16n", "AZ": "4a20c", "BA": "16n", "BE": "12n",
    "BG": "4a6n8c", "BH": "4a14c", "BI": "23n", "BR": "23n1a1c", "BY": "4c4n16c", "CH": "5n12c", "CR": "18n",
    "CY": "8n16c", "CZ": "20n", "DE": "18n", "DJ": "23n", "DK": "14n", "DO": "4c20n", "EE": "16n",
    "EG": "25n",
    "ES": "20n", "FI": "14n", "FK": "2a12n", "FO": "14n", "FR": "10n11c2n", "GB": "4a14n", "GE": "2a16n",
    "GI": "4a15c", "GL": "14n", "GR": "7n16c", "GT": "24c", "HN": "4a20n", "HR": "17n", "HU": "24n",
    "IE": "4a14n", "IL": "19n", "IQ": "4a15n", "IS": "22n", "IT": "1a10n12c", "JO": "4a4n18c", "KW": "4a22c",
    "KZ": "3n13c", "LB": "4n20c", "LC": "4a24c", "LI": "5n12c", "LT": "16n", "LU": "3n13c", "LV": "4a13c",
    "LY": "21n", "MC": "10n11c2n", "MD": "20c", "ME": "18n", "MK": "3n10c2n", "MN": "16n", "MR": "23n",
    "MT": "4a5n18c", "MU": "4a19n3a", "NI": "4a20n", "NL": "4a10n", "NO": "11n", "OM": "3n16c", "PK": "4a16c",
    "PL": "24n", "PS": "4a21c", "PT": "21n", "QA": "4a21c", "RO": "4a16c", "RS": "18n", "RU": "14n15c",
    "SA": "2n18c", "SC": "4a20n3a", "SD": "14n", "SE": "20n", "SI": "15n", "SK": "20n", "SM": "1a10n12c",
    "SO": "19n", "ST": "21n", "SV": "4a20n", "TL": "19n", "TN": "20n", "TR": "6n16c", "UA": "6n19c",
    "VA": "18n", "VG": "4a16n", "XK": "16n", "YE": "4a4n18c",
}  # fmt: skip
# VAT numbers begin like an IBAN: this many digits follow the first two. They must not be blocked.
_VAT_DIGITS = {"BE": 8, "CZ": 8, "FR": 9, "HR": 9, "LT": 10, "PL": 8, "SE": 10, "SK": 8}
_CLASS = {"n": "[0-9]", "a": "[A-Z]", "c": "[A-Z0-9]"}
_SPACE = r"[ \u00a0\u202f]"
_SEPARATOR = r"[ \u00a0\u202f-]?"
# Groups of a UUID (8-4-4-4-12) that have the shape of a number of Belgium, Bosnia, Estonia (the first ones, in groups
# in which nobody writes these), Belgium (the last two) or Andorra (the last four; its banks begin with a 0, which a
# UUID's third group does not). Told by no more than is there where the stop point is.
_NOT_IN_UUID = (
    r"(?![Bb][Ee][0-9]{6}-[0-9]{4}-[1-8])(?!(?:[Bb][Aa]|[Ee][Ee])[0-9]{6}-[0-9]{4})"
    r"(?!(?<=[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[1-8][0-9A-Fa-f]{3}-)[Bb][Ee][0-9]{2}-[0-9]{9})"
    r"(?!(?<=(?<![0-9A-Za-z])[0-9A-Fa-f]{8}-)[Aa][Dd][0-9]{2}-[1-8][0-9]{3}-[89][0-9]{3})"
)
# No letter or digit may touch it.
_BEFORE = rf"(?<![A-Za-z0-9]){_NOT_IN_UUID}"


def _parts(structure: str) -> list[tuple[int, str]]:
    return [(int(count), _CLASS[kind]) for count, kind in re.findall(r"([0-9]+)([nac])", structure)]


def _first(country: str, limit: int) -> str:
    """Up to `limit` characters of the country's account part."""
    text = ""
    for count, characters in _parts(_BBAN[country]):
        taken = min(count, limit)
        limit -= taken
        if taken:
            text += rf"(?:{_SEPARATOR}{characters}){{{taken}}}"
    return text


def _late(country: str) -> str:
    """The account part as far as VAT numbers do not look the same."""
    return _first(country, _VAT_DIGITS.get(country, 7) + 1)


def _early(country: str) -> str:
    """In groups of four, as they are mostly written, no more than the beginning of the second group."""
    return f"(?:(?={_SPACE}){_first(country, 5)}|{_late(country)})"


def _any(account: Callable[[str], str]) -> str:
    """One alternative for all countries that share a structure, so that the pattern stays short."""
    shared: dict[str, list[str]] = {}
    for country in _BBAN:
        shared.setdefault(account(country), []).append(country)
    return "|".join(f"(?:{'|'.join(countries)})[0-9]{{2}}{rest}" for rest, countries in shared.items())


IBAN = rf"{_BEFORE}(?i:{_any(lambda country: _first(country, 99))})(?![A-Za-z0-9])"
IBAN_STOP = rf"{_BEFORE}(?i:{_any(_late)})"
IBAN_EARLY = rf"{_BEFORE}(?i:{_any(_early)})"
