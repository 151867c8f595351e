"""All shapes together, and all routes."""

from __future__ import annotations

import importlib

from tests.leaks.routes import Route
from tests.leaks.shapes import Shape
from tests.leaks.shapes_casts import CASTS
from tests.leaks.shapes_errors import ERRORS
from tests.leaks.shapes_langchain import ANSWERS, STEPS
from tests.leaks.shapes_llama_index import NODES, REPLIES
from tests.leaks.shapes_texts import CALLED, JSON, PARSED, TEXTS, WRITTEN
from tests.leaks.shapes_values import VALUES

__all__ = ["CORPUS", "ROOMS", "routes_of"]

CORPUS: list[Shape] = [
    *TEXTS,
    *WRITTEN,
    *CALLED,
    *JSON,
    *PARSED,
    *VALUES,
    *CASTS,
    *ERRORS,
    *ANSWERS,
    *STEPS,
    *NODES,
    *REPLIES,
]


#: Modules of routes, by what they are routes of.
ROOMS = {
    "core": ("routes_core", "routes_records"),
    "values": ("routes_values",),
    "langchain": ("routes_langchain", "routes_objects_langchain"),
    "agents": ("routes_agents",),
    "llama_index": ("routes_llama_index", "routes_objects_llama_index"),
}


def routes_of(room: str) -> list[Route]:
    """The routes of a room."""
    modules = [importlib.import_module(f"tests.leaks.{name}") for name in ROOMS[room]]
    return [one for module in modules for one in module.ROUTES]
