"""A guard bound to one tokenizer, and one sequence under it.

`BoundGuard` is immutable and shared, one per model; `Session` is small and mutable, one per sequence. Engines that
generate in batches use `BoundGuard.tables` directly (see `RowTracker`).
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from nco_guard.arguments import whole
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.copies import Shared
from nco_guard.errors import (
    ArgumentError,
    ArgumentValueError,
    ForbiddenTokenError,
    GenerationError,
    MissingExtraError,
    PolicyError,
    StateLimitError,
    TokenizerError,
    UnsupportedError,
)
from nco_guard.masking import ENDED, VIOLATED, JointTables
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.enumeration import MAX_BYTES, MAX_STATES, byte_automaton, first_states, token_table
from nco_guard.policy import Policy
from nco_guard.storage.store import Store
from nco_guard.tokens import Vocabulary, shared_tree

if TYPE_CHECKING:
    import torch

    from nco_guard.analysis import Explanation, TokenExplanation
    from nco_guard.analysis.explain import Explainer
    from nco_guard.masking.device import DeviceTables

__all__ = ["BoundGuard", "Session"]

T = TypeVar("T")


_DEFAULT_LIMIT = 512 << 20
_GROWTH = 0.1  # of an automaton since it was kept, for which it is kept again when the interpreter ends
_to_save_at_exit: weakref.WeakSet[BoundGuard] = weakref.WeakSet()


@atexit.register
def _save_at_exit() -> None:
    for bound in list(_to_save_at_exit):
        bound._tables.save(_GROWTH)


class BoundGuard(Shared):
    """A policy bound to a vocabulary: masks and transitions, found as they are needed.

    Immutable in what it enforces, safe to share between threads and sequences. Its tables grow with the texts that it
    meets, up to `memory_limit` bytes; then they are replaced by fresh ones and sequences replay their tokens. None: 512
    MiB, or four times what fresh tables hold, whichever is more. Less than twice what those hold is refused, since
    tables would be replaced again and again: `PolicyError`, naming the least.
    `fallback_id`: the token of the policy's `fallback`, if it has one; `PolicyError` if there is no such token.

    `store`: where what was worked out is kept for other processes: now, when `save` is called, and when the interpreter
    ends if much has been found since; never within a step.

    Pickled it is its policy, vocabulary and settings, and is bound again where it is unpickled; copies within the
    process are itself.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        vocabulary: Vocabulary,
        *,
        memory_limit: int | None = None,
        store: Store | None = None,
        like: BoundGuard | None = None,
    ) -> None:
        """`like`: a guard over the same vocabulary. What it has found about rules that are also these is shared."""
        compiled = compiled_of(compiled)
        if not isinstance(vocabulary, Vocabulary):
            raise ArgumentError(
                f"vocabulary: {type(vocabulary).__name__} is none; use guard.bind(tokenizer), or read_vocabulary"
            )
        if store is not None and not isinstance(store, Store):
            raise ArgumentError(f"store: a Store or None is needed, not {type(store).__name__}")
        started = time.perf_counter()
        self._compiled = compiled
        self.vocabulary = vocabulary
        if memory_limit is not None:
            memory_limit = whole("memory_limit", memory_limit, "give bytes, or None")
        self._wanted_limit = memory_limit
        self._memory_limit = _DEFAULT_LIMIT if memory_limit is None else memory_limit
        self._store = store
        self._tree = shared_tree(vocabulary, store)
        self._tree_seconds = time.perf_counter() - started
        self._lock = threading.Lock()
        self._limits_met = False
        self._device_lock = threading.Lock()
        self._on_devices: dict[str, DeviceTables] = {}
        self._device_seconds: dict[str, float] = {}
        self._refused: tuple[int, int, StateLimitError] | None = None  # states and bytes that did not suffice
        self._explainer_lock = threading.Lock()
        self._explainer: Explainer | None = None
        self.fallback_id = self._find_fallback()
        started = time.perf_counter()
        self._tables = self._first_tables() if like is None else self._joined_to(like.tables)
        self._settle_limit(like)
        self._tables_seconds = time.perf_counter() - started
        if store is not None:
            self._tables.save()
            _to_save_at_exit.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        bind = partial(BoundGuard, memory_limit=self._wanted_limit, store=self._store)
        return bind, (self._compiled, self.vocabulary)

    def __repr__(self) -> str:
        return f"BoundGuard(policy={self.policy.name!r}, vocabulary={self.vocabulary!r})"

    def _find_fallback(self) -> int | None:
        text = self.policy.fallback
        if text is None:
            return None
        wanted, unusable = text.encode("utf-8", "replace"), self.vocabulary.unusable_ids
        for token, data in enumerate(self.vocabulary.tokens):
            if data == wanted and token not in unusable and token not in self.vocabulary.eos_ids:
                return token
        raise PolicyError("is no single token of this tokenizer; choose one that is", field="fallback")

    def _settle_limit(self, like: BoundGuard | None) -> None:
        """Refuse a memory limit, or raise the default one, that fresh tables would meet before they are of use."""
        held = self._tables.nbytes
        if like is not None:
            held -= like._tables.nbytes  # what texts have led to before says nothing about fresh tables
        if self._wanted_limit is None:
            least = _DEFAULT_LIMIT if like is None else like._memory_limit
            self._memory_limit = self._tables.memory_limit = max(least, 4 * held)
        elif self._wanted_limit < 2 * held:
            raise PolicyError(
                f"{self._wanted_limit:,} bytes are too few: fresh tables of this policy hold {held:,} and "
                f"would be replaced again and again; give at least {2 * held:,}, or leave it out",
                field="memory_limit",
            )

    def _first_tables(self) -> JointTables:
        tables = self._fresh(store=self._store)
        # What was kept must leave room for what is still to come.
        return self._fresh() if self._store is not None and self._large(tables) else tables

    def _joined_to(self, known: JointTables) -> JointTables:
        constraints = self._compiled.constraints(self.vocabulary.rewriting, reuse=known.constraints)
        limit = self._memory_limit
        return JointTables(constraints, self.vocabulary, self._tree, memory_limit=limit, like=known)

    def revised(self, compiled: CompiledPolicy) -> BoundGuard:
        """The same vocabulary under a policy that was revised from this one's (`CompiledPolicy.revised`).

        Cost: that of what is new in the policy. This guard stays as it is.
        """
        return BoundGuard(
            compiled, self.vocabulary, memory_limit=self._wanted_limit, store=self._store, like=self
        )

    def _large(self, tables: JointTables) -> bool:
        return 2 * tables.base_nbytes > self._memory_limit

    def _fresh(self, like: JointTables | None = None, store: Store | None = None) -> JointTables:
        if like is not None and (like.worn or self._large(like)):
            like = None  # what could be shared is most of it, or can go no further: begin anew, automata included
        constraints = (
            self._compiled.constraints(self.vocabulary.rewriting) if like is None else like.constraints
        )
        return JointTables(
            constraints,
            self.vocabulary,
            self._tree,
            memory_limit=self._memory_limit,
            like=like,
            forget=True,
            store=store,
        )

    def save(self) -> None:
        """Keep in the store, if there is one, what texts have led to since. Cost: some milliseconds at most."""
        self._tables.save()

    @property
    def policy(self) -> Policy:
        """The policy that is enforced."""
        return self._compiled.policy

    @cached_property
    def needs_context(self) -> bool:
        """Whether some rule looks at the prompt (`context="prompt"`)."""
        return any(rule.context == "prompt" for rule in self.policy.rules)

    @property
    def tables(self) -> JointTables:
        """The current tables. States belong to the tables that they came from."""
        if self._tables.full:
            with self._lock:
                if self._tables.full:
                    self._limits_met = self.limits_met
                    self._tables = self._fresh(self._tables)
        return self._tables

    @property
    def limits_met(self) -> bool:
        """Whether some text has met a limit so far: of an automaton, or of how far ways out are looked for."""
        return self._limits_met or self._tables.worn or self._tables.undecided_masks > 0

    @property
    def stats(self) -> dict[str, Any]:
        """Sizes and times: constraints, states found, bytes held, seconds spent in binding; the same of device tables,
        and why there are none where they did not fit.
        """
        tables = self._tables
        return {
            "constraints": len(tables.constraints),
            "automaton_states": sum(c.automaton.state_count for c in tables.constraints),
            "joint_states": tables.state_count,
            "undecided_masks": tables.undecided_masks,
            "tree_nodes": len(self._tree),
            "tree_bytes": self._tree.nbytes,
            "table_bytes": tables.nbytes,
            "tree_seconds": self._tree_seconds,
            "tables_seconds": self._tables_seconds,
            "device_tables": self._device_stats(),
        }

    def _device_stats(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            where: {
                "states": tables.states,
                "classes": tables.classes,
                "bytes": tables.nbytes,
                "seconds": self._device_seconds[where],
            }
            for where, tables in list(self._on_devices.items())
        }
        if self._refused is not None:
            found["refused"] = str(self._refused[2])
        return found

    def device_tables(
        self, device: torch.device | str, *, max_states: int = MAX_STATES, max_bytes: int = MAX_BYTES
    ) -> DeviceTables:
        """The same masks and transitions as tensors on a device, for decoding that never waits for the host.

        Built at the first call for a device, all states at once, and kept; see `masking.enumeration` for the cost.
        `max_states`: joint states before equal ones are merged. `max_bytes`: of the transition table.

        Errors: `StateLimitError` where they do not suffice, naming sizes and bounds (many patterns that count have too
        many joint states); `UnsupportedError` for rules that read the prompt; `MissingExtraError` without torch.
        """
        if self.needs_context:
            raise UnsupportedError(
                "device tables: a rule with context='prompt' begins in as many states as there are prompts; use "
                "tables='host'"
            )
        try:
            from nco_guard.masking.device import DeviceTables, usable_device
        except ImportError as error:
            raise MissingExtraError("BoundGuard.device_tables", "hf") from error
        max_states = whole("max_states", max_states, "give a number of states", least=1)
        max_bytes = whole("max_bytes", max_bytes, "give a number of bytes", least=1)
        where = str(usable_device(device))
        with self._device_lock:
            found = self._on_devices.get(where)
            if found is not None:
                return found
            if self._refused is not None and max_states <= self._refused[0] and max_bytes <= self._refused[1]:
                raise self._refused[2]
            started = time.perf_counter()
            # Automata of their own: those of the host's tables would keep every state that is found here.
            constraints = self._compiled.constraints(self.vocabulary.rewriting)
            try:
                automaton = byte_automaton(
                    constraints, first_states(constraints, self.vocabulary), max_states=max_states
                )
                table = token_table(automaton, self.vocabulary, self._tree, max_bytes=max_bytes)
            except StateLimitError as error:
                self._refused = (max_states, max_bytes, error)
                raise
            found = self._on_devices[where] = DeviceTables(table, device)
            self._device_seconds[where] = time.perf_counter() - started
            return found

    @contextmanager
    def _explaining(self) -> Iterator[Explainer]:
        """What explains the masks; made at the first call, with automata of its own, and kept until these are full."""
        from nco_guard.analysis.explain import Explainer  # who asks for no explanation does not wait for it

        with self._explainer_lock:
            if self._explainer is None:
                self._explainer = Explainer(self._compiled, self.vocabulary, self._tree)
            explainer = self._explainer
        try:
            yield explainer
        except StateLimitError:
            self._explainer = None
            raise

    def session(self, context: str | Sequence[int] | None = None) -> Session:
        """A new sequence. `context`: the text or token ids that the output continues, for rules that read it."""
        return Session(self, self.context_bytes(context))

    def context_bytes(self, context: str | Sequence[int] | None) -> bytes:
        """A prompt as well-formed UTF-8; ill-formed parts become U+FFFD, as in decoding."""
        if context is not None and (isinstance(context, bytes) or not isinstance(context, str | Iterable)):
            raise ArgumentError(
                f"context: {type(context).__name__} is neither; give the prompt as text or as token ids"
            )
        if context is not None and not isinstance(context, str):
            context = [
                whole("context", token, "give the prompt as text or as token ids") for token in context
            ]
        if context is None or not self.needs_context:
            return b""
        if isinstance(context, str):
            return context.encode("utf-8", "replace")
        return self.vocabulary.context_bytes(context)


