"""Personal data that has a shape of its own.

Digits and Latin letters are ASCII; dashes and spaces are those that text really has (non-breaking, narrow,
en dash, ...). Every pattern has a `stop_at`, set as early as it can be without blocking ordinary text: dates,
times, versions, prices, ISBNs, VAT, CAS and order numbers.
"""

from __future__ import annotations

from nco_guard.policy.presets.iban import IBAN, IBAN_STOP
from nco_guard.policy.presets.table import Examples, Pattern

__all__ = ["DESCRIPTION", "PATTERNS"]

DESCRIPTION = (
    "E-mail addresses, phone numbers, US and UK tax and insurance numbers, payment cards, bank accounts, "
    "network addresses and wallet addresses. Names, postal addresses and dates of birth have no shape and "
    "are not covered."
)

# Inside a character class. U+2212 is the minus sign.
_DASHES = r"\u2010-\u2015\u2212-"
_SPACES = r" \u00a0\u2007\u2009\u202f"
_DASH = f"[{_DASHES}]"
_SPACE = f"[{_SPACES}]"
_DASH_OR_SPACE = f"[{_SPACES}{_DASHES}]"
_NO_DIGIT_BEFORE = r"(?<![0-9])"
_NO_DIGIT_AFTER = r"(?![0-9])"
_ALONE_BEFORE = r"(?<![A-Za-z0-9])"
_ALONE_AFTER = r"(?![A-Za-z0-9])"

# E-mail. One character before the @ decides; a final dot before it occurs in old Japanese addresses.
_LOCAL_END = r"[\w%+-]\.?@"

# North American numbers: area and exchange begin with 2 to 9, are no N11, and no area has 9 in the middle.
_AREA = r"(?![2-9]11)[2-9][0-8][0-9]"
_EXCHANGE = r"(?![2-9]11)[2-9][0-9]{2}"
_PHONE_SEPARATOR = f"[{_SPACES}.{_DASHES}]"
_PHONE_SOFT = f"[{_SPACES}.]"

# Social security numbers, and what looks like them.
_SSN_AREA = r"(?!000|666|9)[0-9]{3}"
_SSN_GROUP = r"(?!00)[0-9]{2}"
_ITIN_GROUP = r"(?:5[0-9]|6[0-5]|7[0-9]|8[0-8]|9[0-24-9])"

# UK national insurance numbers: letters that are used, and pairs that are not.
_NINO = r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]"

# Payment cards by their first four digits.
_AMEX = "3[47][0-9]{2}"
_DINERS = "30[0-5][0-9]|36[0-9]{2}|3[89][0-9]{2}"
_ISSUERS = "|".join(
    (
        "4[0-9]{3}",  # Visa
        "5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720",  # Mastercard
        _AMEX,
        _DINERS,
        "6011|64[4-9][0-9]|65[0-9]{2}",  # Discover
        "352[89]|35[3-8][0-9]",  # JCB
        "62[0-9]{2}",  # UnionPay
        "5018|5020|5038|5893|6304|6759|676[1-3]",  # Maestro
        "220[0-4]",  # Mir
    )
)
# Not the digits that end the first group of a UUID (8-4-4-4-12), where the next groups are digits too. It is told by as
# much of it as is there when a card's thirteenth digit is: a guard that waited for more would need a way out.
_NOT_IN_UUID = "".join(
    f"(?!(?<=(?<![0-9A-Fa-f])[0-9A-Fa-f]{{{8 - left}}})[0-9]{{{left}}}-[0-9]{{4}}-{rest})"
    for left, rest in (
        (4, "[1-8][0-9A-Fa-f]{3}-[89ABab]"),
        (5, "[1-8][0-9]{3}"),
        (6, "[1-8][0-9]{2}"),
        (7, "[1-8][0-9]"),
        (8, "[1-8]"),
    )
)
# Neither digits after a decimal point, nor a group inside a UUID or an order number (112-3456789-1234567).
_CARD_BEFORE = rf"(?<![0-9])(?<![0-9]\.)(?<![0-9A-Fa-f]{{4}}-)(?<![0-9]{{3}}-){_NOT_IN_UUID}"

