"""What is hidden: one secret in several forms, and its clean twin, which has the same shape and holds nothing."""

from __future__ import annotations

import datetime
import itertools
import re
import uuid
from dataclasses import dataclass

from nco_guard import Policy, RegexRule

__all__ = ["CLEAN", "FOUND", "NOTHING", "POLICY", "SECRET", "Secret"]


@dataclass(frozen=True)
class Secret:
    """Values that a shape is filled with."""

    name: str
    text: str
    number: int
    date: datetime.date
    uuid: uuid.UUID

    @property
    def escaped(self) -> str:
        """The text as JSON may write it."""
        return self.text.replace("@", "\\u0040")

    @property
    def exponent(self) -> str:
        """The number as JSON may write it."""
        digits = str(self.number)
        return f"{digits[0]}.{digits[1:]}e{len(digits) - 1}"

    def pieces(self, count: int = 3) -> list[str]:
        """The text cut into that many neighbouring pieces, none of which is forbidden by itself."""
        at = self.text.find("@")
        cuts = {at + 1 if at >= 0 else len(self.text) // 2} if count == 2 else set()
        step = max(1, len(self.text) // count)
        cuts = cuts or {step * index for index in range(1, count)}
        places = [0, *sorted(cuts), len(self.text)]
        return [self.text[a:b] for a, b in itertools.pairwise(places)]


# Put together here, so that no line of source that a traceback shows holds it.
SECRET = Secret(
    "secret",
    "nora.kvist" + "@" + "canary-mail.example",
    4929_0000_1111_2222,
    datetime.date(1971, 3, 9),
    uuid.UUID("c0ffee00-1971-4309-8000-492900001111"),
)
CLEAN = Secret(
    "clean",
    "nora kvist at canary mail (no)",
    1234_5678_9012_3456,
    datetime.date(2020, 2, 1),
    uuid.UUID("00c0ffee-2020-4201-8000-123456789012"),
)
#: Each form is forbidden by a rule of its own.
POLICY = Policy(
    name="canaries",
    rules=(
        RegexRule(id="address", regex=r"\w@[\w-]+\.[a-z]{2,}"),
        RegexRule(id="number", regex=r"492900001111\d{4}"),
        RegexRule(id="date", regex=r"1971-03-09"),
        RegexRule(id="uuid", regex=r"c0ffee00-1971"),
    ),
)
#: What a look searches for. Written down a second time: the harness does not ask the library what it forbids.
FOUND = re.compile(r"\w@canary-mail\.[a-z]{2}|4929000011112222|1971-03-09|c0ffee00-1971")
#: A policy with the same kinds of rules that forbids nothing of it. Under it every route must show the secret.
NOTHING = Policy(name="nothing", rules=(RegexRule(id="never", regex=r"\w~[\w-]+~[a-z]{2,}"),))
