"""No public name without a route: what is added later must be looked at too."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from nco_guard import Guard
from nco_guard.cli.app import app
from nco_guard.replies import ReplyReader
from nco_guard.scan import StreamVerifier, Verifier
from nco_guard.session import BoundGuard, Session
from nco_guard.values import Cleaner, ValueStream
from tests.leaks.__main__ import main
from tests.leaks.corpus import CORPUS, ROOMS, routes_of
from tests.leaks.routes import carried
from tests.leaks.table import table, written_counts, written_table

MODULES = (
    "nco_guard",
    "nco_guard.analysis",
    "nco_guard.audit",
    "nco_guard.audit.report",
    "nco_guard.demo",
    "nco_guard.replies",
    "nco_guard.scan",
    "nco_guard.session",
    "nco_guard.testing",
    "nco_guard.values",
    "nco_guard.engines.hf",
    "nco_guard.engines.hf.continuous",
    "langchain_nco_guard",
    "llama_index.llms.nco_guard",
)
#: Whose public methods are ways out by themselves.
CLASSES = {
    Guard: "nco_guard",
    BoundGuard: "nco_guard.session",
    Session: "nco_guard.session",
    StreamVerifier: "nco_guard.scan",
    Verifier: "nco_guard.scan",
    Cleaner: "nco_guard.values",
    ValueStream: "nco_guard.values",
    ReplyReader: "nco_guard.replies",
}
#: What holds or describes a policy, and gives out nothing that was not put into it by its owner; and what types are
#: called.
NO_WAY_OUT = {
    "nco_guard.AutomatonRule",
    "nco_guard.OnMatch",
    "nco_guard.Rewind",
    "nco_guard.StringRule",
    "nco_guard.presets",
    "nco_guard.values.Fields",
    "nco_guard.values.Role",
    "nco_guard.values.register",
    "nco_guard.Guard.from_file",
    "nco_guard.Guard.from_presets",
    "nco_guard.Guard.policy",
    "nco_guard.Guard.with_audit",
    "nco_guard.Guard.log",
    "nco_guard.scan.Replacement",
    "nco_guard.values.Cleaner.replacement",
    "nco_guard.engines.hf.BatchOptions",
    "nco_guard.engines.hf.GenerationOptions",
    "nco_guard.engines.hf.GuardLike",
    "nco_guard.engines.hf.StreamOptions",
    "nco_guard.engines.hf.continuous.RequestOptions",
    "nco_guard.cli.audit_digest",
    "nco_guard.cli.cache",
    "nco_guard.cli.presets",
    "nco_guard.cli.schema",
    # Cuts the text that it is given, for whoever gave it.
    "nco_guard.analysis.sentences",
    # Kinds of what is said, forms of records, keys; nothing of a text goes through them.
    "nco_guard.analysis.Code",
    "nco_guard.analysis.RemarkCode",
    "nco_guard.audit.OUTCOMES",
    "nco_guard.audit.SCHEMA_VERSION",
    "nco_guard.audit.Ed25519Signer",
    "nco_guard.audit.Ed25519Verifier",
    "nco_guard.audit.event_schema",
    "nco_guard.audit.load_signer",
    "nco_guard.audit.load_verifier",
    "nco_guard.audit.log_schema",
    "nco_guard.audit.policy_hmac",
    # How families of models write; nothing of a text.
    "nco_guard.replies.ReplyFormat",
    "nco_guard.replies.as_reply_format",
    "nco_guard.replies.format_for",
    "nco_guard.replies.shipped_formats",
    "nco_guard.replies.ReplyReader.stopped",
    # What texts are to look like; nothing of a text.
    "nco_guard.Shape",
    "nco_guard.Guard.with_shape",
    # Tables, and numbers of states; `save` writes the owner's own cache.
    "nco_guard.session.RowTracker",
    "nco_guard.session.BoundGuard.answers",
    "nco_guard.session.BoundGuard.begun_by",
    "nco_guard.session.BoundGuard.compiled",
    "nco_guard.session.BoundGuard.device_tables",
    "nco_guard.session.BoundGuard.limits_met",
    "nco_guard.session.BoundGuard.needs_context",
    "nco_guard.session.BoundGuard.policy",
    "nco_guard.session.BoundGuard.revised",
    "nco_guard.session.BoundGuard.save",
    # The model that ships and its prompts, models made for tests; the command shows them without the guard as well.
    "nco_guard.cli.demo",
    "nco_guard.demo.Message",
    "nco_guard.demo.PROMPTS",
    "nco_guard.demo.SYSTEM_PROMPT",
    "nco_guard.demo.TOOLS",
    "nco_guard.demo.chat",
    "nco_guard.demo.load",
    "nco_guard.demo.model_path",
    "nco_guard.testing.Family",
    "nco_guard.testing.biased_model",
    "nco_guard.testing.random_model",
    "nco_guard.testing.tiny_tokenizer",
    "nco_guard.testing.toy_vocabulary",
}
ROUTES = [one for room in ROOMS for one in routes_of(room)]
COVERED = {name for one in ROUTES for name in one.covers}


def commands(within: Any, path: str) -> Iterator[str]:
    """The commands of a group, and of groups in it."""
    for name, command in within.commands.items():
        whole = f"{path}.{name}" if path.endswith("cli") else f"{path}_{name}"
        yield from commands(command, whole) if hasattr(command, "commands") else [whole]


def public_names() -> list[str]:
    """Everything that the packages give out, every public method of some classes, and every command.

    But for classes of errors: what is raised is looked at on every route.
    """
    modules = [(module, importlib.import_module(module)) for module in MODULES]
    given = [(module, name, getattr(it, name)) for module, it in modules for name in it.__all__]
    names = [
        f"{module}.{name}"
        for module, name, it in given
        if not (isinstance(it, type) and issubclass(it, BaseException))
    ]
    for kind, within in CLASSES.items():
        names += [f"{within}.{kind.__name__}.{name}" for name in vars(kind) if not name.startswith("_")]
    return [*names, *commands(get_command(app), "nco_guard.cli")]


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_is_gone_through_by_a_route(name: str) -> None:
    assert name in COVERED or name in NO_WAY_OUT


def test_what_is_left_out_exists() -> None:
    assert set(public_names()) >= NO_WAY_OUT
    assert not NO_WAY_OUT & COVERED


def test_routes_cover_what_exists() -> None:
    assert set(public_names()) >= COVERED


def test_every_shape_is_carried_by_a_route_and_every_route_carries_shapes() -> None:
    assert all(carried(one, CORPUS) for one in ROUTES)
    kinds = {kind for one in ROUTES for kind in one.carries}
    assert {shape.kind for shape in CORPUS} == kinds


def test_names_are_unique() -> None:
    assert len({one.name for one in ROUTES}) == len(ROUTES)
    assert len({(shape.kind, shape.name) for shape in CORPUS}) == len(CORPUS)


def test_the_table_of_the_documentation_is_the_current_one() -> None:
    counts = written_counts()
    assert set(counts) == set(ROOMS)
    # Of routes and shapes the current numbers, of places those of a run.
    assert written_table() == table(counts)
    assert all(looks >= 1000 and not leaks for looks, leaks in counts.values())


def test_parts_of_a_room_may_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a route runs no shape, nothing is wrong; rooms that were not run have a dash in the table."""
    assert (
        main(["core", "--route", "^Guard.(redact|verify)$", "--shape", "^(alone|number)$", "--every", "3"])
        == 0
    )
    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(rows) == len(ROOMS) + 3
    assert rows[2].endswith("| 0 |")
    assert rows[3].endswith("| - | - |")
    assert int(rows[-1].split("|")[5].replace(",", "")) > 0
