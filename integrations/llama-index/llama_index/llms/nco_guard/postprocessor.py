"""`NCOGuardPostprocessor`: retrieved text, verified before a model or a user sees it."""

from __future__ import annotations

from typing import Any, Literal

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    RelatedNodeType,
)
from llama_index.llms.nco_guard.copies import Travelling
from llama_index.llms.nco_guard.values import compiled_policy, redacted, rules_in

from nco_guard import Guard, Policy
from nco_guard.audit import RunRecorder, Sink
from nco_guard.compiler import CompiledPolicy
from nco_guard.errors import RedactionError, UnsupportedError, ViolationError
from nco_guard.redaction import REDACTED, Replacement, redact
from nco_guard.verify import verify

__all__ = ["NCOGuardPostprocessor"]

_MODES = (MetadataMode.NONE, MetadataMode.LLM, MetadataMode.ALL)
_UNSEARCHABLE = (
    "image",
    "image_path",
    "image_url",
    "image_resource",
    "audio_resource",
    "video_resource",
    "obj",
)


class NCOGuardPostprocessor(Travelling, BaseNodePostprocessor):
    """Searches retrieved nodes for what a policy forbids, and redacts, drops or refuses them.

    Guarantee: in what it returns, no hard rule matches in any node's text, in its metadata (those of its source and
    neighbours included), or in the text that LlamaIndex renders of both; "report" returns the nodes as they came. Nodes
    of the index are not changed: what is redacted is a copy, without its embedding. Each node is searched by itself;
    node ids are left alone.

    Args:
        policy: a `Policy` or a `Guard`.
        action: "redact" replaces matches, "drop" leaves nodes with a match out, "raise" raises `ViolationError`,
            "report" only records.
        replacement: what stands where a match was, a text or a function from a rule's id to one.
        audit: receives one verification event per node, offsets and never text.

    Cost: linear in the text, about as `nco_guard.verify`. Raises `UnsupportedError` for nodes with images, sound, video
    or objects, which cannot be searched (with "drop" they are left out), and `PolicyError` at construction for a
    replacement that is itself forbidden.
    """

    action: Literal["redact", "drop", "raise", "report"] = Field(description="What is done about a match.")
    policy_name: str = Field(description="Name of the policy.", frozen=True)
    policy_digest: str = Field(description="SHA-256 of the policy.", frozen=True)

    _policy: CompiledPolicy = PrivateAttr()
    _replacement: Replacement = PrivateAttr()
    _audit: Sink | None = PrivateAttr(default=None)

    def __init__(
        self,
        policy: Policy | Guard,
        *,
        action: Literal["redact", "drop", "raise", "report"] = "redact",
        replacement: Replacement = REDACTED,
        audit: Sink | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        compiled = compiled_policy(policy)
        redact(compiled, "", replacement=replacement)  # a forbidden replacement is refused here
        fields: dict[str, Any] = {
            "action": action,
            "policy_name": compiled.policy.name,
            "policy_digest": compiled.digest,
            "callback_manager": callback_manager or CallbackManager([]),
        }
        super().__init__(**fields)
        self._policy, self._replacement, self._audit = compiled, replacement, audit

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
        kept: list[NodeWithScore] = []
        for scored in nodes:
            node = scored.node
            found = self._search(node, recorder)
            if self.action == "report" or (found == () and not self._unsearchable(node)):
                kept.append(scored)
            elif self.action == "drop":
                continue
            elif name := self._unsearchable(node):
                raise UnsupportedError(
                    f"a retrieved {type(node).__name__} has {name}, which cannot be searched; leave such nodes out of "
                    f"the index, or use action='drop'"
                )
            elif self.action == "raise":
                raise ViolationError(found, "retrieved text")
            else:
                kept.append(NodeWithScore(node=self._redacted(node), score=scored.score))
        return kept

    def _search(self, node: BaseNode, recorder: RunRecorder | None) -> tuple[str, ...]:
        """The rules that match anywhere in a node; what LlamaIndex renders of it is what the record is about."""
        shown = verify(self._policy, node.get_content(metadata_mode=MetadataMode.ALL))
        related = [info.metadata for _, info in _related(node)]
        found = set(rules_in(self._policy, [*_renderings(node), node.metadata, related]))
        if recorder is not None:
            recorder.verification(
                ok=not found,
                length=shown.length,
                findings=[(hit.rule_id, hit.start, hit.end) for hit in shown.findings],
                policy_digest=self._policy.digest,
            )
        return tuple(rule.id for rule in self._policy.rules if rule.id in found)

    @staticmethod
    def _unsearchable(node: BaseNode) -> str | None:
        return next((name for name in _UNSEARCHABLE if getattr(node, name, None) is not None), None)

    def _redacted(self, node: BaseNode) -> BaseNode:
        policy, replacement = self._policy, self._replacement
        update: dict[str, Any] = {
            "embedding": None,  # that of the original text
            "metadata": redacted(policy, node.metadata, replacement),
            "relationships": {
                kind: _with_metadata(related, lambda data: redacted(policy, data, replacement))
                for kind, related in node.relationships.items()
            },
        }
        copy = node.model_copy(update=update)
        text = node.get_content(metadata_mode=MetadataMode.NONE)
        copy.set_content(redact(policy, text, replacement=replacement).text)
        if rules_in(policy, _renderings(copy)):
            # A match of key and value together, or of metadata and text: the rendered text stands for both.
            rendered = redact(
                policy, copy.get_content(metadata_mode=MetadataMode.LLM), replacement=replacement
            )
            copy = copy.model_copy(update={"metadata": {}})
            copy.set_content(rendered.text)
        if left := rules_in(policy, [*_renderings(copy), copy.metadata]):
            raise RedactionError(left)
        return copy


def _renderings(node: BaseNode) -> list[str]:
    return [node.get_content(metadata_mode=mode) for mode in _MODES]


def _related(node: BaseNode) -> list[tuple[str, RelatedNodeInfo]]:
    found: list[tuple[str, RelatedNodeInfo]] = []
    for kind, related in node.relationships.items():
        found += [(kind, info) for info in (related if isinstance(related, list) else [related])]
    return found


def _with_metadata(related: RelatedNodeType, change: Any) -> RelatedNodeType:
    if isinstance(related, list):
        return [info.model_copy(update={"metadata": change(info.metadata)}) for info in related]
    return related.model_copy(update={"metadata": change(related.metadata)})
