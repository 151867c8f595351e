"""`NCOGuardPostprocessor`: retrieved text, verified before a model or a user sees it."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.llms.nco_guard.copies import Travelling
from llama_index.llms.nco_guard.nodes import clean_node, rules_in_node, unsearchable

from nco_guard import OnMatch, arguments
from nco_guard.audit import RunRecorder, Sink
from nco_guard.compiler import CompiledPolicy
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.guards import GuardSource, as_guard
from nco_guard.scan import Replacement, Verifier
from nco_guard.values import Cleaner

__all__ = ["NCOGuardPostprocessor"]


class NCOGuardPostprocessor(Travelling, BaseNodePostprocessor):
    """Searches retrieved nodes for what a policy forbids, and redacts, drops or refuses them.

    Guarantee: in what it returns, no hard rule matches in any node's text, in its metadata (those of its source and
    neighbours included), in paths, addresses and ids, or in the text that LlamaIndex renders of content and metadata;
    "report" returns the nodes as they came. Nodes of the index are not changed: what is redacted is a copy, without its
    embedding. An id that matches becomes another, the same everywhere in the process. Each node is searched by itself.

    Args:
        guard: a `Guard`, a `Policy`, a preset's name or several, or the path of a policy file (`nco_guard.guards`).
        action: "redact" replaces matches, "drop" leaves nodes with a match out, "raise" raises `ViolationError`,
            "report" only records.
        replacement: what stands where a match was, a text or a function from a rule's id to one.
        audit: receives one verification event per node, offsets and never text.

    Cost: linear in the text, as `nco_guard.Verifier`. Images, sound, video and objects in nodes cannot be searched:
    "redact" takes them out of the node, "drop" leaves the node out, "raise" raises `UnsupportedError`. Raises
    `PolicyError` at construction for a replacement that is itself forbidden.

    Examples:
        >>> from llama_index.core.schema import NodeWithScore, TextNode
        >>> node = NodeWithScore(node=TextNode(text="Write to jane.doe@example.com."))
        >>> NCOGuardPostprocessor("pii").postprocess_nodes([node])[0].text
        'Write to [redacted].'
    """

    action: OnMatch = Field(description="What is done about a match.")
    policy_name: str = Field(description="Name of the policy.", frozen=True)
    policy_digest: str = Field(description="The digest of the policy, as the guard shows it.", frozen=True)

    _policy: CompiledPolicy = PrivateAttr()
    _replacement: Replacement = PrivateAttr()
    _audit: Sink | None = PrivateAttr(default=None)
    _verifier: Verifier = PrivateAttr()

    def __init__(
        self,
        guard: GuardSource,
        *,
        action: OnMatch = "redact",
        replacement: Replacement = None,
        audit: Sink | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        arguments.choice("action", action, ("redact", "drop", "raise", "report"))
        checked = as_guard(guard)
        compiled = checked.verifier.compiled
        Cleaner(compiled, replacement=replacement)  # a forbidden replacement is refused here
        fields: dict[str, Any] = {
            "action": action,
            "policy_name": compiled.policy.name,
            "policy_digest": checked.log.digest,  # which may be keyed
            "callback_manager": callback_manager or CallbackManager([]),
        }
        super().__init__(**fields)
        keyed = None if audit is None else checked.log.keyed(audit)
        self._policy, self._replacement, self._audit = compiled, replacement, keyed
        self._verifier = Verifier.of(compiled)

    def __getstate__(self) -> dict[Any, Any]:
        if self._audit is not None:
            raise UnsupportedError(
                "audit: a postprocessor that has a sink cannot be pickled, since sinks stay in their process; make it "
                "anew there"
            )
        return super().__getstate__()

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of this class."""
        return "NCOGuardPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        recorder = RunRecorder(self._audit) if self._audit is not None else None
        cleaner = Cleaner(self._policy, replacement=self._replacement, where="retrieved text")
        kept: list[NodeWithScore] = []
        for scored in nodes:
            node = scored.node
            found = rules_in_node(node, cleaner)
            if recorder is not None:
                self._record(recorder, scored, ok=not found)
            blind = unsearchable(node)
            if self.action == "report" or not (found or blind):
                kept.append(scored)
            elif self.action == "raise":
                raise ViolationError(found, "retrieved text") if found else _unsearchable(node, blind)
            elif self.action == "redact":
                kept.append(NodeWithScore(node=clean_node(node, cleaner), score=scored.score))
        return kept

    def _record(self, recorder: RunRecorder, scored: NodeWithScore, *, ok: bool) -> None:
        """What is recorded of a node is about the text that LlamaIndex renders of it."""
        shown = self._verifier.verify(scored.node.get_content(metadata_mode=MetadataMode.ALL))
        recorder.report(shown, ok=ok)


def _unsearchable(node: BaseNode, name: str | None) -> UnsupportedError:
    return UnsupportedError(
        f"a retrieved {type(node).__name__} has {name}, which cannot be searched; leave such nodes out of the index, "
        f"or use action='redact' or 'drop'"
    )
