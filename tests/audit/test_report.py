"""A report's numbers are those of the log, counted again slowly; and what a log may say."""

from __future__ import annotations

import json
import math
import secrets
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path

import pytest

from nco_guard.audit import (
    HmacSigner,
    JsonLinesSink,
    RunRecorder,
    Verification,
    parse_event,
    verify_log,
)
from nco_guard.audit.report import AuditReport, LogReport, read_report, render_report
from nco_guard.audit.report.aggregate import Aggregator
from nco_guard.audit.report.runs import Runs
from nco_guard.audit.report.timeline import TimelineCounter
from nco_guard.audit.report.wording import percent, probability, width_of
from nco_guard.demo.metrics import violation_rate
from nco_guard.errors import AuditError
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.scan import exposure
from nco_guard.scan.definition import verify_by_definition
from nco_guard.visible import visible
from tests.audit import test_canaries as canaries
from tests.audit.report_logs import (
    BEGIN,
    HOSTILE,
    Reference,
    clean_log,
    lines_of,
    random_events,
    verdict,
    write_log,
)

KEY = bytes(range(32))


@pytest.fixture(scope="module", params=[1, 2, 3])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in several files."""
    path = tmp_path_factory.mktemp("log") / "guard.jsonl"
    return write_log(path, random_events(250, request.param), max_bytes=200_000)


@pytest.fixture(scope="module")
def report(log: Path) -> AuditReport:
    return read_report(log)


@pytest.fixture(scope="module")
def reference(log: Path) -> Reference:
    return Reference(lines_of(log))


def near(value: float, parts: list[float]) -> bool:
    return math.isclose(value, math.fsum(parts), rel_tol=1e-9, abs_tol=1e-9)


# -- numbers -------------------------------------------------------------------------------------------------------


def test_totals_are_those_of_the_log(log: Path, report: AuditReport, reference: Reference) -> None:
    numbers, totals = report.numbers, report.numbers.totals
    assert len(numbers.integrity.files) > 1
    assert numbers.integrity.state == "intact"
    assert totals.events == len(reference.lines)
    assert totals.kinds == Counter(line["kind"] for line in reference.lines)
    times = [line["time"] for line in reference.lines]
    assert numbers.first is not None
    assert numbers.last is not None
    assert numbers.first.strftime("%Y-%m-%dT%H:%M:%S.%fZ") == min(times)
    assert numbers.last.strftime("%Y-%m-%dT%H:%M:%S.%fZ") == max(times)
    finished = reference.of("run_finished")
    assert totals.runs == len(reference.of("run_started"))
    assert totals.guarded_runs == sum("tokenizer_digest" in line for line in reference.of("run_started"))
    assert totals.finished == len(finished)
    assert totals.unfinished == totals.runs - totals.finished > 0
    assert totals.runs_changed == len({line["run_id"] for line in reference.of("intervention")})
    assert totals.sequences == sum(len(line["outcomes"]) for line in finished)
    assert totals.tokens == sum(line["tokens"] for line in finished)
    assert near(totals.seconds, [line["seconds"] for line in finished])
    assert totals.errors == sum("error" in line for line in finished) > 0
    assert totals.lost == reference.lost() > 0
    assert totals.cut_runs == sum(run[0]["number"] > 0 for run in reference.runs.values())
    assert totals.out_of_order == totals.set_aside == 0
    guarded = [line for line in finished if "error" not in line and reference.source(line) == "guarded"]
    assert totals.guarded_sequences == sum(len(line["outcomes"]) for line in guarded)
    assert totals.guarded_unverified == sum(
        len(line["outcomes"]) - sum(one["kind"] == "verification" for one in reference.runs[line["run_id"]])
        for line in guarded
    )
    assert numbers.outcomes == Counter(outcome for line in finished for outcome in line["outcomes"])
    assert numbers.errors == Counter(line["error"] for line in finished if "error" in line)
    assert {one.resolution: one.count for one in numbers.dead_ends} == Counter(
        line["resolution"] for line in reference.of("dead_end")
    )


def test_interventions_per_rule_and_model_are_those_of_the_log(
    report: AuditReport, reference: Reference
) -> None:
    numbers = report.numbers
    interventions = reference.of("intervention")
    known = [line["removed_probability"] for line in interventions if "removed_probability" in line]
    assert numbers.all.interventions == len(interventions)
    assert numbers.all.masked == sum(line["action"] == "masked" for line in interventions)
    assert numbers.all.penalized == sum(line["action"] == "penalized" for line in interventions)
    assert numbers.all.first_choice_forbidden == sum(line["first_choice_forbidden"] for line in interventions)
    assert numbers.all.removed_known == len(known)
    assert near(numbers.all.removed_probability, known)
    histogram = [0] * 10
    for value in known:
        histogram[9 if value == 1 else math.floor(value * 10)] += 1
    assert numbers.removed_histogram == tuple(histogram)

    counts = reference.interventions_by_rule()
    assert None in counts  # some interventions name no rule
    assert {one.rule_id: one.interventions for one in numbers.rules} == counts
    assert [one.interventions for one in numbers.rules] == sorted(counts.values(), reverse=True)
    for rule in numbers.rules:
        assert near(rule.removed_probability, reference.removed_by_rule(rule.rule_id))
        found = [
            [span["rule_id"] for span in line["findings"]].count(rule.rule_id or "")
            for line in reference.of("verification")
        ]
        assert rule.findings == sum(found)
        assert rule.texts == sum(count > 0 for count in found)
        assert rule.modes == (
            () if rule.rule_id is None else ("monitor",) if rule.rule_id == "phone" else ("hard",)
        )

    for kind, field in (
        ("run_started", "runs"),
        ("intervention", "interventions"),
        ("dead_end", "dead_ends"),
        ("verification", "texts"),
        ("run_finished", "finished"),
    ):
        assert Counter({one.model_id: getattr(one, field) for one in numbers.models}) == reference.by_model(
            kind
        )


def test_the_timeline_loses_nothing(report: AuditReport, reference: Reference) -> None:
    timeline = report.numbers.timeline
    assert 1 < len(timeline.buckets) <= 60
    width = timedelta(seconds=timeline.seconds)
    for one, other in zip(timeline.buckets, timeline.buckets[1:], strict=False):
        assert other.start - one.start == width
    for bucket in timeline.buckets:
        inside = [
            line
            for line in reference.lines
            if bucket.start <= datetime.fromisoformat(line["time"]) < bucket.start + width
        ]
        kinds = Counter(line["kind"] for line in inside)
        assert bucket.interventions == kinds["intervention"]
        assert bucket.dead_ends == kinds["dead_end"]
        assert bucket.runs == kinds["run_started"]
        assert bucket.violations == sum(line.get("ok") is False for line in inside)
        assert bucket.errors == sum("error" in line for line in inside)
        assert near(
            bucket.removed_probability,
            [line["removed_probability"] for line in inside if "removed_probability" in line],
        )
    assert sum(one.interventions for one in timeline.buckets) == report.numbers.all.interventions


def test_violation_and_exposure_rates_are_those_of_the_corpora(
    report: AuditReport, reference: Reference
) -> None:
    texts = reference.texts()
    numbers = report.numbers
    assert {(one.source, one.policy_digest) for one in numbers.corpora} == set(texts)
    assert {source for source, _ in texts} >= {"guarded", "observed", "apart"}
    measured = 0
    for corpus in numbers.corpora:
        lines = texts[corpus.source, corpus.policy_digest]
        assert corpus.texts == len(lines)
        assert corpus.characters == sum(line["length"] for line in lines)
        events = [parse_event(line) for line in lines]
        rate = violation_rate([event for event in events if isinstance(event, Verification)])
        assert corpus.violation_rate == pytest.approx(rate)
        found = Counter(span["rule_id"] for line in lines for span in line["findings"])
        assert {one.rule_id: one.findings for one in corpus.findings} == found
        exposed = [line["exposures"] for line in lines if "exposures" in line]
        assert corpus.measured == len(exposed)
        measured += len(exposed)
        if not exposed:
            assert corpus.exposure_rate is None
            continue
        long = [any(one["end"] - one["start"] >= 8 for one in spans) for spans in exposed]
        assert corpus.exposure_rate == pytest.approx(100 * sum(long) / len(long))
        for rule in corpus.exposures:
            lengths = [
                one["end"] - one["start"]
                for spans in exposed
                for one in spans
                if one["rule_id"] == rule.rule_id and one["end"] > one["start"]
            ]
            assert (rule.texts, rule.longest) == (len(lengths), max(lengths))
            assert rule.mean == pytest.approx(sum(lengths) / len(lengths))
            assert rule.rate == pytest.approx(100 * sum(one >= 8 for one in lengths) / len(exposed))
    assert measured
    by_hand = sum(
        not line["ok"]
        for line in reference.of("verification")
        if reference.source(line) in ("guarded", "cut")
    )
    assert numbers.violations == by_hand


def test_incidents_are_the_last_ones(log: Path, report: AuditReport, reference: Reference) -> None:
    wanted = [
        (line["run_id"], line["number"])
        for line in reference.lines
        if line.get("ok") is False or line["kind"] == "dead_end" or "error" in line
    ]
    shown = [(str(one.run_id), one.number) for one in report.numbers.incidents]
    assert wanted
    assert shown == wanted
    assert report.numbers.incidents_left_out == 0
    few = Aggregator(incidents=3)
    for line in reference.lines:
        few.add(parse_event(line))
    numbers = few.result(report.numbers.integrity)
    assert [(str(one.run_id), one.number) for one in numbers.incidents] == wanted[-3:]
    assert numbers.incidents_left_out == len(wanted) - 3


def test_policies_and_guarantees_are_listed_once(report: AuditReport, reference: Reference) -> None:
    policies = {one.policy_digest: one for one in report.numbers.policies}
    assert set(policies) == {line["policy_digest"] for line in reference.of("policy_loaded")}
    for digest, policy in policies.items():
        assert policy.runs == sum(line["policy_digest"] == digest for line in reference.of("run_started"))
        assert policy.loaded == 1
        assert policy.rules is not None
        assert policy.on_dead_end == "trim"
    assert len(report.numbers.guarantees) == 2
    assert all(one.covered_ends == ("eos", "max_length") for one in report.numbers.guarantees)


def test_the_numbers_survive_json(report: AuditReport) -> None:
    text = report.numbers.model_dump_json()
    assert LogReport.model_validate_json(text) == report.numbers


# -- bounds --------------------------------------------------------------------------------------------------------


def test_what_is_too_many_to_keep_apart_is_counted_together(
    reference: Reference, report: AuditReport
) -> None:
    bounded = Aggregator(groups=2)
    for line in reference.lines:
        bounded.add(parse_event(line))
    numbers = bounded.result(report.numbers.integrity)
    counts = reference.interventions_by_rule()
    assert [one.others for one in numbers.rules] == [False, False, True]
    kept = {one.rule_id: one.interventions for one in numbers.rules if not one.others}
    assert all(counts[rule] == value for rule, value in kept.items())
    assert numbers.rules[-1].interventions == sum(counts.values()) - sum(kept.values())
    assert sum(one.texts for one in numbers.corpora) == len(reference.of("verification"))
    assert numbers.violations >= report.numbers.violations  # what is not told apart may be the guard's


def test_the_table_keeps_the_last_events_and_all_incidents(log: Path, reference: Reference) -> None:
    notable = {
        (line["run_id"], line["number"])
        for line in reference.lines
        if line.get("ok") is False or line["kind"] == "dead_end" or "error" in line
    }
    room = len(notable) + 10
    table = read_report(log, max_events=room).table
    shown = [
        (table.runs[int(run or 0)][0], number)
        for run, number in zip(table.columns["run"], table.columns["number"], strict=True)
    ]
    order = [(line["run_id"], line["number"]) for line in reference.lines]
    assert table.shown == room
    assert table.left_out == len(order) - room
    assert notable <= set(shown)
    ordinary = [one for one in order if one not in notable]
    assert shown == [one for one in order if one in notable or one in ordinary[-10:]]
    assert read_report(log, max_events=3).table.notable_left_out == len(notable) - 3
    assert read_report(log, max_events=0).table.shown == 0


def test_runs_that_are_forgotten_are_counted() -> None:
    runs = Runs(remembered=2)
    events = list(islice(random_events(40, 5, faults=False), 4, 300))
    for event in events:
        runs.of(event)
    assert runs.set_aside == len({event.run_id for event in events}) - 2


@pytest.mark.parametrize("years", [0.00001, 1, 30, 5000])
def test_any_stretch_of_time_has_few_buckets(years: float) -> None:
    counter = TimelineCounter()
    moments = [
        BEGIN - timedelta(days=365 * years * part / 5000)
        if years < 2000
        else datetime(1 + part, 1, 1, tzinfo=UTC)
        for part in range(5000)
    ]
    for moment in moments:
        counter.at(moment).interventions += 1
    timeline = counter.result()
    assert len(timeline.buckets) <= 60
    assert sum(one.interventions for one in timeline.buckets) == 5000
    width_of(timeline.seconds)


# -- what a log may say --------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_names_cannot_become_markup(report: AuditReport) -> None:
    page = render_report(report)
    parser = Tags()
    parser.feed(page)
    assert parser.tags["script"] == 2
    assert not parser.tags.keys() & {"img", "iframe", "object", "link", "base", "form", "embed"}
    assert not any(name.startswith("on") or name in ("style", "src") for name in parser.attributes)
    assert HOSTILE[0] in "".join(parser.text)  # it is there, as text
    assert HOSTILE[2] in "".join(parser.text)
    assert "\u202e" not in page
    data = page.split('id="event-data">')[1].split("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["columns"]["time"]


def test_numbers_and_times_beyond_measure_are_reported_or_refused(tmp_path: Path) -> None:
    path = clean_log(tmp_path / "log.jsonl")
    line = next(one for one in lines_of(path) if one["kind"] == "run_finished")
    huge = [
        {**line, "run_id": str(uuid.uuid4()), "tokens": 10**4000, "number": 10**400, "seconds": 1e308},
        {**line, "run_id": str(uuid.uuid4()), "tokens": 10**4000, "seconds": 1.7e308, "number": 0},
        {
            **line,
            "run_id": str(uuid.uuid4()),
            "back_to": "text",
            "fallbacks": [10**4000] * len(line["outcomes"]),
        },
        {**line, "time": "0001-01-01T00:00:00+14:00"},
        {**line, "time": "9999-12-31T23:59:59-14:00"},
        {**line, "request_id": "\ud800"},
        {**line, "seal": {**line["seal"], "chain": "\ud800\u202e"}},
    ]
    with path.open("a") as stream:
        stream.writelines(json.dumps(one) + "\n" for one in huge)
        stream.write('{"kind":' + "[" * 100_000 + "\n")
    report = read_report(path)
    assert report.numbers.integrity.state == "altered"
    assert report.numbers.integrity.problem_counts["unknown"] == 3
    page = render_report(report)
    page.encode("utf-8")
    assert json.loads(report.numbers.model_dump_json())["totals"]["tokens"] > 2**53


def test_texts_that_fell_back_are_counted_and_bound_the_distance_under_text_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        for back_to, fallbacks in (
            ("text", [0, 3]),
            ("match", [1, 1]),
            ("text", [1, 0, 0, 0, 0, 0]),
            ("sentence", [0]),
        ):
            run = RunRecorder(sink)
            run.begin(Policy.from_presets("pii"), sequences=len(fallbacks), tokenizer_digest="ab" * 32)
            run.finished(outcomes=["ended"] * len(fallbacks), back_to=back_to, fallbacks=fallbacks)
        RunRecorder(sink).finished(outcomes=["ended"])
    report = read_report(path)
    found = {
        one.back_to: (one.texts, one.fallen, one.rate, one.fallbacks, one.bound)
        for one in report.numbers.back
    }
    assert found == {
        "match": (2, 2, 100.0, 2, None),
        "sentence": (1, 0, 0.0, 0, None),
        "text": (8, 2, 25.0, 4, 0.25),
    }
    assert LogReport.model_validate_json(report.numbers.model_dump_json()).back == report.numbers.back
    page = render_report(report)
    assert (
        "8 texts that could go back to the beginning of the text: 2 (25 %) could not at least once, 4 times in all."
        in page
    )
    assert "2 texts that could go back to where a match began: 2 (100 %) could not at least once" in page
    assert page.count("total variation") == 1
    assert "back to the text: fell back 3 times, in 1 text" in page
    assert read_report(clean_log(tmp_path / "masked.jsonl")).numbers.back == ()


@pytest.mark.parametrize("key", [None, HmacSigner(KEY)])
def test_lines_that_nobody_wrote_are_problems_and_no_crash(tmp_path: Path, key: HmacSigner | None) -> None:
    path = clean_log(tmp_path / "log.jsonl", signer=key)
    text = path.read_text()
    first, event = text.splitlines()[0], next(line for line in text.splitlines() if '"verification"' in line)
    # Somewhere in this range reading a line still works and writing it does not.
    deep = ["[" * depth + "]" * depth for depth in (*range(100, 900, 100), *range(900, 1100))]
    values = ("NaN", "1e999", "-Infinity", "9" * 5000, '"\\ud800"', '{"a":[]}', *deep)
    hostile = [line[:-1] + f',"x":{value}}}' for value in values for line in (first, event)]
    hostile += [
        "[1]",
        "null",
        '"seal"',
        '{"seal":{"chain":"x","prev":"y","seq":true,"sha256":"z"},"kind":["a"]}',
    ]
    path.write_text(text + "\n".join(hostile) + "\n")
    whole = text.count("\n")
    bad = {problem.line for problem in verify_log(path, verifier=key).problems}
    assert bad >= set(range(whole + 1, whole + 1 + len(hostile)))
    assert read_report(path, verifier=key).numbers.integrity.state == "altered"
    if key is not None:
        signature = json.loads(first)["signature"]
        for forged in ("null", "[]", '"x"', '{"algorithm":[],"key_id":{},"value":7}'):
            path.write_text(
                text.replace(json.dumps(signature, separators=(",", ":"), sort_keys=True), forged, 1)
            )
            assert read_report(path, verifier=key).numbers.integrity.state == "altered", forged


@pytest.mark.parametrize("name", HOSTILE)
def test_what_does_not_show_is_made_visible(name: str) -> None:
    assert visible(name).isprintable()
    assert visible("Grüße, 数") == "Grüße, 数"


def test_rates_say_all_or_nothing_only_where_it_is_so() -> None:
    assert [percent(value) for value in (0, 0.001, 50, 99.999, 100, None)] == [
        "0 %",
        "< 0.01 %",
        "50 %",
        "> 99.99 %",
        "100 %",
        "–",
    ]
    assert [probability(value) for value in (0, 1e-9, 0.5, 0.99999, 1)] == [
        "0.000",
        "< 0.001",
        "0.500",
        "> 0.999",
        "1.000",
    ]


def test_a_recorder_takes_exposures_and_no_text(tmp_path: Path) -> None:
    policy = Policy(
        name="p", rules=(StringRule(id="code", strings=("Bluebird",)), RegexRule(id="n", regex=r"\d{9}"))
    )
    texts = ("all is well", "the Bluebi", "the Bluebird 1234", "12345678")
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        run = RunRecorder(sink, correlation_key=secrets.token_bytes(16))
        for text in texts:
            found = verify_by_definition(policy, text)
            run.verification(
                ok=found.ok,
                length=found.length,
                findings=[(one.rule_id, one.start, one.end) for one in found.findings],
                exposures=[(one.rule_id, one.start, one.end) for one in exposure(policy, text)],
                policy_digest=found.policy_digest,
                text=text,
            )
    assert all("value_hmac" not in one for line in lines_of(path) for one in line["exposures"])
    (corpus,) = read_report(path, exposure_from=6).numbers.corpora
    assert (corpus.texts, corpus.violations, corpus.measured, corpus.exposed) == (4, 1, 4, 3)
    rules = {one.rule_id: one for one in corpus.exposures}
    assert (rules["code"].exposed, rules["code"].longest, rules["n"].longest) == (2, 8, 8)
    for bad in (
        [("code", 0, 12)],
        [("code", 0, 1), ("code", 0, 2)],
    ):
        with pytest.raises(AuditError):
            RunRecorder(lambda _: None).verification(ok=True, length=11, exposures=bad)


def test_the_report_of_runs_full_of_personal_data_holds_no_canary(tmp_path: Path) -> None:
    import torch
    from transformers import set_seed

    from nco_guard import Guard, demo

    torch.set_num_threads(1)
    words = RegexRule(id="long-words", regex=r"\b[a-z]{6,}\b", monitor=True)
    policy = Policy.from_presets("pii").with_rules(words, StringRule(id="own", strings=canaries.CANARIES))
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        guard = Guard(policy, audit=sink, correlation_key=KEY)
        set_seed(3)
        result = guard.generate(
            *demo.load(), canaries.prompts(8), max_new_tokens=canaries.TOKENS, do_sample=True
        )
    report = read_report(path)
    assert report.numbers.all.interventions
    assert any(one.rule_id == "long-words" and one.findings for one in report.numbers.rules)
    assert verdict(report.numbers, "violations") == "No, in what is here"
    page = render_report(report)
    assert str(report.numbers.totals.events) in page
    # The template, the style and the script are the same for every log.
    own = render_report(read_report(write_log(tmp_path / "other.jsonl", random_events(3, 1))))
    words_of_the_page = set(own.split())
    said = " ".join(word for word in page.split() if word not in words_of_the_page)
    canaries.assert_silent(said + report.numbers.model_dump_json() + repr(report), *result.texts)
