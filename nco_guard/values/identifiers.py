"""New ids for ids that match: the same for the same, everywhere in the process, so that calls find their results."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from nco_guard.errors import RedactionError

__all__ = ["new_identifier"]

_SECRET = secrets.token_bytes(32)
# Letters only, in groups: no number, no word, no address.
_LETTERS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")
_TRIES = 64


def new_identifier(text: str, rules_in: Callable[[str], tuple[str, ...]]) -> str:
    """An id in the place of `text` that `rules_in` finds nothing in; it tells nothing about the old one.

    It depends on the old id and on a secret of this process alone, and on the policy only where the first choice
    matches too. Errors: `RedactionError` where the policy leaves no id.
    """
    for number in range(_TRIES):
        code = hmac.new(_SECRET, f"{number}:{text}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        letters = code.hexdigest()[:24].translate(_LETTERS)
        new = f"id-{letters}" if number % 2 == 0 else letters
        if not (left := rules_in(new)):
            return new
    raise RedactionError(left)
