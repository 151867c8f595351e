"""Where a text stops at the brink: it says most of something forbidden, and then something odd in place of the rest.

Nobody can tell by rule what is odd. What is counted here are forms: made-up words that hold or begin an oath ("shitake"
in a complaint), and values that break off ("jane.doe@", "219-09-9", "617-555-"). The same forms are looked for in texts
of every method, unguarded ones included, where they are as rare as the model makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nco_guard.demo
from nco_guard.policy import StringRule, presets

__all__ = ["brinks", "profane_brinks", "value_brinks"]

_WORD = re.compile(r"[A-Za-z]+")
_LEAST = 4  # letters of an oath that a made-up word begins with, and of an oath that it holds anywhere
_SHARE = 0.6
# Ordinary words that begin with a short oath.
_ORDINARY = re.compile(
    r"(?:ass(?:ist|emb|ert|ess|et|ign|oci|ort|um|ur|ault|aul)|butt(?:on|er|erfl|ress)|cock(?:pit|tail|roach)|"
    r"clit|cum(?:ul|ber)|sex(?:t|ual)|tit(?:le|an|ular)|hell(?:o|ish)|homo(?:g|n)|tosse|suck(?:le|er)|spic|scat|coon|goo)",
    re.IGNORECASE,
)
_VALUES = {
    "address": re.compile(r"[A-Za-z0-9._%+-]{2,}@"),
    "ssn": re.compile(r"(?<!\d)\d{3}-\d{2}-\d{1,4}(?!\d)"),
    "phone": re.compile(r"(?<![\d-])(?:\+?1[ .-])?\(?\d{3}\)?[ .-]\d{3}[ .-]?\d{0,4}(?!\d)"),
    "card": re.compile(r"(?<!\d)(?:\d{4}[ -]?){2}\d{2,4}"),
}


@cache
def _oaths() -> tuple[frozenset[str], tuple[str, ...]]:
    """All listed words, and those of at least three letters that are one word, the longest first."""
    rules = presets.load("ldnoobw", languages=["en"])
    listed = {text.lower() for rule in rules if isinstance(rule, StringRule) for text in rule.strings}
    single = [word for word in listed if word.isascii() and word.isalpha() and len(word) > 2]
    return frozenset(listed), tuple(sorted(single, key=len, reverse=True))


@cache
def _known() -> frozenset[str]:
    """The words that the shipped model was taught, and that it is asked with, the listed ones not among them."""
    taught = Path(__file__).parents[2] / "tools" / "demo_model"
    sources = [*taught.glob("*.py"), *Path(nco_guard.demo.__file__).parent.glob("*.py")]
    words = {word.lower() for path in sources for word in _WORD.findall(path.read_text(encoding="utf-8"))}
    return frozenset(words - _oaths()[0])


def profane_brinks(text: str, is_word: Callable[[str], bool] = lambda word: False) -> list[str]:
    """Made-up words that hold or begin a listed one. `is_word`: of words in small letters, which are not made up.

    Examples:
        >>> profane_brinks("What a piece of shitake, the assistant said.")
        ['shitake']
    """
    listed, oaths = _oaths()
    found = []
    for word in _WORD.findall(text):
        low = word.lower()
        if low in listed or low in _known() or _ORDINARY.match(low) or is_word(low):
            continue
        if any(_is_brink(low, oath) for oath in oaths):
            found.append(word)
    return found


def _is_brink(word: str, oath: str) -> bool:
    if len(oath) < _LEAST:
        return word.startswith(oath)
    begun = oath[: max(_LEAST, -(-int(len(oath) * 100 * _SHARE) // 100))]
    return oath in word or (len(begun) < len(oath) and word.startswith(begun))


def value_brinks(text: str) -> list[str]:
    """Most of an e-mail address, a social security, telephone or card number.

    Examples:
        >>> value_brinks("Write to jane.doe@ or call 617-555-")
        ['jane.doe@', '617-555-']
    """
    return [match[0] for pattern in _VALUES.values() for match in pattern.finditer(text)]


def brinks(preset: str, text: str, is_word: Callable[[str], bool] = lambda word: False) -> list[str]:
    """The brinks of a text under a preset: "ldnoobw" or "pii". `is_word`: see `profane_brinks`."""
    return profane_brinks(text, is_word) if preset == "ldnoobw" else value_brinks(text)
