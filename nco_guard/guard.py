"""The front door: a policy, compiled once, and everything one does with it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nco_guard.audit import RunRecorder, Sink
from nco_guard.audit.events import DecodeView
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.errors import MissingExtraError
from nco_guard.policy import Policy
from nco_guard.redaction import REDACTED, Action, Redaction, Replacement, StreamVerifier, redact
from nco_guard.session import BoundGuard
from nco_guard.tokens import read_vocabulary
from nco_guard.verify import Report, verify

if TYPE_CHECKING:
    from nco_guard.engines import hf

__all__ = ["Guard"]

_CLEANUP_SETTINGS = (
    "clean_up_tokenization_spaces",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
)


class Guard:
    """A policy that can be enforced.

    Building one compiles and checks every rule; a policy that cannot be enforced exactly is refused here, before any
    model runs. A guard is immutable and may be shared between threads and models.

    `audit` receives the events of every generation, see `nco_guard.audit`; it never receives text.

    Errors: `PolicyError` and its kin, naming rule and field.
    """

    def __init__(self, policy: Policy, *, audit: Sink | None = None) -> None:
        if not isinstance(policy, Policy):
            raise TypeError(f"policy must be a Policy, got {type(policy).__name__}; see Policy.from_file")
        self._compiled = compile_policy(policy)
        self._audit = audit
        self._bound: dict[tuple[Any, ...], BoundGuard] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, audit: Sink | None = None) -> Guard:
        """A guard from a YAML or JSON policy file."""
        return cls(Policy.from_file(path), audit=audit)

    @classmethod
    def from_presets(cls, *names: str, audit: Sink | None = None) -> Guard:
        """A guard from presets with their default options, e.g. `Guard.from_presets("pii", "ldnoobw")`."""
        return cls(Policy.from_presets(*names), audit=audit)

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self._compiled.policy

    @property
    def compiled(self) -> CompiledPolicy:
        """The compiled policy, as `verify` and `redaction` take it."""
        return self._compiled

