"""Personal data that has a shape of its own.

Digits and Latin letters are ASCII; dashes and spaces are those that text really has (non-breaking, narrow,
en dash, ...). Every pattern has a `stop_at`, set as early as it can be without blocking ordinary text: dates,
times, versions, prices, ISBNs, VAT, CAS and order numbers. Some have an `early` point too, from which on less of a
value shows and some of that is blocked.
"""

from __future__ import annotations

from nco_guard.policy.presets.addresses import ADDRESSES
from nco_guard.policy.presets.iban import IBAN, IBAN_EARLY, IBAN_STOP
from nco_guard.policy.presets.pattern import ALONE_AFTER, ALONE_BEFORE, Early, Examples, Pattern

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
_CARD_BEFORE_SAID = r"(?<![0-9])(?<![0-9]\.)(?<![0-9A-Fa-f]{4}-)(?<![0-9]{3}-)"
_CARD_BEFORE = f"{_CARD_BEFORE_SAID}{_NOT_IN_UUID}"
_CARD_STOP = (
    rf"{_CARD_BEFORE}(?:(?:{_ISSUERS}){_DASH_OR_SPACE}[0-9]{{4}}{_DASH_OR_SPACE}[0-9]"
    rf"|(?:{_AMEX}|{_DINERS}){_DASH_OR_SPACE}[0-9]{{6}}{_DASH_OR_SPACE}[0-9]"
    rf"|(?:{_ISSUERS})(?:{_DASH_OR_SPACE}?[0-9]){{9}})"
)

# Digits in the middle of a digest: at least four hexadecimal digits on either side, with a letter next to the number.
# The stop point does not know what follows, so a guard blocks these all the same.
_NOT_IN_DIGEST = "(?!(?<=[0-9A-Fa-f]{3}[A-Fa-f])[0-9]{13,19}[A-Fa-f][0-9A-Fa-f]{3})"

PATTERNS = (
    Pattern(
        id="pii.email",
        regex=rf"[\w.%+'-]*{_LOCAL_END}(?:[\w-]+\.)+[^\W\d_]{{2,}}",
        stop_at=rf"{_LOCAL_END}[\w.-]*[^\W\d_]",
        description=(
            "E-mail addresses, also internationalised ones; no quoted local parts and no IP literals."
        ),
        reveals="the part before the @, the @, and leading digits of the domain",
        early=Early(
            stop_at=_LOCAL_END,
            reveals="the part before the @",
            gets_to="jane.doe",
            blocks=("react@18.2.0", "pkg@1.2.3", "meet @5pm...; user@"),
        ),
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
        early=Early(
            stop_at=(
                rf"{_NO_DIGIT_BEFORE}(?:\({_AREA}\){_SPACE}?[2-9]"
                rf"|(?!97[89])(?<!97[89]-){_AREA}{_PHONE_SEPARATOR}{_EXCHANGE}(?:{_DASH}|{_PHONE_SOFT}[0-9])"
                rf"|(?<=\+1{_PHONE_SEPARATOR}){_AREA}{_PHONE_SEPARATOR}[2-9]"
                rf"|{_AREA}{_PHONE_SEPARATOR}{_EXCHANGE}{_PHONE_SEPARATOR}[0-9]{{4}})"
            ),
            reveals=(
                "the area code, where it stands in brackets or after +1; else that and the exchange, six digits "
                "(nine where the area code is 978 or 979)"
            ),
            gets_to="202-555",
            blocks=("203.201.210.5", "a total of 234 567 890 items", "NVIDIA driver 535.261.03"),
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
        early=Early(
            stop_at=rf"(?<![0-9A-Za-z+])\+[1-9](?:[{_SPACES}.()/{_DASHES}]{{0,2}}[0-9]){{5}}",
            reveals="the first five digits, country code included",
            gets_to="+12025",
            blocks=("+1 000 000", "+3.14159", "a gain of +250000 points"),
        ),
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
        early=Early(
            stop_at=(
                rf"{_NO_DIGIT_BEFORE}{_SSN_AREA}(?:{_DASH}{_SSN_GROUP}{_DASH}|{_SPACE}{_SSN_GROUP}{_SPACE}[0-9])"
            ),
            reveals="the first five digits",
            gets_to="078-05",
            blocks=("ethylene glycol, CAS 107-21-1", "100 20 30 40"),
        ),
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
        early=Early(
            stop_at=(
                rf"{_NO_DIGIT_BEFORE}9[0-9]{{2}}(?:{_DASH}{_ITIN_GROUP}{_DASH}|{_SPACE}{_ITIN_GROUP}{_SPACE}[0-9])"
            ),
            reveals="the first five digits",
            gets_to="900-70",
            blocks=("950-75-8",),
        ),
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
            rf"{ALONE_BEFORE}(?i:{_NINO}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[A-D])"
            rf"{ALONE_AFTER}"
        ),
        stop_at=(
            rf"{ALONE_BEFORE}(?:(?i:{_NINO}{_SPACE}[0-9]{{2}}{_SPACE}[0-9]{{2}}{_SPACE}[0-9])"
            rf"|(?i:{_NINO}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[A-D]){ALONE_AFTER})"
        ),
        description="UK national insurance numbers: two letters, six digits, and a letter from A to D.",
        reveals=(
            "the letters and four digits where spaces separate all groups; else all but the last letter, "
            "since two letters and six digits may be any reference number"
        ),
        early=Early(
            stop_at=(
                rf"{ALONE_BEFORE}(?:(?i:{_NINO}{_SPACE}[0-9]{{2}}{_SPACE}[0-9])"
                rf"|(?i:{_NINO}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[0-9]{{2}}{_SPACE}?[A-D]){ALONE_AFTER})"
            ),
            reveals="the letters and two digits where spaces separate the groups; else all but the last letter",
            gets_to="AB 12 ",
            blocks=("rows AB 12 3 and AB 12 4",),
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
        stop_at=_CARD_STOP,
        description=(
            "Numbers of 13 to 19 digits that begin as Visa, Mastercard, American Express, Diners, Discover, "
            "JCB, UnionPay, Maestro or Mir cards do, with single spaces or hyphens anywhere after the "
            "fourth, but not in the groups that UUIDs have (8-4-4), nor in the middle of a digest, with four "
            "hexadecimal digits or more on either side (a guard blocks these all the same)."
        ),
        checksum="luhn",
        reveals="the first eight digits in groups of four, ten in groups of 4-6-5, else twelve",
        early=Early(
            stop_at=rf"{ALONE_BEFORE}{_CARD_BEFORE_SAID}(?:{_ISSUERS})(?:{_DASH_OR_SPACE}[0-9]|[0-9]{{5}})|{_CARD_STOP}",
            reveals=(
                "the first four digits, if a space or hyphen follows them; eight, if none does; else, and where a "
                "letter stands before them, what the usual point reveals"
            ),
            gets_to="4111 ",
            blocks=("4000-5000 units", "order 412345678901", "invoice 5123 2 of 4"),
        ),
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
        early=Early(
            stop_at=IBAN_EARLY,
            reveals=(
                "country, check digits and the first four characters of the account part, where a space follows "
                "the check digits; else what the usual point reveals"
            ),
            gets_to="DE89 3704 ",
            blocks=("GB22 were 3 of 12", "AT61 1904 30", "VAT FR12 345678901"),
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
    *ADDRESSES,
)
