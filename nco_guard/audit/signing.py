"""Keys for a log's heads: HMAC-SHA256 (one secret for writing and checking) or Ed25519 (two keys).

With HMAC whoever can check can forge; with Ed25519 the log is checked with the public key alone, so that is
the one to use where auditors are somebody else. Ed25519 needs the extra `audit` (`cryptography`). No key and
no part of one is ever in a `repr`, an error or a log; a key is named by its id, a hash.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Any, Protocol

from nco_guard.arguments import file_path
from nco_guard.copies import Staying
from nco_guard.errors import ArgumentError, AuditError, MissingExtraError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = [
    "Ed25519Signer",
    "Ed25519Verifier",
    "HmacSigner",
    "SignatureVerifier",
    "Signer",
    "load_signer",
    "load_verifier",
]

_SHORTEST = 32


class Signer(Protocol):
    """Signs heads."""

    def signature(self, message: bytes) -> dict[str, str]:
        """`{"algorithm": ..., "key_id": ..., "value": hex}` over the message."""


class SignatureVerifier(Protocol):
    """Checks signatures of heads."""

    def valid(self, message: bytes, signature: Any) -> bool:
        """Whether this is a signature over the message by the key that is trusted."""


class HmacSigner(Staying):
    """HMAC-SHA256 with a secret of at least 32 bytes; signs and verifies.

    Examples:
        >>> signer = HmacSigner(bytes(range(32)))
        >>> with JsonLinesSink("signed.jsonl", signer=signer) as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> verify_log("signed.jsonl", verifier=signer).problems
        ()
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes):
            raise ArgumentError(
                f"key: bytes are needed, not {type(key).__name__}; secrets.token_bytes(32) makes some"
            )
        if len(key) < _SHORTEST:
            raise AuditError(
                f"an HMAC key needs at least {_SHORTEST} bytes; secrets.token_bytes(32) makes one"
            )
        self._key = key
        self.key_id = hmac.new(key, b"nco-guard audit key id", hashlib.sha256).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"HmacSigner(key_id={self.key_id!r})"

    def signature(self, message: bytes) -> dict[str, str]:
        """See `Signer`."""
        value = hmac.new(self._key, message, hashlib.sha256).hexdigest()
        return {"algorithm": "hmac-sha256", "key_id": self.key_id, "value": value}

    def valid(self, message: bytes, signature: Any) -> bool:
        """See `SignatureVerifier`."""
        value = _value(signature, "hmac-sha256")
        return value is not None and hmac.compare_digest(
            value, hmac.new(self._key, message, hashlib.sha256).digest()
        )


class Ed25519Verifier:
    """The public half of an Ed25519 key.

    Examples:
        >>> verifier = Ed25519Signer.generate().verifier
        >>> with JsonLinesSink("signed.jsonl", signer=Ed25519Signer.generate()) as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> verify_log("signed.jsonl", verifier=verifier).problems == ()  # signed by another key
        False
    """

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.key_id = _key_id(key)

    def __repr__(self) -> str:
        return f"Ed25519Verifier(key_id={self.key_id!r})"

    def valid(self, message: bytes, signature: Any) -> bool:
        """See `SignatureVerifier`."""
        from cryptography.exceptions import InvalidSignature

        value = _value(signature, "ed25519")
        if value is None:
            return False
        try:
            self._key.verify(value, message)
        except InvalidSignature:
            return False
        return True

    def to_pem(self) -> bytes:
        """The public key, for those who check the log."""
        from cryptography.hazmat.primitives import serialization

        return self._key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


class Ed25519Signer(Staying):
    """An Ed25519 private key: signs; `verifier` is the half that others need. Needs the extra `audit`.

    Examples:
        >>> signer = Ed25519Signer.generate()
        >>> with JsonLinesSink("signed.jsonl", signer=signer) as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> verify_log("signed.jsonl", verifier=signer.verifier).problems
        ()
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.verifier = Ed25519Verifier(key.public_key())

    @classmethod
    def generate(cls) -> Ed25519Signer:
        """A new key."""
        return cls(_ed25519().Ed25519PrivateKey.generate())

    def __repr__(self) -> str:
        return f"Ed25519Signer(key_id={self.verifier.key_id!r})"

    def signature(self, message: bytes) -> dict[str, str]:
        """See `Signer`."""
        value = self._key.sign(message).hex()
        return {"algorithm": "ed25519", "key_id": self.verifier.key_id, "value": value}

    def to_pem(self) -> bytes:
        """The private key, PKCS #8, not encrypted: keep it where the log's readers cannot read it."""
        from cryptography.hazmat.primitives import serialization

        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def load_signer(path: str | os.PathLike[str]) -> HmacSigner | Ed25519Signer:
    """The key in a file: an Ed25519 private key in PEM, or else the bytes of an HMAC key (32 at least).

    Examples:
        >>> _ = open("key", "wb").write(bytes(range(32)))
        >>> type(load_signer("key")).__name__
        'HmacSigner'
    """
    data = _read(path)
    if not data.lstrip().startswith(b"-----BEGIN"):
        return HmacSigner(data)
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        raise AuditError(f"{path}: not a private key in PEM without a password") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise AuditError(f"{path}: the key is of another kind than Ed25519")
    return Ed25519Signer(key)


def load_verifier(path: str | os.PathLike[str]) -> HmacSigner | Ed25519Verifier:
    """The key in a file, for checking: an Ed25519 key in PEM, public or private, or else the bytes of an HMAC key.

    Examples:
        >>> _ = open("public.pem", "wb").write(Ed25519Signer.generate().verifier.to_pem())
        >>> type(load_verifier("public.pem")).__name__
        'Ed25519Verifier'
    """
    data = _read(path)
    if b"-----BEGIN PUBLIC KEY" not in data:
        signer = load_signer(path)
        return signer.verifier if isinstance(signer, Ed25519Signer) else signer
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_public_key(data)
    except ValueError:
        raise AuditError(f"{path}: not a public key in PEM") from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise AuditError(f"{path}: the key is of another kind than Ed25519")
    return Ed25519Verifier(key)


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return file_path("path", path).read_bytes()
    except OSError as error:
        raise AuditError(f"cannot read the key {path}: {error.strerror}") from error


def _value(signature: Any, algorithm: str) -> bytes | None:
    """The bytes of a signature; None where it is no signature of this kind."""
    if not isinstance(signature, dict) or signature.get("algorithm") != algorithm:
        return None
    try:
        return bytes.fromhex(str(signature.get("value")))
    except ValueError:
        return None


def _key_id(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtraError("signing with Ed25519", "audit") from error
    return ed25519
