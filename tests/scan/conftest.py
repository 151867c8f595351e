"""Conditions are asked for however short the text is; what a verifier does without them, tests ask for by name."""

from __future__ import annotations

import pytest

from nco_guard.scan import lanes


@pytest.fixture(autouse=True)
def _conditions_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_AT_ONCE", 0)
    monkeypatch.setattr(lanes, "_FIRST", -1)
