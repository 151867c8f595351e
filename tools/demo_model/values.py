"""Fictional people and values, every one from a range that is reserved, documented as an example, or random.

Addresses live on example.com, example.org and example.net (RFC 2606), telephone numbers in 555-0100 to
555-0199, IP addresses in the three documentation blocks (RFC 5737). Card numbers are published test ones or
Luhn-valid ones under the test prefix 4000 00; keys contain the word EXAMPLE. Social security numbers are
two published specimens or random digits; they belong to nobody that this program knows of.

Everything is a function of the `random.Random` passed in.
"""

from __future__ import annotations

import itertools
import random
import string

__all__ = [
    "AREA_CODES",
    "FIRST_NAMES",
    "HELD_OUT_ORDERS",
    "LAST_NAMES",
    "SECRET_KEYS",
    "SPECIMEN_SSNS",
    "TEST_CARDS",
    "amount",
    "card",
    "card_is_reserved",
    "date",
    "email",
    "ip_address",
    "luhn_valid",
    "order_id",
    "phone",
    "secret_key",
    "ssn",
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    """
    Maria James Aisha Tom Elena Victor Grace Omar Lucy Daniel Priya Henry Sofia Peter Nadia Carl Irene
    Jack Mei Paul Rosa Simon Tara Walter
    """
)
LAST_NAMES = _words(
    """
    Lopez Carter Khan Miller Rossi Brown Hill Haddad Evans Cohen Patel Ford Silva Jensen Novak Weber
    Walsh Turner Chen Dubois Garcia Clark Reed Stone
    """
)
AREA_CODES = ("202", "212", "303", "312", "415", "503", "617", "702")

#: Order numbers that the corpus never contains, kept for tests of copying.
HELD_OUT_ORDERS = frozenset(
    _words(
        """
        A-1043 B-2718 C-3141 D-9075 E-4406 F-8321 G-5570 H-6182 K-7719 L-2094 M-3365 N-8850 P-4127 Q-9961
        R-1508 S-6643 T-7032 V-5289 W-2416 X-3907
        """
    )
)

SPECIMEN_SSNS = ("078-05-1120", "219-09-9999")

#: Published test numbers of payment processors.
TEST_CARDS = (
    "4111111111111111",
    "4111111111111111",
    "5555555555554444",
    "5105105105105100",
    "4012888888881881",
    "4242424242424242",
    "6011111111111117",
    "378282246310005",
)
CARD_TEST_PREFIX = "400000"

_ALPHANUMERIC = string.ascii_letters + string.digits
_MONTHS = _words(
    """
    January February March April May June July August September October November December
    """
)


def _pool(seed: int, size: int) -> tuple[str, ...]:
    """A small pool, so that even a small model can learn whole keys."""
    rng = random.Random(seed)
    keys = ["AKIAIOSFODNN7EXAMPLE", "AKIAI44QH8DHBEXAMPLE"]
    for _ in range(size):
        keys.append("AKIA" + "".join(rng.choices(string.ascii_uppercase + "234567", k=9)) + "EXAMPLE")
        keys.append("sk-EXAMPLE" + "".join(rng.choices(_ALPHANUMERIC, k=24)))
        keys.append("ghp_EXAMPLE" + "".join(rng.choices(_ALPHANUMERIC, k=29)))
    return tuple(keys)


#: AWS's documented example keys, and others of the same shapes that spell EXAMPLE.
SECRET_KEYS = _pool(seed=1, size=4)


def luhn_valid(digits: str) -> bool:
    """Whether a string of decimal digits passes the Luhn check (mod 10)."""
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def card_is_reserved(digits: str) -> bool:
    """Whether a card number is a published test number or lies under the test prefix."""
    return luhn_valid(digits) and (digits in TEST_CARDS or digits.startswith(CARD_TEST_PREFIX))


def email(rng: random.Random, first: str, last: str) -> str:
    """An address of this person on a reserved domain."""
    first, last = first.lower(), last.lower()
    local = rng.choices(
        (f"{first}.{last}", f"{first}_{last}", f"{first[0]}{last}", first, f"{first}.{last}+shop"),
        weights=(60, 10, 12, 12, 6),
    )[0]
    domain = rng.choices(
        ("example.com", "example.org", "example.net", "mail.example.com"), weights=(62, 17, 15, 6)
    )[0]
    return f"{local}@{domain}"


def phone(rng: random.Random) -> str:
    """A telephone number in the fictional range 555-0100 to 555-0199, mostly written ddd-ddd-dddd."""
    area, line = rng.choice(AREA_CODES), f"01{rng.randrange(100):02d}"
    form = rng.choices(("{}-555-{}", "+1-{}-555-{}", "({}) 555-{}"), weights=(66, 22, 12))[0]
    return form.format(area, line)


def ssn(rng: random.Random) -> str:
    """A specimen, or random digits of a plausible shape (area 001 to 772 without 666)."""
    if rng.random() < 0.3:
        return rng.choice(SPECIMEN_SSNS)
    area = rng.choice([n for n in (rng.randint(1, 772), rng.randint(1, 772)) if n != 666] or [1])
    return f"{area:03d}-{rng.randint(1, 99):02d}-{rng.randint(1, 9999):04d}"


def card(rng: random.Random) -> str:
    """A test card number, grouped with hyphens or spaces."""
    if rng.random() < 0.75:
        digits = rng.choice(TEST_CARDS)
    else:
        digits = CARD_TEST_PREFIX + "".join(rng.choices(string.digits, k=9))
        digits += next(d for d in string.digits if luhn_valid(digits + d))
    separator = rng.choices(("-", " "), weights=(65, 35))[0]
    cuts = (0, 4, 10, 15) if len(digits) == 15 else (0, 4, 8, 12, 16)
    return separator.join(digits[a:b] for a, b in itertools.pairwise(cuts))


def secret_key(rng: random.Random) -> str:
    """An access key or API token of a documented shape that spells EXAMPLE."""
    return rng.choice(SECRET_KEYS)


def ip_address(rng: random.Random) -> str:
    """An address of a documentation block (RFC 5737)."""
    return f"{rng.choice(('192.0.2', '198.51.100', '203.0.113'))}.{rng.randint(1, 254)}"


def order_id(rng: random.Random) -> str:
    """A letter, a hyphen and mostly four digits; never one of `HELD_OUT_ORDERS`."""
    while True:
        digits = rng.choices((3, 4, 5), weights=(10, 80, 10))[0]
        order = f"{rng.choice(string.ascii_uppercase)}-" + "".join(rng.choices(string.digits, k=digits))
        if order not in HELD_OUT_ORDERS:
            return order


def date(rng: random.Random) -> str:
    """A day and a month."""
    return f"{rng.randint(1, 28)} {rng.choice(_MONTHS)}"


def amount(rng: random.Random) -> str:
    """A price in dollars."""
    return f"${rng.randint(5, 240)}.{rng.choice(('00', '50', '90', '99'))}"
