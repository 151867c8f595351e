"""`NCOGuardPostprocessor`: retrieved text, verified before a model or a user sees it."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.llms.nco_guard.copies import Travelling
from llama_index.llms.nco_guard.nodes import clean_node, renderings, rules_in_node, unsearchable

from nco_guard import Guard, OnMatch, arguments
from nco_guard.audit import Sink
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.guards import GuardSource, as_guard, check_replacement
from nco_guard.scan import Replacement
from nco_guard.values import Cleaner
from nco_guard.values.observing import Observer

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
        audit: receives a verification of each node's text, and one of what else in it holds a match, with the node's
            place in the list; never text. The sink of a `Guard` by default.

    Cost: linear in the text, as `nco_guard.Verifier`. Images, sound, video and objects in nodes cannot be searched:
    "redact" takes them out of the node, "drop" leaves the node out, "raise" raises `UnsupportedError`. Raises
    `PolicyError` at construction for a replacement that is itself forbidden. With a sink it cannot be pickled
    (`UnsupportedError`).

    Examples:
        >>> from llama_index.core.schema import NodeWithScore, TextNode
        >>> node = NodeWithScore(node=TextNode(text="Write to jane.doe@example.com."))
        >>> NCOGuardPostprocessor("pii").postprocess_nodes([node])[0].text
        'Write to [redacted].'
    """

    action: OnMatch = Field(description="What is done about a match.")
    policy_name: str = Field(description="Name of the policy.", frozen=True)
    policy_digest: str = Field(description="The digest of the policy, as the guard shows it.", frozen=True)

    _guard: Guard = PrivateAttr()
    _replacement: Replacement = PrivateAttr()

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
        checked = as_guard(guard, audit=audit, enforces=False)
        check_replacement(checked, replacement)
        fields: dict[str, Any] = {
            "action": action,
            "policy_name": checked.policy.name,
            "policy_digest": checked.log.digest,  # which may be keyed
            "callback_manager": callback_manager or CallbackManager([]),
        }
        super().__init__(**fields)
        self._guard, self._replacement = checked, replacement

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of this class."""
        return "NCOGuardPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        recorder = self._guard.log.own_recorder()
        cleaner = Cleaner(self._guard, replacement=self._replacement, where="retrieved text")
        kept: list[NodeWithScore] = []
        for number, scored in enumerate(nodes):
            node = scored.node
            found = rules_in_node(node, cleaner)
            if recorder is not None:
                self._record(Observer(self._guard, recorder, number), node)
            blind = unsearchable(node)
            if self.action == "report" or not (found or blind):
                kept.append(scored)
            elif self.action == "raise":
                raise ViolationError(found, "retrieved text") if found else _unsearchable(node, blind)
            elif self.action == "redact":
                kept.append(NodeWithScore(node=clean_node(node, cleaner), score=scored.score))
        return kept

    def _record(self, observer: Observer, node: BaseNode) -> None:
        """Where matches are in the text that LlamaIndex renders of a node, and which rules match in all else."""
        observer.text(node.get_content(metadata_mode=MetadataMode.ALL))
        observer.rest([node, renderings(node)])


def _unsearchable(node: BaseNode, name: str | None) -> UnsupportedError:
    return UnsupportedError(
        f"a retrieved {type(node).__name__} has {name}, which cannot be searched; leave such nodes out of the index, "
        f"or use action='redact' or 'drop'"
    )