class Session:
    """One sequence under a guard.

    The guarantee holds for whoever only advances by tokens that `mask()` allows and ends only where `may_end`.
    `fork` copies, `rollback` goes back; both cost O(tokens) at most. Pickled it is its guard, context and
    tokens, which are read again where it is unpickled.
    """

    def __init__(self, bound: BoundGuard, context: bytes = b"") -> None:
        if not isinstance(bound, BoundGuard) or not isinstance(context, bytes):
            raise ArgumentError("bound, context: a session is made by guard.bind(tokenizer).session(context)")
        self._bound = bound
        self._context = context
        self._ids: list[int] = []
        self._states: list[int] = []
        self._tables: JointTables | None = None
        _ = self._state

    def __reduce__(self) -> tuple[Any, ...]:
        return _replayed, (self._bound, self._context, tuple(self._ids))

    def __copy__(self) -> Session:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self.fork()

    def _ask(self, question: Callable[[JointTables, int], T]) -> T:
        """Ask the present tables about the current state; where an automaton meets its limit, fresh ones, once.

        Errors: `StateLimitError` where this text alone is too much for a rule; the guard is whole for all others.
        """
        try:
            return question(*self._now())
        except StateLimitError:
            return question(*self._now())

    def _now(self) -> tuple[JointTables, int]:
        """The present tables and the current joint state in them; replayed if they were replaced.

        To be asked once for whatever is done: another thread may replace the tables at any moment, and a state means
        nothing to other tables than its own.
        """
        tables = self._bound.tables
        broken_off = len(self._states) != len(self._ids) + 1  # between two lines
        if broken_off or tables is not self._tables:
            states = [tables.start_after(self._context)]
            for token in self._ids:
                states.append(tables.next(states[-1], token))
            self._tables, self._states = tables, states
        return tables, self._states[-1]

    @property
    def _state(self) -> int:
        return self._ask(lambda _, state: state)

    def forbidden_ids(self, remaining: int | None = None) -> NDArray[np.int64]:
        """Sorted ids of the forbidden tokens, int64; shared, read-only.

        `remaining`: how many tokens may still follow the next one, where that is known; near the limit, tokens after
        which the text could not end in time are forbidden too. Errors: `ArgumentError` for what is no whole number,
        `ArgumentValueError` for a negative one.
        """
        left = _checked_remaining(remaining)
        return self._ask(lambda tables, state: tables.forbidden(state, left))

    def mask(self, remaining: int | None = None) -> NDArray[np.bool_]:
        """bool [vocab_width], True = forbidden. Cost: O(vocab_width); `forbidden_ids` is the sparse form."""
        mask = np.zeros(self._bound.vocabulary.width, bool)
        mask[self.forbidden_ids(remaining)] = True
        return mask

    def penalties(self) -> NDArray[np.float32]:
        """float32 [vocab_width]: what soft rules subtract from each logit."""
        amounts = np.zeros(self._bound.vocabulary.width, np.float32)
        ids, values = self._ask(lambda tables, state: tables.penalties(state))
        amounts[ids] = values
        return amounts

    def advance(self, token_id: int) -> None:
        """Append a token.

        Errors: `ForbiddenTokenError` for one that the mask forbids (the session stays as it was), `ArgumentError` for
        what is no token id, `GenerationError` after the end.
        """
        token_id = self._checked_token(token_id)
        tables, state, reached = self._ask(
            lambda tables, state: (tables, state, tables.next(state, token_id))
        )
        if state == ENDED:
            raise GenerationError("this sequence has ended; call rollback() or start another session")
        if reached == VIOLATED:
            rules = ", ".join(tables.rules_at_fault(state, token_id)) or "no token of the tokenizer"
            raise ForbiddenTokenError(f"token {token_id} is forbidden at step {len(self._ids)}: {rules}")
        self._ids.append(token_id)
        self._states.append(reached)

    def _checked_token(self, token_id: object) -> int:
        token = whole("token_id", token_id, "give the id of one token, as int(logits.argmax())")
        width = self._bound.vocabulary.width
        if not 0 <= token < width:
            raise ForbiddenTokenError(f"token {token} is outside the vocabulary of {width} columns")
        return token

    @overload
    def explain(self, token_id: int, *, remaining: int | None = None) -> TokenExplanation: ...
    @overload
    def explain(
        self, token_id: None = None, *, remaining: int | None = None, limit: int = 20
    ) -> Explanation: ...
    def explain(
        self, token_id: int | None = None, *, remaining: int | None = None, limit: int = 20
    ) -> TokenExplanation | Explanation:
        """Why a token is forbidden here, or, without one, what all rules forbid here and why.

        Agrees with `mask(remaining)` for every token: one is forbidden if and only if some reason given forbids it.
        What comes back holds rule ids and offsets in `text`, never text. `limit`: how many forbidden tokens the
        whole explanation shows; all are counted.

        Cost: for developers, not for decoding. At first an automaton for each rule; then each rule's steps over the
        text and over what is forbidden (over the vocabulary, if rules are soft or monitored). Errors:
        `ForbiddenTokenError` for a token outside the vocabulary, `ArgumentValueError` for a negative limit.
        """
        bound, remaining = self._bound, _checked_remaining(remaining)
        tables, state, forbidden = self._ask(
            lambda tables, state: (tables, state, tables.forbidden(state, remaining))
        )
        tokens_left = HORIZON if remaining is None else min(remaining, HORIZON)
        if token_id is not None:
            token_id = self._checked_token(token_id)
            if state == ENDED:
                from nco_guard.analysis import TokenExplanation

                return TokenExplanation(token_id, False, ())
            token = np.array([token_id], np.int64)
            masked = np.isin(token, forbidden)
            with bound._explaining() as explainer:
                return explainer.tokens(self._context, self._ids, token, masked, tokens_left)[0]
        limit = whole("limit", limit, "give how many tokens are to be shown", least=0)
        late = np.setdiff1d(forbidden, tables.forbidden(state)) if tokens_left < HORIZON else forbidden[:0]
        with bound._explaining() as explainer:
            return explainer.everything(
                self._context, self._ids, forbidden, late, tokens_left, ended=state == ENDED, limit=limit
            )

    @property
    def may_end(self) -> bool:
        """Whether the text may end here (and so whether end-of-sequence is allowed)."""
        return self._ask(lambda tables, state: tables.may_end(state))

    @property
    def dead_end(self) -> bool:
        """Whether nothing is allowed here, end-of-sequence included. Never so for one who kept to the masks, unless
        the policy leaves no text at all that this vocabulary can write.
        """
        return self._ask(
            lambda tables, state: (
                state != ENDED and len(tables.forbidden(state)) == self._bound.vocabulary.width
            )
        )

    @property
    def ended(self) -> bool:
        """Whether end-of-sequence was the last token."""
        return self._state == ENDED

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens so far."""
        return tuple(self._ids)

    @property
    def text(self) -> str:
        """The text so far, as the tokenizer decodes it; an unfinished character at its end shows as U+FFFD."""
        return self._bound.vocabulary.text_of(self._ids)

    def under(self, bound: BoundGuard) -> Session:
        """The same text under another guard, e.g. one with a rule more; this session stays as it is.

        Cost: a step a token. Errors: `ForbiddenTokenError` if the text breaks that guard's policy already,
        `TokenizerError` if it is bound to another vocabulary.
        """
        if not isinstance(bound, BoundGuard):
            raise ArgumentError(
                f"bound: {type(bound).__name__} is no bound guard; give guard.bind(tokenizer)"
            )
        if bound.vocabulary.digest != self._bound.vocabulary.digest:
            raise TokenizerError(
                "the other guard is bound to another vocabulary; bind it to the same tokenizer"
            )
        copy = Session(bound, self._context)
        for token in self._ids:
            copy.advance(token)
        return copy

    def fork(self) -> Session:
        """An independent copy."""
        copy = Session.__new__(Session)
        copy._bound, copy._context, copy._tables = self._bound, self._context, self._tables
        copy._ids, copy._states = self._ids.copy(), self._states.copy()
        return copy

    def rollback(self, n: int = 1) -> None:
        """Take back the last n tokens.

        Errors: `ArgumentValueError` for n outside 0 to the number of tokens, `ArgumentError` for what is no whole
        number.
        """
        if not 0 <= whole("n", n, "give how many tokens are to be taken back") <= len(self._ids):
            raise ArgumentValueError(f"n must be between 0 and {len(self._ids)}, got {n}")
        if n:
            del self._ids[-n:], self._states[-n:]


def _replayed(bound: BoundGuard, context: bytes, ids: tuple[int, ...]) -> Session:
    session = Session(bound, context)
    for token in ids:
        session.advance(token)
    return session


def _checked_remaining(remaining: int | None) -> int | None:
    if remaining is None:
        return None
    remedy = "give how many tokens may follow the next one, or None where no limit is known"
    return whole("remaining", remaining, remedy, least=0)
