"""The table of families in the documentation is what the tests find."""

from __future__ import annotations

import pytest

from nco_guard.replies.formats import ReplyFormat
from tests.replies.families import FORMATS
from tests.replies.matrix import COLUMNS, DOCS, cell, limits, row, written


@pytest.mark.parametrize("form", FORMATS, ids=[form.name for form in FORMATS])
def test_the_documentation_says_what_is_found(form: ReplyFormat) -> None:
    cells = [cell(form, column) for column in COLUMNS]
    assert "NO" not in cells
    assert written()[form.name] == row(form, cells)


def test_all_families_are_in_the_documentation_with_their_limits() -> None:
    assert [*written()] == [form.name for form in FORMATS]
    assert limits() in DOCS.read_text(encoding="utf-8")


def test_fifteen_families_are_read_written_and_forced() -> None:
    whole = [form for form in FORMATS if form.call is not None and written()[form.name].count("| yes ") >= 5]
    assert len(whole) >= 15
