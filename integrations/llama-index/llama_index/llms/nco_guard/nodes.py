"""Nodes made fit to show: their parts, and what LlamaIndex renders of them together."""

from __future__ import annotations

from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.llms.nco_guard import registered  # how nodes are read

from nco_guard.errors import RedactionError
from nco_guard.values import Cleaner

__all__ = ["clean_node", "renderings", "rules_in_node", "unsearchable"]

_MODES = (MetadataMode.NONE, MetadataMode.LLM, MetadataMode.EMBED, MetadataMode.ALL)


def renderings(node: BaseNode) -> list[str]:
    """The texts that LlamaIndex makes of a node's content and metadata."""
    return list(dict.fromkeys(node.get_content(metadata_mode=mode) for mode in _MODES))


def rules_in_node(node: BaseNode, cleaner: Cleaner) -> tuple[str, ...]:
    """The ids of hard rules that match in a node or in what is rendered of it."""
    return cleaner.rules([node, renderings(node)])


def unsearchable(node: BaseNode) -> str | None:
    """The field of a node that cannot be looked into, if it has one."""
    return next((name for name in registered.UNSEARCHABLE if getattr(node, name, None) is not None), None)


def clean_node(node: BaseNode, cleaner: Cleaner) -> BaseNode:
    """The node without matches; the same object if it has none. What cannot be looked into is left out of it.

    Where only key and value together make a match, or metadata and text, the rendered text stands for both. Errors: as
    `Cleaner.value`.
    """
    clean: BaseNode = cleaner.value(node)
    found = cleaner.rules(renderings(clean))
    if not found or cleaner.action == "report":
        return clean
    if cleaner.action == "raise":
        cleaner.value(renderings(clean))  # which refuses it, and records that
    text = cleaner.text(clean.get_content(metadata_mode=MetadataMode.LLM))
    clean = clean.model_copy(update={"metadata": {}, "embedding": None})
    clean.set_content(text)
    if left := cleaner.rules(renderings(clean)):
        raise RedactionError(left)
    return clean
