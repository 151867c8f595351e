"""The formats of JSON Schema as expressions of whole texts, by the documents that define them.

What their documents let be in rare forms alone (quoted local parts of addresses, literals of future versions of IP) is
left out: a text of these is of its format, and nearly each text of a format is one of these.
"""

from __future__ import annotations

__all__ = ["FORMAT_TEXTS"]

_FOURTHS = "0[48]|[2468][048]|[13579][26]"
# Python has no year 0.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DAYS = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_YEAR = f"(?:[0-9]{{2}}(?:{_FOURTHS})|(?:{_FOURTHS})00)"
_DATE = f"(?:{_YEAR}-{_DAYS}|{_LEAP_YEAR}-02-29)"
_HOURS = "(?:[01][0-9]|2[0-3])"
_TIME = rf"{_HOURS}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-]{_HOURS}:[0-5][0-9])"
_CLOCK = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DATES = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H = "[0-9A-Fa-f]{1,4}"
_LAST = f"(?:{_H}:{_H}|{_IPV4})"
_IPV6 = "|".join(
    [
        f"(?:{_H}:){{6}}{_LAST}",
        f"::(?:{_H}:){{5}}{_LAST}",
        f"(?:{_H})?::(?:{_H}:){{4}}{_LAST}",
        f"(?:(?:{_H}:){{0,1}}{_H})?::(?:{_H}:){{3}}{_LAST}",
        f"(?:(?:{_H}:){{0,2}}{_H})?::(?:{_H}:){{2}}{_LAST}",
        f"(?:(?:{_H}:){{0,3}}{_H})?::{_H}:{_LAST}",
        f"(?:(?:{_H}:){{0,4}}{_H})?::{_LAST}",
        f"(?:(?:{_H}:){{0,5}}{_H})?::{_H}",
        f"(?:(?:{_H}:){{0,6}}{_H})?::",
    ]
)
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_UNRESERVED = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_USER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})"
_NAME = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_PATH = f"(?:{_UNRESERVED}|/)*"
_ASKED = rf"(?:\?(?:{_UNRESERVED}|[/?])*)?(?:#(?:{_UNRESERVED}|[/?])*)?"

#: Expressions that all hold of a text of a format, by its name.
FORMAT_TEXTS: dict[str, tuple[str, ...]] = {
    "date": (_DATE,),
    "time": (_TIME,),
    "date-time": (f"{_DATE}[Tt]{_TIME}",),
    "duration": (f"P(?:[0-9]+W|{_DATES}(?:{_CLOCK})?|{_CLOCK})",),
    "email": (rf"{_ATEXT}+(?:\.{_ATEXT}+)*@{_HOST}", "[^@]{1,64}@.{1,189}"),
    "hostname": (_HOST, ".{1,253}"),
    "ipv4": (_IPV4,),
    "ipv6": (_IPV6,),
    "uuid": ("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",),
    "uri": (
        rf"[A-Za-z][A-Za-z0-9+.-]*:(?://(?:{_USER}*@)?{_NAME}*(?::[0-9]*)?(?:/{_PATH})?|/?(?:{_UNRESERVED}{_PATH})?)"
        + _ASKED,
    ),
}
