"""What makes a number valid, number by number, as who issues it says: the check digit is worked out and compared.

Each function is given digits and letters alone, in the shape that its number has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.automata.checksum_reference import luhn, mod11_10, verhoeff

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
BASE36 = "0123456789" + LETTERS
DNI = "TRWAGMYFPDXBNJZSQVHLCKE"


def digits(text: str) -> list[int]:
    return [int(c) for c in text]


def weighted(text: Iterable[int] | str, weights: Iterable[int]) -> int:
    numbers = digits(text) if isinstance(text, str) else list(text)
    return sum(number * weight for number, weight in zip(numbers, weights, strict=True))


def eleven(total: int) -> int:
    """What is missing to a multiple of 11; nothing is missing for 10, too."""
    return 0 if 11 - total % 11 >= 10 else 11 - total % 11


def cross_sum(number: int) -> int:
    return sum(map(int, str(number)))


def expanded(text: str) -> str:
    """Letters as two digits, A as 01."""
    return "".join(c if c.isdigit() else f"{LETTERS.index(c) + 1:02d}" for c in text)


def gb_nhs(text: str) -> bool:
    check = 11 - weighted(text[:9], range(10, 1, -1)) % 11
    return check != 10 and check % 11 == int(text[9])


def gb_utr(text: str) -> bool:
    rest = weighted(text[1:], (6, 7, 8, 9, 10, 5, 4, 3, 2)) % 11
    check = 11 - rest
    return int(text[0]) == (check - 9 if check > 9 else check)


def ie_pps(text: str) -> bool:
    total = weighted(text[:7], range(8, 1, -1))
    if text[8:]:
        total += 9 * (" ABCDEFGHI".index(text[8]) if text[8] != "W" else 0)
    return text[7] == "WABCDEFGHIJKLMNOPQRSTUV"[total % 23]


def fr_nir(text: str) -> bool:
    number = text[:13]
    if number[6] in "AB":  # Corsica: 2A counts as 19, 2B as 18
        if number[5] != "2":
            return (
                int(number.replace("A", "0").replace("B", "0")) - (2 if "B" in number else 1) * 10**6
            ) % 97 == 97 - int(text[13:])
        number = number.replace("2A", "19").replace("2B", "18")
    return 97 - int(number) % 97 == int(text[13:])


def fr_siret(text: str) -> bool:
    return luhn(text[:9]) and luhn(text)


def fr_tva(text: str) -> bool:
    return (12 + 3 * (int(text[4:]) % 97)) % 97 == int(text[2:4]) % 97


def de_rvnr(text: str) -> bool:
    products = zip(expanded(text[:11]), (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1), strict=True)
    return sum(cross_sum(int(digit) * weight) for digit, weight in products) % 10 == int(text[11])


def de_kvnr(text: str) -> bool:
    products = zip(expanded(text[:9]), (1, 2) * 5, strict=True)
    return sum(cross_sum(int(digit) * weight) for digit, weight in products) % 10 == int(text[9])


def de_lanr(text: str) -> bool:
    return -weighted(text[:6], (4, 9) * 3) % 10 == int(text[6])


def icao(text: str) -> bool:
    return weighted([BASE36.index(c) for c in text[:9]], (7, 3, 1) * 3) % 10 == int(text[9])


def es_nie(text: str) -> bool:
    return DNI[int(str("XYZ".index(text[0])) + text[1:8]) % 23] == text[8]


def codice_fiscale(text: str) -> bool:
    odd = [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23]
    total = 0
    for place, c in enumerate(text[:15], 1):
        value = int(c) if c.isdigit() else LETTERS.index(c)
        total += odd[value] if place % 2 else value
    return LETTERS[total % 26] == text[15]


def pl_pesel(text: str) -> bool:
    return -weighted(text[:10], (1, 3, 7, 9, 1, 3, 7, 9, 1, 3)) % 10 == int(text[10])


def pl_nip(text: str) -> bool:
    return weighted(text[:9], (6, 5, 7, 2, 3, 4, 5, 6, 7)) % 11 == int(text[9])


def pl_regon(text: str) -> bool:
    return weighted(text[:8], (8, 9, 2, 3, 4, 5, 6, 7)) % 11 % 10 == int(text[8])


def pl_regon_14(text: str) -> bool:
    total = weighted(text[:13], (2, 4, 8, 5, 0, 9, 7, 3, 6, 1, 2, 4, 8))
    return pl_regon(text[:9]) and total % 11 % 10 == int(text[13])


def nl_bsn(text: str) -> bool:
    return (weighted(text[:8], range(9, 1, -1)) - int(text[8])) % 11 == 0


def be_nn(text: str) -> bool:
    return any(97 - int(century + text[:9]) % 97 == int(text[9:]) for century in ("", "2"))


def ean13(text: str) -> bool:
    total = sum(digit * (1 if place % 2 else 3) for place, digit in enumerate(reversed(digits(text[:-1]))))
    return -total % 10 == int(text[-1])


def ch_uid(text: str) -> bool:
    check = 11 - weighted(text[3:11], (5, 4, 3, 2, 7, 6, 5, 4)) % 11
    return check != 10 and check % 11 == int(text[11])


def no_fodselsnummer(text: str) -> bool:
    first = 11 - weighted(text[:9], (3, 7, 6, 1, 8, 9, 4, 5, 2)) % 11
    second = 11 - weighted(text[:10], (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return [first % 11, second % 11] == digits(text[9:])


def fi_hetu(text: str) -> bool:
    number = int(text[:6] + text[-4:-1])
    return "0123456789ABCDEFHJKLMNPRSTUVWXY"[number % 31] == text[-1]


def fi_ytunnus(text: str) -> bool:
    rest = weighted(text[:7], (7, 9, 10, 5, 8, 4, 2)) % 11
    return rest != 1 and (0 if rest == 0 else 11 - rest) == int(text[7])


def tr_tckn(text: str) -> bool:
    d = digits(text)
    tenth = (7 * sum(d[0:9:2]) - sum(d[1:8:2])) % 10
    return d[9] == tenth and d[10] == sum(d[:10]) % 10


def br_cpf(text: str) -> bool:
    first = eleven(weighted(text[:9], range(10, 1, -1)))
    second = eleven(weighted(text[:10], range(11, 1, -1)))
    return [first, second] == digits(text[9:])


def br_cnpj(text: str) -> bool:
    values = [ord(c) - ord("0") for c in text]
    first = eleven(weighted(values[:12], (5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)))
    second = eleven(weighted(values[:13], (6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)))
    return [first, second] == values[12:]


def au_abn(text: str) -> bool:
    less = [int(text[0]) - 1, *digits(text[1:])]
    return weighted(less, (10, *range(1, 20, 2))) % 89 == 0


def au_acn(text: str) -> bool:
    return (10 - weighted(text[:8], range(8, 0, -1)) % 10) % 10 == int(text[8])


def in_gstin(text: str) -> bool:
    total = 0
    for place, c in enumerate(text[:14]):
        product = BASE36.index(c) * (1 + place % 2)
        total += product // 36 + product % 36
    return BASE36[(36 - total % 36) % 36] == text[14]


def kr_rrn(text: str) -> bool:
    return (11 - weighted(text[:12], (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)) % 11) % 10 == int(text[12])


def kr_brn(text: str) -> bool:
    total = weighted(text[:8], (1, 3, 7, 1, 3, 7, 1, 3)) + int(text[8]) * 5 + int(text[8]) * 5 // 10
    return (10 - total % 10) % 10 == int(text[9])


def th_tnin(text: str) -> bool:
    return (11 - weighted(text[:12], range(13, 1, -1)) % 11) % 10 == int(text[12])


def singapore(text: str) -> bool:
    total = weighted(text[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"S": 0, "T": 4, "F": 0, "G": 4, "M": 3}[text[0]]
    letters = "JZIHGFEDCBA" if text[0] in "ST" else "XWUTRQPNMLK" if text[0] in "FG" else "XWUTRQPNJLK"
    return letters[total % 11] == text[8]


def sg_uen_other(text: str) -> bool:
    alphabet = "ABCDEFGHJKLMNPQRSTUVWX0123456789"
    total = weighted([alphabet.index(c) for c in text[:9]], (4, 3, 5, 3, 10, 2, 2, 5, 7))
    return alphabet[(total - 5) % 11] == text[9]


def mod11_2(text: str) -> bool:
    """ISO/IEC 7064 MOD 11-2: powers of two from the right leave 1 by 11."""
    values = [10 if c == "X" else int(c) for c in text]
    return sum(value << place for place, value in enumerate(reversed(values))) % 11 == 1


def vin(text: str) -> bool:
    values = dict(
        zip("ABCDEFGHJKLMNPRSTUVWXYZ", (*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)), strict=True)
    )
    numbers = [int(c) if c.isdigit() else values[c] for c in text]
    numbers[8] = 0
    total = weighted(numbers, (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2))
    return "0123456789X"[total % 11] == text[8]


def lei(text: str) -> bool:
    return int("".join(str(BASE36.index(c)) for c in text)) % 97 == 1


STANDARDS: dict[str, Callable[[str], bool]] = {
    "us.aba": lambda text: weighted(text, (3, 7, 1) * 3) % 10 == 0,
    "us.npi": lambda text: luhn("80840" + text),
    "us.dea": lambda text: (
        (weighted(text[2:8:2], (1, 1, 1)) + 2 * sum(digits(text[3:8:2]))) % 10 == int(text[8])
    ),
    "ca.sin": luhn,
    "gb.nhs": gb_nhs,
    "gb.utr": gb_utr,
    "ie.pps": ie_pps,
    "ie.pps_2013": ie_pps,
    "fr.nir": fr_nir,
    "fr.siret": fr_siret,
    "fr.tva": fr_tva,
    "de.steuer_id": mod11_10,
    "de.rvnr": de_rvnr,
    "de.kvnr": de_kvnr,
    "de.lanr": de_lanr,
    "icao.document": icao,
    "es.dni": lambda text: DNI[int(text[:-1]) % 23] == text[-1],
    "es.nie": es_nie,
    "it.codice_fiscale": codice_fiscale,
    "it.partita_iva": luhn,
    "pl.pesel": pl_pesel,
    "pl.nip": pl_nip,
    "pl.regon": pl_regon,
    "pl.regon_14": pl_regon_14,
    "nl.bsn": nl_bsn,
    "be.nn": be_nn,
    "pt.nif": lambda text: eleven(weighted(text[:8], range(9, 1, -1))) == int(text[8]),
    "ch.ahv": ean13,
    "ch.uid": ch_uid,
    "dk.cpr": lambda text: weighted(text, (4, 3, 2, 7, 6, 5, 4, 3, 2, 1)) % 11 == 0,
    "no.fodselsnummer": no_fodselsnummer,
    "se.personnummer": luhn,
    "fi.hetu": fi_hetu,
    "fi.ytunnus": fi_ytunnus,
    "hr.oib": mod11_10,
    "tr.tckn": tr_tckn,
    "za.id": luhn,
    "br.cpf": br_cpf,
    "br.cnpj": br_cnpj,
    "au.abn": au_abn,
    "au.acn": au_acn,
    "au.tfn": lambda text: weighted(text, (1, 4, 3, 7, 5, 8, 6, 9, 10)) % 11 == 0,
    "au.medicare": lambda text: weighted(text[:8], (1, 3, 7, 9) * 2) % 10 == int(text[8]),
    "in.aadhaar": verhoeff,
    "in.gstin": in_gstin,
    "kr.rrn": kr_rrn,
    "kr.brn": kr_brn,
    "th.tnin": th_tnin,
    "sg.nric": singapore,
    "sg.fin": singapore,
    "sg.fin_m": singapore,
    "sg.uen_business": lambda text: (
        "XMKECAWLJDB"[weighted(text[:8], (10, 4, 9, 3, 8, 2, 7, 1)) % 11] == text[8]
    ),
    "sg.uen_company": lambda text: (
        "ZKCMDNERGWH"[weighted(text[:9], (10, 8, 6, 4, 9, 7, 5, 3, 1)) % 11] == text[9]
    ),
    "sg.uen_other": sg_uen_other,
    "cn.resident": mod11_2,
    "jp.my_number": lambda text: (
        eleven(weighted(text[:11], (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2))) == int(text[11])
    ),
    "imei": luhn,
    "vin": vin,
    "isin": lambda text: luhn("".join(str(BASE36.index(c)) for c in text)),
    "lei": lei,
    "ean": ean13,
}
