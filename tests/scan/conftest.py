"""Conditions are asked for however short the text is; what a verifier does without them, tests ask for by name."""

from __future__ import annotations

import pytest

from nco_guard.scan import verifier


@pytest.fixture(autouse=True)
def _conditions_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "_AT_ONCE", 0)
    monkeypatch.setattr(verifier, "_FIRST", -1)
