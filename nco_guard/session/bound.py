"""A guard bound to one tokenizer: immutable and shared, one per model."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from nco_guard.arguments import whole
from nco_guard.compiler import CompiledPolicy, Constraint, compiled_of
from nco_guard.copies import Shared
from nco_guard.errors import (
    ArgumentError,
    MissingExtraError,
    PolicyError,
    ShapeError,
    ShapeLimitError,
    StateLimitError,
    UnsupportedError,
)
from nco_guard.masking import JointTables
from nco_guard.masking.answers import Tables
from nco_guard.masking.enumeration import MAX_BYTES, MAX_STATES, byte_automaton, first_states, token_table
from nco_guard.policy import Policy
from nco_guard.policy.twins import JSON_SUFFIX
from nco_guard.scan import Verifier
from nco_guard.session.session import Session
from nco_guard.session.state import Context, TextState
from nco_guard.shapes import Shape
from nco_guard.shapes.states import ShapeStates, shape_states
from nco_guard.shapes.together import ShapedTables
from nco_guard.storage.store import Store
from nco_guard.tokens import Vocabulary, shared_tree

if TYPE_CHECKING:
    import torch

    from nco_guard.analysis.explain import Explainer
    from nco_guard.masking.device import DeviceTables

__all__ = ["BoundGuard"]

_DEFAULT_LIMIT = 512 << 20
_GROWTH = 0.1  # of an automaton since it was kept, for which it is kept again when the interpreter ends
#: Stands in place of a rule where JSON would say something else than is written.
JSON_RULE = "json-text"
_PLAIN_JSON = (JSON_RULE,)
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

    Examples:
        >>> bound = Guard.from_presets("pii").bind(tokenizer)
        >>> bound.vocabulary.width == len(tokenizer)
        True
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        vocabulary: Vocabulary,
        *,
        memory_limit: int | None = None,
        store: Store | None = None,
        like: BoundGuard | None = None,
        shape: Shape | None = None,
        begun: str = "",
    ) -> None:
        """`like`: a guard over the same vocabulary. What it has found about rules that are also these is shared.

        `shape`: what texts are to look like, enforced together with the policy. A JSON shape also brings the constraint
        by which JSON says what it is written as (`automata.json_text`). `begun`: see `begun_by`.
        """
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
        self.shape = shape
        self.begun = begun
        self._states: ShapeStates | None = None
        self._shaped: ShapedTables | None = None
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
        self._fix_limit(like)
        self._tables_seconds = time.perf_counter() - started
        if store is not None:
            self._tables.save()
            _to_save_at_exit.add(self)
        if shape is not None:
            self._refuse_impossible()

    def _refuse_impossible(self) -> None:
        """Refuse a shape of which no text can be written."""
        tables = self.answers
        start = tables.start_after(b"", self.begun) if self.begun else tables.start
        if len(tables.forbidden(start)) < self.vocabulary.width:
            return
        alone = self._states is not None and len(self._states.exits(self._states.start).ids)
        if tables.stuck(start):
            raise ShapeLimitError(
                "no text of this shape was found, and that there is none was not proved: the search for one met its "
                "bound; narrow the shape (less minLength or minItems, a pattern whose matches are short), or widen the "
                "policy"
            )
        under = (
            f" under the policy {self.policy.name!r}{self._what_bars()}" if alone else " by this tokenizer"
        )
        raise ShapeError(f"no text of this shape can be written{under}; widen the shape, or the policy")

    def _what_bars(self) -> str:
        """The rules that forbid the text by which the shape is closed soonest, to be said of an error."""
        way = None if self._states is None else self._states.way(self._states.start)
        text = self.begun + (way or b"").decode("utf-8", "replace")
        found = Verifier.of(self._compiled).verify(text).findings
        rules = dict.fromkeys(each.rule_id.removesuffix(JSON_SUFFIX) for each in found if each.mode == "hard")
        return f" (the shortest is forbidden by {', '.join(map(repr, rules))})" if rules else ""

    def _constraints(self, known: Sequence[Constraint] = ()) -> tuple[Constraint, ...]:
        """The policy's; where the shape is JSON, also those of its values, and that of JSON."""
        vocabulary = self.vocabulary
        found = self._compiled.constraints(
            vocabulary.rewriting,
            borders=bool(vocabulary.borders),
            regions=vocabulary.regions,
            reuse=known,
        )
        if self.shape is None or not self.shape.says_json:
            return found
        if self.shape.kind == "json":
            found = (*found, *self._compiled.value_constraints(known))
        elif vocabulary.regions is not None:
            places = vocabulary.regions.values(self.shape.value_types)
            found = (*found, *self._compiled.value_constraints(known, places))
        source = _PLAIN_JSON if self.shape.kind == "json" else (*_PLAIN_JSON, self.shape.digest)
        kept = [each for each in known if each.source == source]
        plain = None if kept else self.shape.plain()
        return (*found, *(kept if plain is None else [Constraint((JSON_RULE,), plain, source=source)]))

    def __reduce__(self) -> tuple[Any, ...]:
        bind = partial(_bound, memory_limit=self._wanted_limit, store=self._store, shape=self.shape)
        return bind, (self.begun, self._compiled, self.vocabulary)

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

    def _fix_limit(self, like: BoundGuard | None) -> None:
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
        constraints = self._constraints(known.constraints)
        limit = self._memory_limit
        return JointTables(constraints, self.vocabulary, self._tree, memory_limit=limit, like=known)

    def begun_by(self, text: str) -> BoundGuard:
        """This guard for replies of which the prompt ends with a beginning, where they are cut into fields.

        Cost: none; what either finds is shared.
        """
        if text == self.begun:
            return self
        begun = object.__new__(BoundGuard)
        vars(begun).update(vars(self), begun=text)
        return begun

    def revised(self, compiled: CompiledPolicy) -> BoundGuard:
        """This vocabulary under a policy that was revised from this one's (`CompiledPolicy.revised`).

        Cost: that of what is new in the policy. This guard stays as it is.
        """
        return BoundGuard(
            compiled,
            self.vocabulary,
            memory_limit=self._wanted_limit,
            store=self._store,
            like=self,
            shape=self.shape,
            begun=self.begun,
        )

    def _large(self, tables: JointTables) -> bool:
        return 2 * tables.base_nbytes > self._memory_limit

    def _fresh(self, like: JointTables | None = None, store: Store | None = None) -> JointTables:
        if like is not None and (like.worn or self._large(like)):
            like = None  # what could be shared is most of it, or can go no further: begin anew, automata included
        constraints = self._constraints() if like is None else like.constraints
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

    @property
    def compiled(self) -> CompiledPolicy:
        """The policy that is enforced, compiled."""
        return self._compiled

    @cached_property
    def needs_context(self) -> bool:
        """Whether some rule looks at the prompt (`context="prompt"`)."""
        return any(rule.context == "prompt" for rule in self.policy.rules)

    @property
    def answers(self) -> Tables:
        """What texts ask: the current tables, or these and the shape. States belong to what they came from."""
        tables = self.tables
        if self.shape is None:
            return tables
        shaped = self._shaped
        if shaped is None or shaped.inner is not tables or shaped.nbytes > self._memory_limit:
            with self._lock:
                shaped = self._shaped
                if shaped is None or shaped.inner is not tables or shaped.nbytes > self._memory_limit:
                    if self._states is None or (shaped is not None and shaped.inner is tables):
                        self._states = shape_states(self.shape, self.vocabulary, tables.tokens_needed)
                    shaped = self._shaped = ShapedTables(tables, self._states)
        return shaped

    @property
    def tables(self) -> JointTables:
        """The current tables of the policy. States belong to the tables that they came from."""
        if self._tables.full:
            with self._lock:
                if self._tables.full:
                    self._limits_met = self.limits_met
                    self._tables = self._fresh(self._tables)
        return self._tables

    @property
    def limits_met(self) -> bool:
        """Whether some text has met a limit so far: of an automaton, or of how far ways out are looked for."""
        open_ = self._tables.undecided_masks + (0 if self._shaped is None else self._shaped.undecided_masks)
        return self._limits_met or self._tables.worn or open_ > 0

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
            "undecided_masks": (self._shaped or tables).undecided_masks,
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
        """These masks and transitions as tensors on a device, for decoding that never waits for the host.

        Built at the first call for a device, all states at once, and kept; see `masking.enumeration` for the cost.
        `max_states`: joint states before equal ones are merged. `max_bytes`: of the transition table.

        Errors: `StateLimitError` where they do not suffice, naming sizes and bounds (many patterns that count have too
        many joint states); `UnsupportedError` for rules that read the prompt; `MissingExtraError` without torch.
        """
        if self.shape is not None:
            raise UnsupportedError("device tables: a shape has no table of all its states; use tables='host'")
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
            constraints = self._constraints()
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
    def explaining(self) -> Iterator[Explainer]:
        """What explains the masks; made at the first call, with automata of its own, and kept until these are full.

        Errors: `UnsupportedError` where there is a shape.
        """
        from nco_guard.analysis.explain import Explainer  # who asks for no explanation does not wait for it

        if self.shape is not None:
            raise UnsupportedError(
                "explain: masks of a policy alone are explained; ask a guard without the shape"
            )

        with self._explainer_lock:
            if self._explainer is None:
                self._explainer = Explainer(self._compiled, self.vocabulary, self._tree)
            explainer = self._explainer
        try:
            yield explainer
        except StateLimitError:
            self._explainer = None
            raise

    def session(self, context: Context = None) -> Session:
        """A new sequence. `context`: the text or token ids that the output continues, for rules that read it."""
        text = TextState(self, _checked(context))
        text.ask(lambda _, state: state)  # a prompt that a rule cannot read is refused here
        return Session(text)

    def context_bytes(self, context: Context) -> bytes:
        """A prompt as well-formed UTF-8; ill-formed parts become U+FFFD, as in decoding."""
        context = _checked(context)
        if context is None or not self.needs_context:
            return b""
        if isinstance(context, str):
            return context.encode("utf-8", "replace")
        return self.vocabulary.context_bytes(context)

    def prompt_text(self, context: Context) -> str:
        """A prompt as rules that look at it read it in finished text; "" where none does.

        All of it: an end-of-sequence token, as chat templates put it after each turn, ends nothing here.
        """
        context = _checked(context)
        if context is None or not self.needs_context:
            return ""
        if isinstance(context, str):
            return context.encode("utf-8", "replace").decode()
        return self.vocabulary.continuation_of(context, ())[0]


def _bound(begun: str, *policy: Any, **options: Any) -> BoundGuard:
    return BoundGuard(*policy, **options, begun=begun)


def _checked(context: Context) -> Context:
    """The context, ids as plain numbers; what is neither text nor token ids is refused."""
    if context is None or isinstance(context, str):
        return context
    if isinstance(context, bytes) or not isinstance(context, Iterable):
        raise ArgumentError(
            f"context: {type(context).__name__} is neither; give the prompt as text or as token ids"
        )
    return [whole("context", token, "give the prompt as text or as token ids") for token in context]
