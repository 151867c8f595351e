"""Digests of policies as logs have them: keyed where there is a key.

A policy's digest is a SHA-256 over what it forbids. Whoever reads one can try policies until one fits: a policy of one
string is found in less than a second, of one number or name in minutes. An HMAC under a secret that the log's readers
do not have cannot be tried, and still is the same for the same policy, so that runs can be compared. The secret is one
of its own: not a key that signs the log, whose public half every auditor has.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from nco_guard.arguments import function, text
from nco_guard.audit.events import Event
from nco_guard.audit.sinks import Sink
from nco_guard.copies import Staying
from nco_guard.errors import ArgumentValueError, AuditError

__all__ = ["checked_key", "keyed_digests", "policy_hmac"]

KEYED: Final = "hmac-sha256:"
"""What a keyed digest begins with."""
_DOMAIN: Final = b"nco-guard policy digest v1\n"
_SHORTEST: Final = 16


def checked_key(name: str, key: bytes | None) -> bytes | None:
    """A secret that may be used, or None. Raises `AuditError`, which names the field and never the key."""
    if key is not None and (not isinstance(key, bytes) or len(key) < _SHORTEST):
        raise AuditError(
            f"{name}: a key is at least {_SHORTEST} bytes that nobody can guess; secrets.token_bytes(32) makes one"
        )
    return key


def policy_hmac(key: bytes, digest: str) -> str:
    """`Policy.digest` as events have it in the log of a guard, or a sink, with this `digest_key`.

    A digest that is keyed already comes back as it is. Raises `AuditError` for a key shorter than 16 bytes.

    Examples:
        >>> policy_hmac(bytes(range(32)), Policy.from_presets("pii").digest)[:12]
        'hmac-sha256:'
    """
    if not text("digest", digest).isascii():
        raise ArgumentValueError("digest: no digest of a policy; give policy.digest")
    if digest.startswith(KEYED):
        return digest
    if checked_key("digest_key", key) is None:
        raise AuditError("digest_key: a key is needed")
    return KEYED + hmac.new(key, _DOMAIN + digest.encode("ascii"), hashlib.sha256).hexdigest()


def keyed_digests(sink: Sink, key: bytes) -> Sink:
    """A sink that hands events on to `sink` with their policy's digest under a key.

    For sinks that are not a guard's own: of handlers, of recorders, of several guards that share a log. A guard does it
    by itself (`Guard(..., digest_key=key)`). Raises `AuditError` for a key shorter than 16 bytes. Cost: some
    microseconds for events that name a policy.

    Examples:
        >>> sink = MemorySink()
        >>> guard = Guard.from_presets("pii", audit=keyed_digests(sink, bytes(range(32))))
        >>> sink.events[0].policy_digest.startswith("hmac-sha256:")
        True
    """
    function("sink", sink, "a function that takes an event")
    if checked_key("digest_key", key) is None:
        raise AuditError("digest_key: a key is needed")
    return _KeyedSink(sink, key)


class _KeyedSink(Staying):
    """What `keyed_digests` gives. No closure: some picklers take closures apart, and the key with them."""

    def __init__(self, sink: Sink, key: bytes) -> None:
        self._sink = sink
        self._key = key
        self._known: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        digest = getattr(event, "policy_digest", None)
        if digest is not None:
            keyed = self._known.get(digest)
            if keyed is None:
                if len(self._known) >= 1024:
                    self._known.clear()
                keyed = self._known[digest] = policy_hmac(self._key, digest)
            event = event.model_copy(update={"policy_digest": keyed})
        self._sink(event)