# Digits in the middle of a digest: at least four hexadecimal digits on either side, with a letter next to the number.
# The stop point does not know what follows, so a guard blocks these all the same.
_NOT_IN_DIGEST = "(?!(?<=[0-9A-Fa-f]{3}[A-Fa-f])[0-9]{13,19}[A-Fa-f][0-9A-Fa-f]{3})"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LONG_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9][0-9])"
# First octets that are nobody's address: 0, loopback, netmasks and reserved ones. Versions follow a v.
_IPV4_BEFORE = r"(?<![0-9.vV])(?<![Vv]ersion )(?!0\.|127\.|2[4-9][0-9]\.)"
# Four single digits are a version or a section, not a host.
_IPV4_LONG_FIRST = "|".join(
    r"\.".join(_LONG_OCTET if place == long else _OCTET for place in range(3)) for long in range(3)
)

_HEX = "[0-9A-Fa-f]"
_GROUP = f"{_HEX}{{1,4}}"
# Global unicast, unique local and link-local addresses; everything else is nobody's address.
_IPV6_FIRST = f"(?<![0-9A-Za-z:.])(?:[23]{_HEX}{{3}}|[Ff][CcDd]{_HEX}{{2}}|[Ff][Ee][89ABab]{_HEX})"
_IPV6_COMPRESSED = "|".join(
    f"(?::{_GROUP}){{{before}}}::{_GROUP}(?::{_GROUP}){{0,{5 - before}}}" for before in range(6)
)

_BASE58 = "[1-9A-HJ-NP-Za-km-z]"
# Both cases occur in it, unlike in hexadecimal digests.
_BASE58_MIXED = f"(?={_BASE58}*[A-Z])(?={_BASE58}*[a-z])"
_BECH32 = "[02-9ac-hj-np-z]"

