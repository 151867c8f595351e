"""Addresses of networks and of wallets, for the preset of personal data."""

from __future__ import annotations

from nco_guard.policy.presets.pattern import ALONE_AFTER, ALONE_BEFORE, Examples, Pattern

__all__ = ["ADDRESSES"]


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

ADDRESSES = (
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
            rf"{ALONE_BEFORE}(?:bc1{_BECH32}{{39,59}}|[13]{_BASE58_MIXED}{_BASE58}{{25,33}}){ALONE_AFTER}"
        ),
        stop_at=rf"{ALONE_BEFORE}(?:bc1{_BECH32}{{9}}|[13]{_BASE58_MIXED}{_BASE58}{{15}})",
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
        regex=rf"{ALONE_BEFORE}0x{_HEX}{{40}}(?!{_HEX})",
        stop_at=rf"{ALONE_BEFORE}0x{_HEX}{{17}}",
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
