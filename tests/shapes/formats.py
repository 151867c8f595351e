"""The formats of JSON Schema, slowly and strictly, by the documents that define them: all that Python has not."""

from __future__ import annotations

import datetime
import ipaddress
import re

from jsonschema import FormatChecker

FORMATS = FormatChecker(formats=())
"""Every format that is drawn; strict where Python's own readers are lenient."""

_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))"
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = rf'(?:{_ATEXT}(?:\.{_ATEXT})*|"(?:[ !#-\[\]-~]|\\[ -~])*")'
_UNRESERVED = r"[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}"
_PATH = rf"(?:{_UNRESERVED}|/)*"


def _whole(pattern: str, text: str) -> re.Match[str] | None:
    return re.fullmatch(pattern, text, re.ASCII)


def _said(name: str, text: object) -> bool:
    return not isinstance(text, str) or bool(_CHECKS[name](text))


def is_date(text: str) -> bool:
    """RFC 3339, full-date."""
    if not (found := _whole(_DATE, text)):
        return False
    year, month, day = map(int, found.groups())
    try:
        # Python has no year 0; it is a leap year.
        datetime.date(year or 2000, month, day)
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """RFC 3339, full-time; a leap second is one at 23:59 in UTC."""
    found = _whole(_TIME, text)
    if not found:
        return False
    hour, minute, second, sign, off_hour, off_minute = found.groups()
    if second != "60":
        return True
    offset = (int(off_hour) * 60 + int(off_minute)) * (-1 if sign == "+" else 1) if sign else 0
    return (int(hour) * 60 + int(minute) + offset) % (24 * 60) == 24 * 60 - 1


def is_date_time(text: str) -> bool:
    """RFC 3339, date-time."""
    return len(text) > 10 and text[10] in "Tt" and is_date(text[:10]) and is_time(text[11:])


def is_duration(text: str) -> bool:
    """RFC 3339, appendix A: units follow one another without a gap."""
    time = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
    date = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
    return bool(_whole(rf"P(?:\d+W|{date}(?:{time})?|{time})", text))


def is_hostname(text: str) -> bool:
    """RFC 1123."""
    return len(text) <= 253 and bool(_whole(_HOSTNAME, text))


def is_ipv4(text: str) -> bool:
    """RFC 2673, 3.2."""
    octets = text.split(".")
    return len(octets) == 4 and all(
        _whole(r"\d|[1-9]\d{1,2}", octet) and int(octet) < 256 for octet in octets
    )


def is_ipv6(text: str) -> bool:
    """RFC 4291, 2.2; no zone."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text and text.isascii()


def is_email(text: str) -> bool:
    """RFC 5321, 4.1.2."""
    local, _, domain = text.rpartition("@")
    if not _whole(_LOCAL, local):
        return False
    if domain.startswith("[") and domain.endswith("]"):
        inside = domain[1:-1]
        return is_ipv6(inside[5:]) if inside[:5].lower() == "ipv6:" else is_ipv4(inside)
    return is_hostname(domain)


def is_uuid(text: str) -> bool:
    """RFC 4122."""
    return bool(_whole(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text))


def is_uri(text: str) -> bool:
    """RFC 3986, with a scheme."""
    userinfo = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*"
    name = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
    found = _whole(
        rf"[A-Za-z][A-Za-z0-9+.-]*:(?://(?:{userinfo}@)?(?:\[([^\]]*)\]|{name})(?::\d*)?(?:/{_PATH})?|(?!//){_PATH})"
        rf"(?:\?(?:{_UNRESERVED}|[/?])*)?(?:#(?:{_UNRESERVED}|[/?])*)?",
        text,
    )
    if not found:
        return False
    inside = found[1]
    return (
        inside is None
        or is_ipv6(inside)
        or bool(_whole(r"[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+", inside))
    )


_CHECKS = {
    "date": is_date,
    "time": is_time,
    "date-time": is_date_time,
    "duration": is_duration,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "uuid": is_uuid,
    "uri": is_uri,
}
for _name in _CHECKS:
    FORMATS.checks(_name)(lambda text, name=_name: _said(name, text))
