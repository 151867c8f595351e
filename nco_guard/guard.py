"""The front door: a policy, compiled once, and everything one does with it."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from nco_guard.arguments import OnMatch, names_arguments
from nco_guard.audit import History, PolicyLog, Sink
from nco_guard.audit.sinks import checked_sink
from nco_guard.automata import Cutting
from nco_guard.compiler import CompiledPolicy, arrived, compile_policy
from nco_guard.copies import Shared
from nco_guard.errors import MissingExtraError, UnsupportedError
from nco_guard.policy import Policy, Rule
from nco_guard.policy.presets import PresetOptions
from nco_guard.policy.twins import with_json_twins
from nco_guard.scan import Verifier
from nco_guard.scan.findings import Report
from nco_guard.scan.holding import StreamVerifier
from nco_guard.scan.redaction import Redaction, redact
from nco_guard.scan.replacing import Replacement
from nco_guard.session import BoundGuard
from nco_guard.shapes import Shape, ShapeSource, as_shape
from nco_guard.shapes.contradictions import prune
from nco_guard.storage.store import Store
from nco_guard.tokens import Binding, Borders, shared_vocabulary, state_of

if TYPE_CHECKING:
    import torch

    from nco_guard.engines import hf
    from nco_guard.engines.hf.parameters import (
        Chat,
        GenerationOptions,
        ProcessorOptions,
        Prompts,
        StreamOptions,
    )

__all__ = ["Guard"]

_Key = tuple[Any, ...]
_SHAPES = 16  # for which guards are kept
_MADE_AGAIN = {
    "_compiled",
    "_log",
    "_bound",
    "_relatives",
    "_shapes",
    "_lock",
    "_audit",
    "_correlation_key",
    "_digest_key",
}
Cache = bool | str | os.PathLike[str] | None


class Guard(Shared):
    """A policy that can be enforced.

    | what you have | what to call |
    |---|---|
    | a policy | `Guard(policy)`, `from_file`, `from_presets`; `with_policy`, `with_rules`, `without`; `with_audit` |
    | text in hand | `verify`, `redact`; `stream_verifier` for text that comes in pieces; `verifier` for many texts |
    | a model | `generate`, `stream`; `wrap` for a pipeline |
    | a schema, too | `with_shape`, or `shape=` of what generates |
    | a tokenizer | `bind` for sessions and engines of your own, `logits_processor` for `model.generate` |
    | a guard | `policy`, `log` |

    Building one compiles and checks every rule; a policy that cannot be enforced exactly is refused here, before any
    model runs. A guard is immutable and may be shared between threads and models.

    `audit` receives the events of every generation, see `nco_guard.audit`; it never receives text. With a
    `correlation_key` (16 bytes or more) findings in them hold a keyed hash of what matched. With a `digest_key` the
    policy's digest in them, which is a hash of what it forbids, is keyed (`nco_guard.audit.policy_hmac`); a
    `correlation_key` alone does that too.

    `cache`: where what is worked out is kept on disk for the next process: True for the platform's cache folder, a path
    for another, False for nowhere. None, the default: what the environment variable `NCO_GUARD_CACHE` says (`1` or a
    path), else nowhere. Results are the same with and without.

    Copies within the process are the guard itself. To another process it travels as its policy and the folder of its
    cache, and is compiled again there; its history does not come along. With an audit sink or a key it cannot
    be pickled (`UnsupportedError`): neither leaves its process.

    Errors: `PolicyError` and its kin, naming rule and field.

    Examples:
        >>> guard = Guard.from_presets("pii")
        >>> guard.verify("Write to jane.doe@example.com.").ok
        False
        >>> guard.redact("Write to jane.doe@example.com.").text
        'Write to [redacted].'
    """

    @names_arguments
    def __init__(
        self,
        policy: Policy,
        *,
        audit: Sink | None = None,
        cache: Cache = None,
        correlation_key: bytes | None = None,
        digest_key: bytes | None = None,
    ) -> None:
        self._store = Store.chosen(cache)
        self._audit, self._correlation_key, self._digest_key = audit, correlation_key, digest_key
        self._shape: Shape | None = None
        self._left_of_shape: Shape | None = None
        self._begin(compile_policy(policy, store=self._store))

    def _begin(self, compiled: CompiledPolicy) -> None:
        self._compiled = compiled
        self._log = self._logged(compiled.policy, History())
        self._bound: dict[_Key, BoundGuard] = {}
        # The nearest of this guard and those that it was revised from which is bound so, for those revised from it.
        self._relatives: dict[_Key, tuple[weakref.ref[Any], BoundGuard]] = {}
        self._shapes: OrderedDict[Shape, Guard] = OrderedDict()
        self._lock = threading.Lock()

    def _logged(self, policy: Policy, history: History, *, enforces: bool = True) -> PolicyLog:
        keys = self._correlation_key, self._digest_key
        return PolicyLog(policy, self._audit, history, *keys, enforces=enforces)

    def __getstate__(self) -> dict[str, Any]:
        for name in ("audit", "correlation_key", "digest_key"):
            if vars(self)[f"_{name}"] is not None:
                raise UnsupportedError(
                    f"{name}: a guard that has one cannot be pickled, since sinks and keys stay in their process; send "
                    f"guard.policy, and make Guard(policy, {name}=...) there"
                )
        own = {name: value for name, value in vars(self).items() if name not in _MADE_AGAIN}
        return {**own, "policy": self.policy, "_store": self._store}

    def __setstate__(self, state: dict[str, Any]) -> None:
        policy = state.pop("policy")
        self.__dict__.update(state)
        self._audit = self._correlation_key = self._digest_key = None
        self._begin(arrived(policy, self._store))

    @classmethod
    @names_arguments
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        audit: Sink | None = None,
        cache: Cache = None,
        correlation_key: bytes | None = None,
        digest_key: bytes | None = None,
    ) -> Guard:
        """A guard from a YAML or JSON policy file.

        Examples:
            >>> _ = open("policy.yaml", "w").write("name: p\\nrules: [{id: rival, strings: [Acme Corp]}]")
            >>> Guard.from_file("policy.yaml").verify("Ask Acme Corp.").ok
            False
        """
        policy = Policy.from_file(path)
        return cls(policy, audit=audit, cache=cache, correlation_key=correlation_key, digest_key=digest_key)

    @classmethod
    def from_presets(
        cls,
        *names: str,
        audit: Sink | None = None,
        cache: Cache = None,
        correlation_key: bytes | None = None,
        digest_key: bytes | None = None,
        name: str | None = None,
        description: str = "",
        **options: Unpack[PresetOptions],
    ) -> Guard:
        """A guard from presets, e.g. `Guard.from_presets("pii", "ldnoobw")`; `options` as of `Policy.from_presets`.

        Examples:
            >>> guard = Guard.from_presets("pii", "secrets", json_escapes=True)
            >>> guard.policy.name
            'pii+secrets'
        """
        policy = Policy.from_presets(*names, name=name, description=description, **options)
        return cls(policy, audit=audit, cache=cache, correlation_key=correlation_key, digest_key=digest_key)

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self._compiled.policy

    def with_policy(self, policy: Policy) -> Guard:
        """A guard for another policy, with the same audit sink, history and cache; this one stays as it is.

        Rules that both policies have are not compiled again, and what was found about them under any tokenizer is
        shared: a policy a request costs what is new in it. Errors: as `Guard`.

        Examples:
            >>> guard = Guard.from_presets("pii").with_policy(Policy.from_presets("secrets"))
            >>> guard.policy.name
            'secrets'
        """
        if self._shape is not None and self._shape.says_json:
            policy = with_json_twins(policy)
        revised = self._revised(self._compiled.revised(policy), self._audit)
        revised._fit()
        return revised

    def with_audit(self, audit: Sink, *, enforces: bool = True) -> Guard:
        """This guard with another audit sink; see `with_policy`. Errors: `ArgumentError` for what is no sink.

        enforces: False for a guard that others' texts are only verified by: the sink does not hear that its policy is
        loaded.

        Examples:
            >>> from nco_guard.audit import MemorySink
            >>> guard = Guard.from_presets("pii").with_audit(MemorySink())
            >>> [event.kind for event in guard.log.sink.events]
            ['policy_loaded']
        """
        return self._revised(self._compiled, checked_sink(audit), enforces=enforces)

    def _revised(self, compiled: CompiledPolicy, audit: Sink | None, *, enforces: bool = True) -> Guard:
        guard = Guard.__new__(type(self))
        guard.__dict__.update(self.__dict__)
        guard._compiled, guard._audit = compiled, audit
        guard._log = guard._logged(compiled.policy, self._log.history, enforces=enforces)
        guard._bound, guard._shapes, guard._lock = {}, OrderedDict(), threading.Lock()
        with self._lock:
            guard._relatives = {k: v for k, v in self._relatives.items() if v[0]() is not None}
        return guard

    def with_rules(self, *rules: Rule | Mapping[str, Any]) -> Guard:
        """A guard with more rules; see `with_policy`. Errors: `PolicyError` for an id that it has already.

        Examples:
            >>> guard = Guard.from_presets("pii").with_rules(StringRule(id="rival", strings=["Acme Corp"]))
            >>> guard.verify("Ask Acme Corp.").findings[0].rule_id
            'rival'
        """
        return self.with_policy(self.policy.with_rules(*rules))

    def without(self, *rule_ids: str) -> Guard:
        """A guard without some rules; see `with_policy`. Errors: `PolicyError` for an id that it does not have.

        Examples:
            >>> Guard.from_presets("pii").without("pii.email").verify("jane.doe@example.com").ok
            True
        """
        return self.with_policy(self.policy.without(*rule_ids))

    def with_shape(self, shape: ShapeSource) -> Guard:
        """This guard, for texts that are to be of a shape as well; `generate(shape=)` and its like use it.

        shape: a `Shape`, a JSON Schema as a mapping, or a pydantic class; None: none. Where it is JSON, what the
        policy forbids anyway is taken out of the schema (`shapes.contradictions.prune`), each hard rule is also
        enforced on what strings say once they are parsed (the rule's id and `:json`), and numbers are written as they
        print.

        Cost: a revised policy's; the last few are kept. Errors: `ShapeError` and `ArgumentError`, as `Shape.json`;
        `ContradictionError`, naming field and rules; what nothing can be written of is refused by `bind`.

        Examples:
            >>> guard = Guard.from_presets("pii").with_shape({"type": "string"})
            >>> guard.bind(tokenizer).session().may_end
            False
        """
        wanted = None if shape is None else as_shape(shape)
        if wanted == self._shape:
            return self
        with self._lock:
            found = None if wanted is None else self._shapes.get(wanted)
        if found is None:
            policy = with_json_twins(self.policy) if wanted is not None and wanted.says_json else self.policy
            found = self._revised(self._compiled.revised(policy), self._audit)
            found._shape = wanted
            found._fit()
            if wanted is not None:
                with self._lock:
                    found = self._shapes.setdefault(wanted, found)
                    while len(self._shapes) > _SHAPES:
                        self._shapes.popitem(last=False)
        return found

    def _fit(self) -> None:
        """Take out of the shape what the policy forbids anyway; refuse it where nothing is left."""
        shape = self._shape
        if shape is not None:
            shape = shape.left_by(lambda schema: prune(schema, self._compiled)[0])
        self._left_of_shape = shape

    @property
    def log(self) -> PolicyLog:
        """What is recorded: `log.history`, the last runs; `log.sink`, for events; `log.digest`, the policy's in it.

        Examples:
            >>> guard = Guard.from_presets("pii")
            >>> _ = guard.generate(model, tokenizer, "Write to", max_new_tokens=4)
            >>> guard.log.history.runs[0].tokens
            4
        """
        return self._log

    def __repr__(self) -> str:
        # No digest: a few digits of one are enough to try policies by.
        return f"Guard(policy={self.policy.name!r}, rules={len(self.policy.rules)})"

    def bind(
        self,
        tokenizer: Any,
        *,
        vocab_width: int | None = None,
        skip_special_tokens: bool = True,
        eos_token_ids: Iterable[int] | None = None,
        borders: Borders = None,
        regions: Cutting | None = None,
    ) -> BoundGuard:
        """The guard seen through a tokenizer: immutable, shareable, kept for the next call with the same arguments.

        `vocab_width`: columns of the model's logits, where they are more than the tokenizer has tokens.
        `skip_special_tokens`: how the text will be decoded. `eos_token_ids`: further ids that end the text, e.g. those
        of the model's generation configuration. `borders`: the ids of tokens at which the text will be cut into parts
        that are shown apart, or "special" for all special tokens; each rule then holds in each part by itself and in
        all of them joined, as `verify(parts=...)` looks. `regions`: how marks will cut the raw reply into fields; each
        rule then holds in what is shown of each, as `verify(text, regions=...)` looks.

        Cost: reading the vocabulary once per tokenizer, for all guards, then some milliseconds per rule. Errors:
        `TokenizerError`.

        Examples:
            >>> bound = Guard.from_presets("pii").bind(tokenizer)
            >>> bound.session().forbidden_ids().size > 0
            True
        """
        cutting = regions.begun_by("") if isinstance(regions, Cutting) else regions
        binding = Binding.checked(vocab_width, skip_special_tokens, eos_token_ids, borders, cutting)
        # Tokens can be added to a tokenizer after it was bound, and its settings switched.
        plain = (id(tokenizer), state_of(tokenizer), binding, None)
        key = (*plain[:3], self._left_of_shape)
        with self._lock:
            bound = self._bound.get(key)
            if bound is None:
                owner, relative = self._relatives.get(key, (None, None))
                if relative is not None and owner is not None and owner() is tokenizer:
                    bound = relative.revised(self._compiled)
                else:
                    vocabulary = shared_vocabulary(tokenizer, binding, store=self._store)
                    owner, known = self._relatives.get(plain, (None, None))
                    like = known if owner is not None and owner() is tokenizer else None
                    bound = BoundGuard(
                        self._compiled,
                        vocabulary,
                        store=self._store,
                        like=like,
                        shape=self._left_of_shape,
                        begun="" if regions is None else regions.begun,
                    )
                self._bound[key] = bound
                self._relatives[key] = (weakref.ref(tokenizer), bound)
                # An id may be used again once its object is gone.
                weakref.finalize(tokenizer, self._bound.pop, key, None)
                weakref.finalize(tokenizer, self._relatives.pop, key, None)
        return bound if regions is None else bound.begun_by(regions.begun)

    @property
    def verifier(self) -> Verifier:
        """What `verify` searches with, kept: for many texts, long ones, files. See `nco_guard.Verifier`.

        Examples:
            >>> verifier = Guard.from_presets("pii").verifier
            >>> [report.ok for report in verifier.verify_many(["Nothing here.", "Write to jane.doe@example.com."])]
            [True, False]
        """
        return Verifier.of(self._compiled)

    def verify(
        self,
        text: str | None = None,
        *,
        context: str = "",
        parts: Sequence[str] | None = None,
        regions: Cutting | None = None,
    ) -> Report:
        """All matches in a finished text, or in one that is shown in `parts` or `regions`, found without the masks.

        See `nco_guard.verify`.

        Cost: a tenth of a second for large presets when it is called first, then some milliseconds at most for what a
        model writes in one go.

        Examples:
            >>> report = Guard.from_presets("pii").verify("Write to jane.doe@example.com.")
            >>> [(found.rule_id, found.start, found.end) for found in report.findings]
            [('pii.email', 9, 29)]
        """
        return self.verifier.verify(text, context=context, parts=parts, regions=regions)

    def redact(self, text: str, *, replacement: Replacement = None, context: str = "") -> Redaction:
        """A finished text with every match of a hard rule replaced. See `nco_guard.redact`.

        Cost: that of `verify`, twice where something was replaced.

        Examples:
            >>> Guard.from_presets("pii").redact("Write to jane.doe@example.com.", replacement="***").text
            'Write to ***.'
        """
        return redact(self._compiled, text, replacement=replacement, context=context)

    def stream_verifier(
        self,
        *,
        action: OnMatch = "redact",
        replacement: Replacement = None,
        context: str = "",
        where: str = "text",
    ) -> StreamVerifier:
        """For text that somebody else streams: takes pieces, gives back what may be shown. See `StreamVerifier`.

        Examples:
            >>> stream = Guard.from_presets("pii").stream_verifier()
            >>> shown = [stream.feed(piece) for piece in ("Write to jane.d", "oe@example.com", ", please.")]
            >>> "".join(shown) + stream.finish()
            'Write to [redacted], please.'
        """
        return StreamVerifier(
            self._compiled, action=action, replacement=replacement, context=context, where=where
        )

    # -- transformers ------------------------------------------------------------------------------------------

    def logits_processor(
        self,
        tokenizer: Any,
        *,
        guards: Sequence[Guard | None] | None = None,
        shape: ShapeSource = None,
        vocab_width: int | None = None,
        skip_special_tokens: bool = True,
        eos_token_ids: Iterable[int] | None = None,
        borders: Borders = None,
        regions: Cutting | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> hf.GuardLogitsProcessor:
        """A processor for `model.generate(..., logits_processor=[...])`.

        It cannot know how generation will be cut short: pass `max_new_tokens` or `max_length` as given to `generate`,
        or use `Guard.generate`, which takes care of every end. `guards`: one for each prompt of a batch, in place of
        this one; None there stands for this one. `shape`: as of `generate`. `vocab_width`, `skip_special_tokens`,
        `eos_token_ids`, `borders` and `regions` are those of `bind`, the rest those of
        `engines.hf.GuardLogitsProcessor`.

        Examples:
            >>> guard = Guard.from_presets("pii")
            >>> ids = tokenizer("Write to", return_tensors="pt").input_ids
            >>> processor = guard.logits_processor(tokenizer, max_new_tokens=8)
            >>> written = model.generate(ids, logits_processor=[processor], max_new_tokens=8)[0, ids.shape[1] :]
            >>> guard.verify(tokenizer.decode(written, skip_special_tokens=True)).ok
            True
        """
        from nco_guard.engines.calls import guards_for  # whoever only verifies loads no engine

        bound = [
            guard.bind(
                tokenizer,
                vocab_width=vocab_width,
                skip_special_tokens=skip_special_tokens,
                eos_token_ids=eos_token_ids,
                borders=borders,
                regions=regions,
            )
            for each in guards_for(self, guards)
            for guard in (each if shape is None else each.with_shape(shape),)
        ]
        processor: hf.GuardLogitsProcessor = _hf().GuardLogitsProcessor(bound, **options)
        return processor

    def generate(
        self,
        model: Any,
        tokenizer: Any,
        prompts: Prompts,
        *,
        guards: Sequence[Guard | None] | None = None,
        shape: ShapeSource = None,
        skip_special_tokens: bool = True,
        borders: Borders = None,
        regions: Cutting | None = None,
        on_step: Callable[[hf.StepReport], None] | None = None,
        tables: Literal["auto", "host", "device"] = "host",
        **options: Unpack[GenerationOptions],
    ) -> hf.GenerationResult:
        """Generate under this guard: texts, verifier's reports and outcomes. See `engines.hf.generate`.

        `guards=[other, None, ...]`: a guard for each prompt in place of this one (None: this one). `shape`: what the
        texts are to look like (`with_shape`); it is closed before `max_new_tokens` runs out.

        Examples:
            >>> result = Guard.from_presets("pii").generate(model, tokenizer, ["Write to", "Call"], max_new_tokens=8)
            >>> [report.ok for report in result.reports]
            [True, True]
        """
        if shape is not None and guards is not None:
            guards = [None if each is None else each.with_shape(shape) for each in guards]
        result: hf.GenerationResult = _hf().generate(
            self if shape is None else self.with_shape(shape),
            model,
            tokenizer,
            prompts,
            guards=guards,
            skip_special_tokens=skip_special_tokens,
            borders=borders,
            regions=regions,
            on_step=on_step,
            tables=tables,
            **options,
        )
        return result

    def stream(
        self,
        model: Any,
        tokenizer: Any,
        prompt: str | Chat | torch.Tensor | Mapping[str, Any],
        *,
        shape: ShapeSource = None,
        skip_special_tokens: bool = True,
        borders: Borders = None,
        regions: Cutting | None = None,
        on_step: Callable[[hf.StepReport], None] | None = None,
        tables: Literal["auto", "host", "device"] = "host",
        on_result: Callable[[hf.GenerationResult], None] | None = None,
        **options: Unpack[StreamOptions],
    ) -> Iterator[str]:
        """`generate` for one prompt, piece by piece; what was shown is never taken back. See `engines.hf.stream`.

        With a `shape`, pieces are shown as the policy allows, before it is closed.

        Examples:
            >>> guard = Guard.from_presets("pii")
            >>> text = "".join(guard.stream(model, tokenizer, "Write to", max_new_tokens=8))
            >>> guard.verify(text).ok
            True
        """
        pieces: Iterator[str] = _hf().stream(
            self if shape is None else self.with_shape(shape),
            model,
            tokenizer,
            prompt,
            skip_special_tokens=skip_special_tokens,
            borders=borders,
            regions=regions,
            on_step=on_step,
            tables=tables,
            on_result=on_result,
            **options,
        )
        return pieces

    def wrap(self, pipe: Any) -> hf.WrappedPipeline:
        """A transformers text-generation pipeline whose every call is guarded. See `engines.hf.wrap`.

        Examples:
            >>> guard = Guard.from_presets("pii")
            >>> answer = guard.wrap(pipe)("Write to", max_new_tokens=8, return_full_text=False)
            >>> guard.verify(answer[0]["generated_text"]).ok
            True
        """
        guarded: hf.WrappedPipeline = _hf().wrap(self, pipe)
        return guarded


def _hf() -> Any:
    try:
        from nco_guard.engines import hf
    except ImportError as error:
        if error.name in ("torch", "transformers"):
            raise MissingExtraError("generation with transformers", "hf") from error
        raise
    return hf
