"""Rules made ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nco_guard.errors import PresetError
from nco_guard.policy.models import Rule

__all__ = ["entry_schemas", "load_entry"]


def load_entry(entry: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of a preset entry."""
    raise PresetError("no presets exist in this version", field="preset")


def entry_schemas() -> dict[str, Any]:
    """JSON Schemas of the preset entries."""
    return {}
