"""The "List of Dirty, Naughty, Obscene, and Otherwise Bad Words" in its 28 languages.

The lists are shipped as published (see `data/ldnoobw/PROVENANCE.json`), under CC BY 4.0. What is done to them
when they are read: white space at the ends of an entry is removed, and exact duplicates are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from nco_guard.errors import PresetError
from nco_guard.policy._errors import named
from nco_guard.policy.rules import StringRule

__all__ = ["DESCRIPTION", "LANGUAGES", "rules", "words"]

DESCRIPTION = (
    "Obscene and offensive words (the LDNOOBW lists, CC BY 4.0) in 28 languages, one rule per language. "
    "Whole words in any case, except in languages written without spaces (ja, th, zh) or with endings "
    "attached (ko): substrings there. English alone is the default, since a word of one list is often a "
    "harmless word of another language: 'am' is on the Turkish list, 'fan' on the Swedish one. With "
    "substring: true every list is used as the paper uses it, as raw substrings in exact case, which also "
    "blocks class, analysis, document and Scunthorpe."
)

LANGUAGES: dict[str, str] = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fil": "Filipino",
    "fr": "French",
    "fr-CA-u-sd-caqc": "French (Quebec)",
    "hi": "Hindi",
    "hu": "Hungarian",
    "it": "Italian",
    "ja": "Japanese",
    "kab": "Kabyle",
    "ko": "Korean",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tlh": "Klingon",
    "tr": "Turkish",
    "zh": "Chinese",
}
DEFAULT_LANGUAGES = ("en",)
# A border between words is no border of \w here: no spaces, or particles joined to the word.
_SUBSTRING_LANGUAGES = frozenset({"ja", "ko", "th", "zh"})


@cache
def words(language: str) -> tuple[str, ...]:
    """The entries of one language in the list's order, stripped, without duplicates; read once."""
    text = (files(__package__) / "data" / "ldnoobw" / f"{language}.json").read_text(encoding="utf-8")
    entries: list[str] = json.loads(text)
    return tuple(dict.fromkeys(entry for entry in map(str.strip, entries) if entry))


def _languages(value: Any) -> tuple[str, ...]:
    if value == "all":
        return tuple(LANGUAGES)
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise PresetError(
            "a list of language codes is needed, such as [en, de], or the word all", field="languages"
        )
    for code in value:
        if not isinstance(code, str) or code not in LANGUAGES:
            raise PresetError(
                f"there is no language {named(code, LANGUAGES)}; there are: {', '.join(LANGUAGES)}",
                field="languages",
            )
    return tuple(dict.fromkeys(value))


def rules(languages: Any = DEFAULT_LANGUAGES, substring: Any = False) -> tuple[StringRule, ...]:
    """One rule per language, `ldnoobw.<code>`; Latin entries of `ja` form another, `ldnoobw.ja.latin`.

    Raises `PresetError` for a language without a list.
    """
    if not isinstance(substring, bool):
        raise PresetError("true or false is needed", field="substring")
    made: list[StringRule] = []
    for code in _languages(languages):
        name, entries = LANGUAGES[code], words(code)
        if substring:
            made.append(
                StringRule(
                    id=f"ldnoobw.{code}",
                    strings=entries,
                    description=f"LDNOOBW, {name}: raw substrings, exact case.",
                )
            )
            continue
        apart = code in _SUBSTRING_LANGUAGES
        # As a substring, "sm" would block "small".
        latin = tuple(entry for entry in entries if apart and entry.isascii() and entry.isalnum())
        made.append(
            StringRule(
                id=f"ldnoobw.{code}",
                strings=tuple(entry for entry in entries if entry not in latin),
                case="fold",
                whole_word=not apart,
                description=f"LDNOOBW, {name}: {'substrings' if apart else 'whole words'}, any case.",
            )
        )
        if latin:
            made.append(
                StringRule(
                    id=f"ldnoobw.{code}.latin",
                    strings=latin,
                    case="fold",
                    whole_word=True,
                    description=f"LDNOOBW, {name}: entries in Latin letters, whole words, any case.",
                )
            )
    return tuple(made)