PATTERNS = (
    Pattern(
        id="pii.email",
        regex=rf"[\w.%+'-]*{_LOCAL_END}(?:[\w-]+\.)+[^\W\d_]{{2,}}",
        stop_at=rf"{_LOCAL_END}[\w.-]*[^\W\d_]",
        description=(
            "E-mail addresses, also internationalised ones; no quoted local parts and no IP literals."
        ),
        reveals="the part before the @, the @, and leading digits of the domain",
        source="RFC 5321, RFC 6531",
        examples=Examples(
            match=(
                "jane.doe@example.com",
                "Write to <o'neil+news@mail.example.co.uk>.",
                "用户@例子.测试",
                "mail:jane_doe@163.example.cn,",
                "x@example.xn--p1ai",
                "jane.@docomo.example.jp",
            ),
            no_match=(
                "Follow @jane.doe for more.",
                "3 pens @ 2.50 each",
                "react@18.2.0",
                "https://social.example/@jane.doe",
                "import('@scope/package.js')",
                "jane.doe at example dot com",
                "an @property decorator; user@",
                "meet @5pm...@jane.doe",
            ),
            stop=("jane.doe@e", "jane@163.e"),
            gets_to="jane.doe@",
        ),
    ),
    Pattern(
        id="pii.phone_nanp",
        regex=(
            rf"{_NO_DIGIT_BEFORE}(?:\({_AREA}\){_SPACE}?|{_AREA}{_PHONE_SEPARATOR})"
            rf"{_EXCHANGE}{_PHONE_SEPARATOR}[0-9]{{4}}{_NO_DIGIT_AFTER}"
        ),
        stop_at=(
            rf"{_NO_DIGIT_BEFORE}(?:\({_AREA}\){_SPACE}?{_EXCHANGE}{_PHONE_SEPARATOR}[0-9]"
            rf"|(?!97[89])(?<!97[89]-)(?:{_AREA}{_DASH}{_EXCHANGE}{_PHONE_SEPARATOR}|{_AREA}{_PHONE_SOFT}{_EXCHANGE}{_DASH})[0-9]"
            rf"|(?<=\+1{_PHONE_SEPARATOR}){_AREA}{_PHONE_SEPARATOR}{_EXCHANGE}{_PHONE_SEPARATOR}[0-9]"
            rf"|{_AREA}{_PHONE_SEPARATOR}{_EXCHANGE}{_PHONE_SEPARATOR}[0-9]{{4}})"
        ),
        description=(
            "Phone numbers of the USA, Canada and the Caribbean, written in groups. Ten digits without any "
            "separator are not taken for one."
        ),
        reveals=(
            "area code and exchange, the first six digits; nine where only dots or spaces separate the "
            "groups (IP addresses, colours and grouped numbers look the same until then) or the area code "
            "is 978 or 979 (ISBNs)"
        ),
        source="North American Numbering Plan",
        examples=Examples(
            match=(
                "202-555-0143",
                "Call (202) 555-0143.",
                "+1 202 555 0143",
                "1-202-555-0143",
                "202.555.0143",
                "(202)555-0143",
                "tel:202 555-0143;",
                "202\u2011555\u20110143",
                "978-555-0143",
            ),
            no_match=(
                "ISBN 978-0-306-40615-7",
                "978-607-455-035-1",
                "2024-01-15 10:30:45",
                "203.0.113.7 and 203.201.210.5",
                "rgb(255 255 255)",
                "a total of 234 567 890 items",
                "NVIDIA driver 535.261.03",
                "112-3456789-1234567",
                "call 911-555",
                "555-0143",
                "chapters 200-300",
                "$250.300",
            ),
            stop=("202-555-0", "(202) 555-0", "+1 202 555 0", "202 555-0"),
            gets_to="202-555-",
        ),
    ),
    Pattern(
        id="pii.phone_e164",
        regex=rf"(?<![0-9A-Za-z+])\+[1-9](?:[{_SPACES}.()/{_DASHES}]{{0,2}}[0-9]){{7,14}}{_NO_DIGIT_AFTER}",
        stop_at=rf"(?<![0-9A-Za-z+])\+[1-9](?:[{_SPACES}.()/{_DASHES}]{{0,2}}[0-9]){{7}}",
        description=(
            "International phone numbers: a plus sign, then 8 to 15 digits with up to two separators between."
        ),
        reveals="the first seven digits, country code included",
        source="ITU-T E.164",
        examples=Examples(
            match=(
                "+12025550143",
                "+44 (0)20 7946 0018",
                "电话+8613800138000",
                "tel:+33-1-99-00-12-34",
                "+49 (0)30/23125 000",
            ),
            no_match=(
                "+1 000 000",
                "up +12,500,000 this year",
                "2024-01-15T10:00:00+01:00",
                "UTC+0530",
                "C++11 and x+12345678",
                "1+12345678=12345679",
                "+3.14159",
                "a gain of +250 points",
            ),
            stop=("+1202555014", "+44 20 7946 0"),
            gets_to="+1202555",
        ),
    ),
    Pattern(
        id="pii.ssn",
        regex=(
            rf"{_NO_DIGIT_BEFORE}{_SSN_AREA}(?:{_DASH}{_SSN_GROUP}{_DASH}|{_SPACE}{_SSN_GROUP}{_SPACE})"
            rf"(?!0000)[0-9]{{4}}{_NO_DIGIT_AFTER}"
        ),
        stop_at=(
            rf"{_NO_DIGIT_BEFORE}{_SSN_AREA}"
            rf"(?:{_DASH}{_SSN_GROUP}{_DASH}[0-9]{{2}}|{_SPACE}{_SSN_GROUP}{_SPACE}[0-9]{{3}})"
        ),
        description=(
            "US social security numbers in three groups, without the areas 000, 666 and 900 to 999, group "
            "00 and serial 0000, which are never issued. Nine digits in a row are not taken for one."
        ),
        reveals="the first six digits (seven where spaces separate the groups)",
        source="US Social Security Administration",
        examples=Examples(
            match=("078-05-1120", "SSN: 219-09-9999.", "SSN219 09 9999", "123\u201345\u20136789"),
            no_match=(
                "000-12-3456",
                "666-12-3456",
                "900-12-3456",
                "123-00-4567",
                "2024-01-15",
                "ethylene glycol, CAS 107-21-1",
                "100 20 30 40",
                "202-555-0143",
                "978-3-16-148410-0",
                "078051120",
                "1078-05-1120",
                "lots 120 45 60 and 75",
            ),
            stop=("078-05-11", "078 05 112"),
            gets_to="078-05-1",
        ),
    ),
    Pattern(
        id="pii.itin",
        regex=(
            rf"{_NO_DIGIT_BEFORE}9[0-9]{{2}}(?:{_DASH}{_ITIN_GROUP}{_DASH}|{_SPACE}{_ITIN_GROUP}{_SPACE})"
            rf"[0-9]{{4}}{_NO_DIGIT_AFTER}"
        ),
        stop_at=(
            rf"{_NO_DIGIT_BEFORE}9[0-9]{{2}}"
            rf"(?:{_DASH}{_ITIN_GROUP}{_DASH}[0-9]{{2}}|{_SPACE}{_ITIN_GROUP}{_SPACE}[0-9]{{3}})"
        ),
        description="US individual taxpayer identification numbers in three groups, with the groups in use.",
        reveals="the first six digits (seven where spaces separate the groups)",
        source="US Internal Revenue Service",
        examples=Examples(
            match=("900-70-0000", "ITIN 912 50 1234."),
            no_match=(
                "900-12-3456",
                "912-93-1234",
                "ISBN 957-13-2345-6",
                "900700000",
                "1900-70-0000",
                "950-75-8",
            ),
            stop=("900-70-00", "912 50 123"),
            gets_to="900-70-0",
        ),
    ),
    Pattern(
        id="pii.uk_nino",
        regex=(
            rf"{_ALONE_BEFORE}(?i:{_NINO}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[A-D])"
            rf"{_ALONE_AFTER}"
        ),
        stop_at=(
            rf"{_ALONE_BEFORE}(?:(?i:{_NINO}{_SPACE}[0-9]{{2}}{_SPACE}[0-9]{{2}}{_SPACE}[0-9])"
            rf"|(?i:{_NINO}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[A-D]){_ALONE_AFTER})"
        ),
        description="UK national insurance numbers: two letters, six digits, and a letter from A to D.",
        reveals=(
            "the letters and four digits where spaces separate all groups; else all but the last letter, "
            "since two letters and six digits may be any reference number"
        ),
        source="HM Revenue and Customs",
        examples=Examples(
            match=("AB 12 34 56 C", "NI number: JG103759A", "ab123456c."),
            no_match=(
                "QQ 12 34 56 C",
                "GB123456A",
                "order AB123456",
                "AB123456E",
                "XAB123456C",
                "AB123456CD",
            ),
            stop=("AB 12 34 5",),
            gets_to="AB 12 34 ",
        ),
    ),
    Pattern(
        id="pii.payment_card",
        regex=rf"{_CARD_BEFORE}{_NOT_IN_DIGEST}(?:{_ISSUERS})(?:{_DASH_OR_SPACE}?[0-9]){{9,15}}{_NO_DIGIT_AFTER}",
        stop_at=(
            rf"{_CARD_BEFORE}(?:(?:{_ISSUERS}){_DASH_OR_SPACE}[0-9]{{4}}{_DASH_OR_SPACE}[0-9]"
            rf"|(?:{_AMEX}|{_DINERS}){_DASH_OR_SPACE}[0-9]{{6}}{_DASH_OR_SPACE}[0-9]"
            rf"|(?:{_ISSUERS})(?:{_DASH_OR_SPACE}?[0-9]){{9}})"
        ),
        description=(
            "Numbers of 13 to 19 digits that begin as Visa, Mastercard, American Express, Diners, Discover, "
            "JCB, UnionPay, Maestro or Mir cards do, with single spaces or hyphens anywhere after the "
            "fourth, but not in the groups that UUIDs have (8-4-4), nor in the middle of a digest, with four "
            "hexadecimal digits or more on either side (a guard blocks these all the same)."
        ),
        checksum="luhn",
        reveals="the first eight digits in groups of four, ten in groups of 4-6-5, else twelve",
        source="ISO/IEC 7812 and the card schemes' published ranges",
        examples=Examples(
            match=(
                "4111 1111 1111 1111",
                "Card: 5555-5555-5555-4444.",
                "378282246310005",
                "3782 822463 10005",
                "card-6011111111111117",
                "30569309025904",
                "3530111333300000",
                "2223003122003222",
                "6205500000000000004",
                "4222222222222",
                "4111\u20111111\u20111111\u20111111",
                "4674-3741-9466-4476",
                "46743741 9466 4476",
                "4674-9466-4472-8124-5241f323ca74",
                "x4111111111111111",
                "dead4111111111111111",
                "4111111111111111beef",
                "dead4111111111111111 beef",
                "deed4111111111111111next",
            ),
            no_match=(
                "ISBN 9780306406157 and 978-0-306-40615-7",
                "0.4111111111111111",
                "1700000000000",
                "order 412345678901",
                "order 112-3456789-1234567",
                "2024-01-15 10:30:45",
                "550e8400-e29b-4123-8123-446655440000",
                "46743741-9466-4472-ab5f-5241f323ca74",
                "abc46743-9466-4472-8123-5241f323ca74",
                "abcd4674-9466-4472-8123-5241f323ca74",
                "1234 5678 9012 3456",
                "12 345 678 901 234.56",
                "years 4000 and 5000",
                "4000-5000 units",
            ),
            stop=("4111 1111 1", "4111-1111-1", "3782 822463 1", "4111111111111"),
            gets_to="4111 1111 ",
        ),
    ),
    Pattern(
        id="pii.iban",
        regex=IBAN,
        stop_at=IBAN_STOP,
        description=(
            "International bank account numbers of the countries that have them, each with its own "
            "structure, in either case, with single spaces or hyphens anywhere."
        ),
        checksum="mod97",
        reveals=(
            "country, check digits and the first seven characters of the account part (mostly the bank); "
            "eight to ten in BE, CZ, FR, HR, LT, PL, SE and SK, whose VAT numbers begin alike"
        ),
        source="ISO 13616, SWIFT IBAN registry",
        examples=Examples(
            match=(
                "DE89 3704 0044 0532 0130 00",
                "IBAN: GB82WEST12345698765432.",
                "fr76 3000 6000 0112 3456 7890 189",
                "NO93 8601 1117 947",
                "MT84MALT011000012345MTLCAST001S",
                "BE68-5390-0754-7034",
                "IT60X0542811101000000123456",
            ),
            no_match=(
                "VAT DE123456789, FR12345678901, BE0123456789, SE123456789001, LT123456789012",
                "in DE20 they said that IT27 was late",
                "GB22 were 3 of 12",
                "AT61 1904 30",
                "flight LH1234567890",
                "ABCDE89370400440532013000",
                "no 20 1234",
            ),
            stop=("DE89 3704 0044", "GB82WEST1234"),
            gets_to="DE89 3704 004",
        ),
    ),
    Pattern(
        id="pii.ipv4",
        regex=(
            rf"{_IPV4_BEFORE}(?:(?:{_IPV4_LONG_FIRST})\.{_OCTET}|[0-9]\.[0-9]\.[0-9]\.{_LONG_OCTET})(?![0-9]|\.[0-9])"
        ),
        stop_at=rf"{_IPV4_BEFORE}(?:(?:{_IPV4_LONG_FIRST})\.[0-9]|[0-9]\.[0-9]\.[0-9]\.[1-9][0-9])",
        description=(
            "IPv4 addresses except loopback, netmasks and reserved ones. Four single digits, and numbers "
            "after a v or 'version', are taken for versions; other versions of four small parts look like "
            "addresses and are blocked."
        ),
        reveals="the first three numbers (the network)",
        source="RFC 791, RFC 1122",
        examples=Examples(
            match=(
                "192.0.2.44",
                "from 198.51.100.7:8080.",
                "地址203.0.113.5",
                "http://10.0.0.1/",
                "1.2.3.45",
            ),
            no_match=(
                "127.0.0.1",
                "0.0.0.0",
                "mask 255.255.255.0",
                "section 1.2.3.4",
                "v10.11.12.13",
                "version 10.2.0.1",
                "Chrome/120.0.6099.109",
                "15.01.2024",
                "192.0.2",
                "3.14159",
                "1.2.3.4.5",
                "256.100.100.100",
            ),
            stop=("192.0.2.4", "1.2.3.45"),
            gets_to="192.0.2.",
        ),
    ),
    Pattern(
        id="pii.ipv6",
        regex=rf"{_IPV6_FIRST}(?:(?::{_GROUP}){{7}}|{_IPV6_COMPRESSED})(?![0-9A-Fa-f:])",
        stop_at=rf"{_IPV6_FIRST}(?:(?::{_GROUP}){{3}}:{_HEX}|(?::{_GROUP}){{0,6}}::{_HEX})",
        description=(
            "IPv6 addresses, full or compressed: global (2000::/3), unique local and link-local ones."
        ),
        reveals="the first four groups, or what stands before the '::'",
        source="RFC 4291",
        examples=Examples(
            match=(
                "2001:db8::8a2e:370:7334",
                "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
                "[fe80::1]",
                "2001:DB8:0:0:8:800:200C:417A.",
                "fd00:1:2:3:4:5::6",
            ),
            no_match=(
                "::1",
                "std::vector and a::b",
                "feed::me",
                "2001:db8::/32",
                "10:30:45",
                "2024:10:30:45 in the log",
                "a[::2]",
                "12:34:56:78:90:ab",
                "20010:db8::1",
            ),
            stop=("2001:db8::8", "2001:0db8:85a3:0000:1"),
            gets_to="2001:db8::",
        ),
    ),
    Pattern(
        id="pii.mac",
        regex=(
            rf"(?<![0-9A-Za-z:-])(?:{_HEX}{{2}}(?::{_HEX}{{2}}){{5}}|{_HEX}{{2}}(?:-{_HEX}{{2}}){{5}})"
            rf"(?![0-9A-Za-z]|[:-]{_HEX})"
        ),
        stop_at=(
            rf"(?<![0-9A-Za-z:-])(?:{_HEX}{{2}}(?::{_HEX}{{2}}){{3}}:{_HEX}|{_HEX}{{2}}(?:-{_HEX}{{2}}){{4}}-{_HEX})"
        ),
        description="Hardware addresses (MAC, EUI-48): six pairs with colons or hyphens.",
        reveals="the first four pairs with colons, five with hyphens (French phone numbers have five pairs)",
        source="IEEE 802",
        examples=Examples(
            match=("00:00:5e:00:53:01", "MAC 00-00-5E-00-53-FF."),
            no_match=(
                "10:30:45",
                "timecode 01:02:03:04",
                "2024-01-15-10-30-45",
                "06-12-34-56-78",
                "550e8400-e29b-41d4-a716-446655440000",
                "fe80:00:00:5e:00:53:01",
            ),
            stop=("00:00:5e:00:5", "00-00-5e-00-53-0"),
            gets_to="00:00:5e:00:",
        ),
    ),
    Pattern(
        id="pii.bitcoin",
        regex=(
            rf"{_ALONE_BEFORE}(?:bc1{_BECH32}{{39,59}}|[13]{_BASE58_MIXED}{_BASE58}{{25,33}}){_ALONE_AFTER}"
        ),
        stop_at=rf"{_ALONE_BEFORE}(?:bc1{_BECH32}{{9}}|[13]{_BASE58_MIXED}{_BASE58}{{15}})",
        description="Bitcoin addresses: bech32 (bc1...) and Base58 (1..., 3...) with letters of both cases.",
        reveals=(
            "the first 11 characters of a bech32 address, and of a Base58 address those up to the 15th or, "
            "where only one case has occurred by then, up to the first letter of the other"
        ),
        source="BIP 173, BIP 13",
        examples=Examples(
            match=(
                "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
                "pay to 1BoatSLRHtKNngkdXEeobR76b53LETtpyT.",
            ),
            no_match=(
                "35c1a4b2f8e97d6c5b4a39281716f5e4",
                "bc1 and bc2",
                "123456789123456789123456789123",
                "31a2b3c4d5e6f718293a4b5c6d7e8f9112345678",
            ),
            stop=("bc1qar0srrr7", "1BoatSLRHtKNngkd"),
            gets_to="bc1qar0srrr",
        ),
    ),
    Pattern(
        id="pii.ethereum",
        regex=rf"{_ALONE_BEFORE}0x{_HEX}{{40}}(?!{_HEX})",
        stop_at=rf"{_ALONE_BEFORE}0x{_HEX}{{17}}",
        description=(
            "Ethereum addresses: 0x and 40 hexadecimal digits. Other such constants of more than 64 bits, "
            "transaction hashes among them, are blocked too."
        ),
        reveals="the first 16 hexadecimal digits",
        source="Ethereum yellow paper",
        examples=Examples(
            match=("0x52908400098527886E0F7030069857D2E4169EE7",),
            no_match=("0xffffffffffffffff", "0xdeadbeef", "52908400098527886E0F7030069857D2E4169EE7"),
            stop=("0x52908400098527886",),
            gets_to="0x5290840009852788",
        ),
    ),
)
