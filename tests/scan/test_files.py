"""Files, folders, JSON lines and copies: through the command, as a user or a CI job runs it."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nco_guard.cli.app import app
from nco_guard.errors import InputError, RedactionError
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.scan import Verifier
from nco_guard.scan.definition import verify_by_definition
from nco_guard.scan.files.jobs import verify_files
from nco_guard.scan.files.records import RecordFields, leaves, parse, replaced, shown_path
from nco_guard.scan.files.sources import Source, find_sources, texts_of
from nco_guard.scan.files.task import FileTask, verify_file

CANARY = "204-18-8732"
FILLER = "Lorem ipsum dolor sit amet, consectetur adipiscing elit.\n"
POLICY = Policy(
    name="p",
    rules=(
        RegexRule(id="ssn", regex=r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)", description="Social security numbers"),
        StringRule(id="codename", strings=("bluebird",), case="fold", whole_word=True),
        StringRule(id="mild", strings=("darn",), penalty=2.0),
        RegexRule(id="seen", regex=r"(?s)BEGIN.{0,200}END", monitor=True),
    ),
)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.to_yaml())
    return path


def call(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)], input=stdin)


def random_file(rng: random.Random, size: int) -> str:
    pieces = [
        FILLER,
        FILLER,
        "né ",
        f"{CANARY} ",
        "Bluebird\r\n",
        "bluebirds",
        "darn",
        "BEGIN",
        "END",
        "12-",
        "3",
        "😀",
    ]
    return "".join(rng.choices(pieces, k=size))


@pytest.mark.parametrize("seed", range(3))
def test_a_large_file_is_read_in_pieces_and_placed_by_line_and_column(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nco_guard.scan.files.sources._CHUNK", 301)
    text = random_file(random.Random(seed), 400)
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    verifier = Verifier(POLICY)
    monkeypatch.setattr(verifier, "stream", lambda: Verifier.stream(verifier, piece=200))
    result = verify_file(verifier, FileTask(Source(str(path), "text", "a.txt"), show=True))
    expected = verify_by_definition(POLICY, text)
    assert [(p.rule_id, p.start, p.end, p.mode) for p in result.findings] == [
        (f.rule_id, f.start, f.end, f.mode) for f in expected.findings
    ]
    assert len(expected.findings) > 20
    assert result.length == len(text)
    assert result.lines == len(text.split("\n")) - (text.endswith("\n") or not text)
    for place in result.findings:
        assert place.text == text[place.start : place.end]
        before = text[: place.start].split("\n")
        assert (place.line, place.column) == (len(before), len(before[-1]) + 1)
        before = text[: place.end].split("\n")
        assert (place.end_line, place.end_column) == (len(before), len(before[-1]) + 1)


def test_pieces_of_bytes_are_joined_where_characters_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    path = tmp_path / "a.txt"
    for _ in range(100):
        data = "".join(rng.choices("aé€😀\n", k=20)).encode()
        if rng.random() < 0.5:
            place = rng.randint(0, len(data))
            data = data[:place] + rng.choice([b"\xff", b"\xc3", b"\xf0\x9f"]) + data[place:]
        path.write_bytes(data)
        monkeypatch.setattr("nco_guard.scan.files.sources._CHUNK", rng.randint(1, 9))
        read = list(texts_of(Source(str(path), "text", "a.txt")))
        assert sum(count for _, count, _ in read) == len(data)
        lines = {error.line for _, _, errors in read for error in errors}
        bad = {
            n for n, line in enumerate(data.split(b"\n"), 1) if "\ufffd" in line.decode("utf-8", "replace")
        }
        text = "".join(text for text, _, _ in read)
        assert lines == bad
        assert text.count("\n") == data.count(b"\n")
        if not bad:
            assert text == data.decode()


def test_bytes_that_are_not_utf8_are_errors_by_line_and_the_rest_is_searched(
    policy: Path, tmp_path: Path
) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"fine\ncaf\xe9 \xff\n" + f"call {CANARY}\nna\xefve".encode("latin-1"))
    result = call(policy, path, "--json")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert [(e["line"], e["problem"]) for e in document["errors"]] == [
        (2, "not UTF-8 at byte 8"), (4, "not UTF-8 at byte 31"),
    ]  # fmt: skip
    assert [f["rule_id"] for f in document["files"][0]["findings"]] == ["ssn"]
    assert f"{path}:2: not UTF-8" in result.stderr


RECORDS: list[Any] = [
    {"id": 1, "user": {"name": "Bluebird", "note": "fine"}, "messages": [{"content": f"a {CANARY}"}, {"content": "b"}]},
    {"id": 2, "user": {"name": "x"}, "messages": [{"content": "ok", "extra": CANARY}], CANARY: {"deep": "darn"}},
    {"id": 204188732, "amount": 1.50, "user": None, "messages": []},
]  # fmt: skip


def jsonl(path: Path) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


def test_fields_of_json_lines_are_chosen_by_dotted_names(policy: Path, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "log.jsonl")

    def found(*options: str) -> list[tuple[int, str, str]]:
        document = json.loads(call(policy, path, "--json", *options).stdout)
        return [(f["line"], f["field"], f["rule_id"]) for f in document["files"][0]["findings"]]

    assert found("--field", "messages.content") == [(1, "messages[0].content", "ssn")]
    assert found("--field", "messages.content", "--field", "user.name") == [
        (1, "user.name", "codename"), (1, "messages[0].content", "ssn"),
    ]  # fmt: skip
    assert found("--field", "user") == [(1, "user.name", "codename")]
    everything = found()
    assert (2, "messages[0].extra", "ssn") in everything
    # A key that matches is found, and no path shows it.
    assert (2, "*", "ssn") in everything
    assert (2, "*.deep", "mild") in everything
    result = call(policy, path)
    assert f"{path}:1: ssn in messages[0].content (offsets 2 to 13, 11 characters)" in result.stdout
    assert CANARY not in result.output
    assert call(policy, path, "--field", "id").exit_code == 0
    assert call(policy, tmp_path / "policy.yaml", "--field", "id").exit_code == 2


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_field_that_no_record_holds_is_an_error(policy: Path, tmp_path: Path, jobs: str) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text('{"body": "nothing"}\n')
    two.write_text('{"id": 1}\n')
    files = (policy, one, two, "--jobs", jobs)
    assert call(*files, "--field", "body").exit_code == 0
    assert call(*files, "--field", "body", "--field", "id").exit_code == 0
    for missed in ("bodyy", "", "body.x", "a..b"):
        result = call(*files, "--field", "body", "--field", missed)
        assert result.exit_code == 2
        assert f"no record holds the field {missed!r}" in result.stderr
    report = json.loads(call(*files, "--field", "bodyy", "--format", "json").stdout)
    assert not report["ok"]
    two.write_text("")
    assert call(policy, two, "--field", "body").exit_code == 0


def test_as_text_a_match_may_cross_what_json_separates(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("name: p\nrules:\n  - {id: two, regex: 'a\",\"b'}\n")
    lines = tmp_path / "x.jsonl"
    lines.write_text('["a","b"]\n')
    assert call(path, lines).exit_code == 0
    assert call(path, lines, "--as", "text").exit_code == 1
    assert call(path, "-", "--as", "jsonl", stdin='["a\\",\\"b"]\n').exit_code == 1


def test_broken_lines_are_errors_by_line_and_the_others_are_read(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [b'{"a": "fine"}', b"{oops " + CANARY.encode(), b"", b'{"a": "caf\xe9"}', b"[" * 100_000]
    lines.append(json.dumps({"a": f"x {CANARY}"}).encode())
    path.write_bytes(b"\n".join(lines))
    result = call(policy, path, "--json", "--redact", tmp_path / "out.jsonl")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert [(e["file"], e["line"], e["problem"].split(":")[0]) for e in document["errors"]] == [
        (str(path), 2, "not JSON at column 2"),
        (str(path), 4, "not UTF-8 at byte 10 of the line"),
        (str(path), 5, "JSON that is nested too deep"),
    ]
    assert document["error_count"] == 3
    assert [f["line"] for f in document["files"][0]["findings"]] == [6]
    assert CANARY not in result.output
    # The copy holds what could be read, and nothing else.
    assert (tmp_path / "out.jsonl").read_text() == '{"a": "fine"}\n\n{"a": "x [redacted]"}\n'


def test_errors_beyond_the_first_hundred_are_counted(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("oops\n" * 250)
    result = call(policy, path, "--format", "json")
    document = json.loads(result.stdout)
    assert document["error_count"] == 250
    assert len(document["errors"]) == 100
    assert "150 more errors" in result.stderr


def test_folders_are_gone_through_in_order(policy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "b" / ".git").mkdir(parents=True)
    (folder / "b" / "two.md").write_text(f"see {CANARY}")
    (folder / "a.txt").write_text("bluebird")
    (folder / "c.txt.gz").write_bytes(gzip.compress(f"{CANARY}".encode()))
    (folder / "image.bin").write_bytes(b"\x00\x01" + CANARY.encode())
    (folder / ".hidden").write_text(CANARY)
    (folder / "b" / ".git" / "x").write_text(CANARY)
    (folder / "z.txt").write_text("fine")
    result = call(policy, folder)
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        str(folder / "a.txt"), str(folder / "c.txt.gz"), str(folder / "b" / "two.md"),
    ]  # fmt: skip
    assert "4 files, 3 with matches of hard rules, 1 binary files passed over" in result.stderr
    assert call(policy, folder, "--glob", "z*").exit_code == 0
    by_path = json.loads(call(policy, folder, "--glob", "b/*", "--json").stdout)
    assert [Path(file["file"]).name for file in by_path["files"]] == ["two.md"]
    damaged = tmp_path / "bad.gz"
    damaged.write_bytes(gzip.compress(b"text" * 100)[:-20])
    assert call(policy, damaged).exit_code == 2
    assert call(policy, tmp_path / "none").exit_code == 2


def corpus(tmp_path: Path) -> Path:
    rng = random.Random(4)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for index in range(4):
        (folder / f"{index}.txt").write_bytes(random_file(rng, 150).encode())
    lines = [
        json.dumps({"a": random_file(rng, 4), "b": [rng.random(), random_file(rng, 2)]}) for _ in range(200)
    ]
    lines[50] = "broken"
    (folder / "5.jsonl").write_text("\n".join(lines))
    return folder


def test_several_processes_give_what_one_gives_in_the_same_order(tmp_path: Path) -> None:
    sources = find_sources([str(corpus(tmp_path))]).sources
    tasks = [FileTask(source) for source in sources]
    verifier = Verifier(POLICY)

    def plain(jobs: int, part: int) -> list[object]:
        seen: list[int] = []
        results = list(verify_files(verifier, tasks, jobs=jobs, part=part, progress=seen.append))
        assert sum(seen) == sum(source.size for source in sources)
        return [
            (r.name, r.findings, [str(e) for e in r.errors], r.error_count, r.length, r.lines, r.documents)
            for r in results
        ]

    one = plain(1, 1 << 24)
    assert plain(2, 1 << 24) == one
    assert plain(2, 777) == one
    assert any("5.jsonl:51: not JSON" in str(row) for row in one)


@pytest.mark.parametrize("jobs", [1, 2])
def test_redacted_copies_verify_clean_and_originals_stay(policy: Path, tmp_path: Path, jobs: int) -> None:
    folder = corpus(tmp_path)
    (folder / "sub").mkdir()
    (folder / "sub" / "x.jsonl.gz").write_bytes(gzip.compress(f'{{"k": "{CANARY}"}}\n'.encode()))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    out = tmp_path / "out"
    result = call(policy, folder, "--redact", out, "--jobs", jobs)
    assert result.exit_code == 2  # one line is broken
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert sorted(p.relative_to(out) for p in out.rglob("*")) == sorted(
        p.relative_to(folder) for p in folder.rglob("*")
    )
    assert call(policy, out).exit_code == 0
    for path in folder.glob("*.txt"):
        text = path.read_bytes().decode()
        pattern = r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)|(?i:(?<!\w)bluebird(?!\w))"
        assert (out / path.name).read_bytes().decode() == re.sub(pattern, "[redacted]", text)
    assert gzip.decompress((out / "sub" / "x.jsonl.gz").read_bytes()) == b'{"k": "[redacted]"}\n'


def test_a_redacted_record_keeps_all_else_as_it_was_written(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    odd = (
        '{"n": 1.500, "big": 12345678901234567890123,"x":"é", "x" :"'
        + CANARY
        + '", "t": [ "ok" ], "e": "\\u00e9"}'
    )
    path.write_text(f"{odd}\r\n{{ }}\n")
    assert call(policy, path, "--redact", tmp_path / "out.jsonl", "--replacement", 'é"x"').exit_code == 1
    written = (tmp_path / "out.jsonl").read_bytes().decode()
    assert written == odd.replace(CANARY, 'é\\"x\\"') + "\r\n{ }\n"
    assert call(policy, path, "--field", "n", "--redact", tmp_path / "same.jsonl").exit_code == 0
    assert (tmp_path / "same.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["a.jsonl.gz", "A.JSONL.GZ"])
def test_packed_records_are_read_to_their_end_whatever_the_case_of_the_name(
    tmp_path: Path, name: str
) -> None:
    """Parts of a file are counted in bytes as they lie there, so a packed one has one part."""
    lines = [f'{{"k": "{index} fine"}}\n' for index in range(5_000)]
    (tmp_path / name).write_bytes(gzip.compress("".join([*lines, f'{{"k": "{CANARY}"}}\n']).encode()))
    found = find_sources([str(tmp_path)])
    for jobs in (1, 2):
        results = list(verify_files(Verifier(POLICY), [FileTask(found.sources[0])], jobs=jobs, part=1_000))
        assert [finding.line for result in results for finding in result.findings] == [5_001]


def test_nothing_is_overwritten_and_no_part_of_a_copy_is_left(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"x {CANARY}")
    assert call(policy, path, "--redact", path).exit_code == 2
    assert call(policy, path, "--redact", tmp_path).exit_code == 2
    assert path.read_text() == f"x {CANARY}"
    result = call(policy, path, "--redact", tmp_path / "b.txt", "--replacement", CANARY)
    assert result.exit_code == 2
    assert CANARY not in result.output
    # What is left forms a match with the replacement: nothing is written.
    path.write_text(f"blue{CANARY}bird")
    joining = Policy(name="p", rules=(POLICY.rules[0], StringRule(id="joined", strings=("blue-bird",))))
    policy.write_text(joining.to_yaml())
    assert call(policy, path, "--redact", tmp_path / "b.txt", "--replacement", "-").exit_code == 2
    assert not (tmp_path / "b.txt").exists()
    assert not list(tmp_path.glob("*.partial"))
    with pytest.raises(RedactionError):
        verify_file(
            Verifier(joining),
            FileTask(Source(str(path), "text", "a"), target=str(tmp_path / "c"), replacement="-"),
        )
    same = tmp_path / "sub"
    same.mkdir()
    (same / "a.txt").write_text("")
    assert call(policy, path, same / "a.txt", "--redact", tmp_path / "out").exit_code == 2


def test_sarif_holds_what_its_schema_requires_and_no_text(policy: Path, tmp_path: Path) -> None:
    text = tmp_path / "draft with space.txt"
    text.write_text(f"né\n a {CANARY} darn BEGIN END")
    lines = jsonl(tmp_path / "log.jsonl")
    with lines.open("a") as file:
        file.write(f"broken {CANARY}\n")
    result = call(policy, text, lines, tmp_path / "none", "-", "--format", "sarif", stdin="bluebird")
    assert result.exit_code == 2
    assert CANARY not in result.output
    log = json.loads(result.stdout)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "nco-guard"
    assert [rule["id"] for rule in driver["rules"]] == [rule.id for rule in POLICY.rules]
    assert driver["rules"][0]["shortDescription"]["text"] == "Social security numbers"
    assert run["columnKind"] == "unicodeCodePoints"
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert len(invocation["toolExecutionNotifications"]) == 2
    for note in [*run["results"], *invocation["toolExecutionNotifications"]]:
        assert note["level"] in ("error", "warning", "note")
        assert isinstance(note["message"]["text"], str)
        for location in note["locations"]:
            physical = location["physicalLocation"]
            assert re.fullmatch(r"[\w/.:%~-]+", physical["artifactLocation"]["uri"])
            for name, value in physical.get("region", {}).items():
                assert value >= (0 if name.startswith("char") else 1)
    first = run["results"][0]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("ssn", 0, "error")
    assert first["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 2, "startColumn": 4, "endLine": 2, "endColumn": 15, "charOffset": 6, "charLength": 11,
    }  # fmt: skip
    assert {r["level"] for r in run["results"]} == {"error", "warning", "note"}
    assert call(policy, text, "--format", "sarif", "--show").exit_code == 2


def test_leaves_and_their_places_in_a_line_are_the_same_texts() -> None:
    rng = random.Random(6)

    def value(depth: int) -> Any:
        kind = rng.random()
        if depth == 0 or kind < 0.4:
            return rng.choice(
                ["", "a", 'q"uo\\te', "é\u2028", "\ud83d", 1, -2.5, 1e300, True, None, float("inf")]
            )
        if kind < 0.7:
            return [value(depth - 1) for _ in range(rng.randint(0, 3))]
        return {rng.choice(["k", "a:b", "", 'x"', "1"]): value(depth - 1) for _ in range(rng.randint(0, 3))}

    for _ in range(300):
        record = value(3)
        line = json.dumps(record, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        found = list(leaves(parse(line), RecordFields()))
        assert [leaf.index for leaf in found] == list(range(len(found)))
        marked = replaced(line, {leaf.index: f"<{leaf.index}>" for leaf in found})
        assert [leaf.text for leaf in leaves(parse(marked), RecordFields())] == [
            f"<{i}>" for i in range(len(found))
        ]
        # Nothing but the texts has changed.
        assert re.sub(r'"<\d+>"', "", marked) == re.sub(
            r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|-?Infinity', "", line
        )
    assert shown_path(None) == ""
    assert [shown_path(leaf.path) for leaf in leaves(parse('{"a.b": [1]}'), RecordFields(["a\\.b"]))] == [
        "a.b[0]"
    ]


def test_an_input_error_names_file_and_line_and_survives_pickling() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(InputError("a.txt", "not UTF-8 at byte 3", line=2)))
    assert (error.file, error.line, str(error)) == ("a.txt", 2, "a.txt:2: not UTF-8 at byte 3")
