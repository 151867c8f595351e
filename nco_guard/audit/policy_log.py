"""What a guard records: its policy once, the guarantee per tokenizer, and a recorder for each run.

Events go to the guard's history and, where there is one, to the audit sink, as the policy's `on_audit_failure`
has it.
"""

from __future__ import annotations

import threading
from uuid import UUID

from nco_guard.audit.digests import checked_key, keyed_digests, policy_hmac
from nco_guard.audit.events import DecodeView
from nco_guard.audit.history import History
from nco_guard.audit.recorder import RunRecorder
from nco_guard.audit.sinks import Sink, checked_sink, fan_out, tolerant
from nco_guard.copies import Staying
from nco_guard.errors import AuditError, UnsupportedError
from nco_guard.policy import Policy

__all__ = ["PolicyLog"]


class PolicyLog(Staying):
    """The record of one guard, `guard.log`. Thread-safe.

    `sink`: where events go, as the policy's `on_audit_failure` has it; None if only the history is kept; then single
    steps are not recorded. `history`: the last runs, and counts per rule, in memory and without any text.

    correlation_key: see `nco_guard.audit.value_hmac`. digest_key: see `nco_guard.audit.policy_hmac`; the correlation
    key by default. Creating one records that the policy is loaded, unless nobody `enforces` it; raises `AuditError`.

    Examples:
        >>> log = PolicyLog(Policy.from_presets("pii"), MemorySink(), History())
        >>> [event.kind for event in log.sink.events]
        ['policy_loaded']
    """

    def __init__(
        self,
        policy: Policy,
        sink: Sink | None,
        history: History,
        correlation_key: bytes | None = None,
        digest_key: bytes | None = None,
        *,
        enforces: bool = True,
    ) -> None:
        if sink is not None:
            checked_sink(sink)
        checked_key("correlation_key", correlation_key)
        self._digest_key = checked_key("digest_key", digest_key) or correlation_key
        sink = None if sink is None else self.keyed(sink)
        self.sink = tolerant(sink) if sink is not None and policy.on_audit_failure == "warn" else sink
        self.history = history
        self._policy = policy
        self._key = correlation_key
        self._everywhere = history if self.sink is None else fan_out(history, self.sink)
        self._own = None if self.sink is None else self.recorder()
        self._configured: set[tuple[str, DecodeView]] = set()
        self._lock = threading.Lock()
        if self._own is not None and enforces:
            self._own.policy_loaded(
                policy_name=policy.name,
                policy_digest=policy.digest,
                rules=[(rule.id, rule.key, rule.mode) for rule in policy.rules],
                on_dead_end=policy.on_dead_end,
                on_audit_failure=policy.on_audit_failure,
            )

    @property
    def digest(self) -> str:
        """The policy's digest as it is shown to others, in events and in what integrations hand to tracers.

        Keyed where there is a key (`nco_guard.audit.policy_hmac`), else `policy.digest`.
        """
        digest, key = self._policy.digest, self._digest_key
        return digest if key is None else policy_hmac(key, digest)

    def keyed(self, sink: Sink) -> Sink:
        """A sink in which digests of policies are what they are here, for handlers that have one of their own."""
        return sink if self._digest_key is None else keyed_digests(sink, self._digest_key)

    def refuse_second(self, audit: Sink | None) -> None:
        """The rule of `audit=` beside a guard. Errors: `UnsupportedError` where the guard has a sink of its own."""
        if audit is not None and self.sink is not None:
            raise UnsupportedError(
                "audit: the Guard has a sink of its own, which hears of everything; leave audit= out, or give "
                "Guard(policy, audit=...) with this one"
            )

    def recorder(
        self, sink: Sink | None = None, *, run_id: UUID | None = None, parent_id: str | None = None
    ) -> RunRecorder:
        """A recorder of one run for whoever verifies beside an engine: into `sink`, or the log's own.

        With the log's keys: digests are keyed, and findings hold `value_hmac` where there is a correlation key.
        Errors: `UnsupportedError` where both are there, `AuditError` where none is.

        Examples:
            >>> guard = Guard.from_presets("pii", correlation_key=bytes(range(32)))
            >>> sink, text = MemorySink(), "Write to jane.doe@example.com."
            >>> _ = guard.log.recorder(sink).report(guard.verify(text), text=text)
            >>> sink.events[0].findings[0].value_hmac is None
            False
        """
        self.refuse_second(sink)
        chosen = self.sink if sink is None else self.keyed(sink)
        if chosen is None:
            raise AuditError("audit: pass a sink, or a guard that has one")
        return RunRecorder(chosen, run_id=run_id, parent_id=parent_id, correlation_key=self._key)

    def own_recorder(self, *, parent_id: str | None = None) -> RunRecorder | None:
        """A `recorder` into the log's own sink; None where there is none.

        Examples:
            >>> Guard.from_presets("pii").log.own_recorder() is None
            True
        """
        return None if self.sink is None else self.recorder(parent_id=parent_id)

    def run(
        self,
        *,
        tokenizer_digest: str,
        vocabulary_size: int,
        sequences: int,
        decode_view: DecodeView,
        model_id: str | None = None,
        parent_id: str | None = None,
    ) -> RunRecorder:
        """A recorder for one run, its start recorded, and before it the guarantee, where it is a new one."""
        policy = self._policy
        with self._lock:
            new = (tokenizer_digest, decode_view) not in self._configured
            self._configured.add((tokenizer_digest, decode_view))
        if new and self._own is not None:
            self._own.guarantee_configured(
                policy_digest=policy.digest,
                tokenizer_digest=tokenizer_digest,
                vocabulary_size=vocabulary_size,
                decode_view=decode_view,
            )
        recorder = RunRecorder(
            self._everywhere,
            parent_id=parent_id,
            correlation_key=self._key,
            steps=self.sink is not None,
        )
        recorder.begin(
            policy,
            sequences=sequences,
            tokenizer_digest=tokenizer_digest,
            model_id=model_id,
            decode_view=decode_view,
        )
        return recorder
