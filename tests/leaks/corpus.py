"""All shapes together, and all routes."""

from __future__ import annotations

from tests.leaks.routes import Route
from tests.leaks.shapes import Shape
from tests.leaks.shapes_errors import ERRORS
from tests.leaks.shapes_langchain import ANSWERS, STEPS
from tests.leaks.shapes_llama_index import NODES, REPLIES
from tests.leaks.shapes_texts import CALLED, JSON, TEXTS, WRITTEN
from tests.leaks.shapes_values import VALUES

__all__ = ["CORPUS", "rooms"]

CORPUS: list[Shape] = [
    *TEXTS,
    *WRITTEN,
    *CALLED,
    *JSON,
    *VALUES,
    *ERRORS,
    *ANSWERS,
    *STEPS,
    *NODES,
    *REPLIES,
]


def rooms() -> dict[str, list[Route]]:
    """The routes of each room."""
    from tests.leaks import routes_core, routes_langchain, routes_llama_index, routes_values

    return {
        "core": routes_core.ROUTES,
        "values": routes_values.ROUTES,
        "langchain": routes_langchain.ROUTES,
        "llama_index": routes_llama_index.ROUTES,
    }
