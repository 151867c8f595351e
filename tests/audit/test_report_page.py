"""The report in a real browser: its numbers are the log's, names in it stay text, and it can be used and read anywhere.

Without a browser (or its driver) these tests are skipped; with NCO_GUARD_REQUIRE_BROWSER=1 they fail instead.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nco_guard.audit.report import AuditReport, read_report, render_report
from nco_guard.audit.report.table import Column
from tests.audit.report_logs import HOSTILE, Reference, lines_of, random_events, write_log

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# No sandbox, for tests may run as root; nothing that would have the browser itself look for a network.
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
DASH = "–"

# How many texts are visible, the least contrast of one to what is behind it, and that text; without disabled controls.
CONTRAST = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = channels(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("script,noscript,svg,:disabled,option")) continue;
    if (!element.checkVisibility()) continue;
    const pair = [luminance(channels(getComputedStyle(element).color)), luminance(behind(element))];
    found.push([(Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05), walker.currentNode.textContent.trim()]);
  }
  found.sort((one, other) => one[0] - other[0]);
  return [found.length, ...found[0]];
}"""
# What reaches over the right edge of the page and is not within something that scrolls by itself.
OVERFLOW = """() => [...document.body.querySelectorAll("*")].filter((one) => {
  if (one.closest(".wide") && !one.classList.contains("wide")) return false;
  return one.checkVisibility() && one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5;
}).map((one) => one.outerHTML.slice(0, 200))"""
# Texts that are drawn over each other; on a phone the names of values are before the values, see the style sheet.
OVERLAPS = """() => {
  const [boxes, found, walker] = [[], [], document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)];
  while (walker.nextNode()) {
    const [node, element, range] = [walker.currentNode, walker.currentNode.parentElement, document.createRange()];
    if (!node.textContent.trim() || element.closest("script,option,.hidden") || !element.checkVisibility()) continue;
    if (element.closest("thead") && getComputedStyle(element.closest("thead")).clipPath !== "none") continue;
    range.selectNodeContents(node);
    boxes.push(...[...range.getClientRects()].filter((box) => box.width > 1).map((box) => [node.textContent, box]));
  }
  for (const cell of document.querySelectorAll("td[data-label]")) {
    const [label, style] = [getComputedStyle(cell, "::before"), getComputedStyle(cell)];
    if (label.float !== "left" || label.content === "none" || !cell.checkVisibility()) continue;
    const box = cell.getBoundingClientRect();
    const left = box.left + parseFloat(style.paddingLeft) + parseFloat(label.marginLeft);
    const size = [parseFloat(label.width), parseFloat(label.height)];
    boxes.push([label.content, new DOMRect(left, box.top + parseFloat(style.paddingTop), ...size)]);
  }
  boxes.forEach(([one, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    if (across > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) found.push([one, other]);
  }));
  return [boxes.length, found];
}"""
TABLE = """(selector) => [...document.querySelectorAll(selector + " tbody tr")].map(
  (row) => [...row.cells].map((cell) => cell.innerText.trim()))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    required = os.environ.get("NCO_GUARD_REQUIRE_BROWSER") == "1"
    path = next(filter(None, map(shutil.which, NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if required:
            raise
        pytest.skip("needs playwright: pip install 'nco-guard[dev]'")
    if path is None:
        assert not required, f"none of {', '.join(NAMES)} is installed, and NCO_GUARD_REQUIRE_BROWSER is set"
        pytest.skip("needs Chromium")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=list(SWITCHES))
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def log(folder: Path) -> Path:
    return write_log(folder / "log.jsonl", random_events(150, 11), max_bytes=300_000)


@pytest.fixture(scope="module")
def reference(log: Path) -> Reference:
    return Reference(lines_of(log))


@pytest.fixture(scope="module")
def written(folder: Path, log: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render_report(read_report(log)), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page in a browser of its own; at the end, nothing may have been asked for, or complained about."""
    contexts: list[Any] = []
    asked: list[str] = []
    said: list[str] = []

    def open_page(path: Path, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": WIDE, **options}))
        page = contexts[-1].new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(path.as_uri())
        asked.remove(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.broken") is None
        context.close()
    assert asked == []
    assert said == []


def number(text: str) -> float:
    return 0.0 if text == DASH else float(text.replace(",", "").removesuffix(" %"))


def shown_name(name: str | None) -> str:
    """A name as the page's tables show it."""
    if name is None:
        return "not named"
    escaped = "".join(one if one.isprintable() else repr(one)[1:-1] for one in name)
    return escaped if len(escaped) <= 64 else f"{escaped[:64]}… ({len(escaped):,} characters)"


def squeezed(text: str) -> str:
    return " ".join(text.split())


def status(page: Any) -> int:
    """How many events fit the filters."""
    text = page.inner_text("#status")
    return int(re.search(r"([\d,]+) events", text)[1].replace(",", ""))  # type: ignore[index]


# -- numbers -------------------------------------------------------------------------------------------------------


def test_the_first_screen_answers_the_four_questions(
    opened: Callable[..., Any], written: Path, reference: Reference
) -> None:
    page = opened(written)
    for key, answer in {
        "integrity": "Yes, as far as it goes",
        "violations": "Yes",
        "interventions": f"{len(reference.of('intervention')):,} interventions",
        "mishaps": f"{len(reference.of('dead_end'))} dead ends, "
        f"{sum('error' in line for line in reference.of('run_finished'))} runs with errors",
    }.items():
        verdict = page.locator(f"#answer-{key} .verdict")
        assert verdict.inner_text() == answer
        assert verdict.bounding_box()["y"] + verdict.bounding_box()["height"] < WIDE["height"]
    own = [line for line in reference.of("verification") if reference.source(line) in ("guarded", "cut")]
    bad = sum(not line["ok"] for line in own)
    assert f"{bad} of {len(own)} verified texts" in page.inner_text("#answer-violations")
    assert f"{reference.lost()} events" in page.inner_text("#answer-integrity")


def test_the_table_of_rules_holds_the_numbers_of_the_log(
    opened: Callable[..., Any], written: Path, reference: Reference
) -> None:
    rows = opened(written).evaluate(TABLE, "#rules")
    counts = reference.interventions_by_rule()
    named = {shown_name(rule): rule for rule in counts}
    assert len(rows) == len(counts)
    for name, interventions, share, _, removed, mean, dead_ends, findings, _ in rows:
        rule = named[re.sub(r" (hard|monitor) regex$", "", squeezed(name))]
        values = reference.removed_by_rule(rule)
        assert number(interventions) == counts[rule]
        assert number(share) == pytest.approx(
            100 * counts[rule] / len(reference.of("intervention")), abs=0.006
        )
        assert number(removed) == pytest.approx(sum(values), abs=0.06)
        assert number(mean) == pytest.approx(sum(values) / len(values), abs=0.0006)
        assert number(dead_ends) == sum(
            rule in (line["rule_ids"] or [None]) for line in reference.of("dead_end")
        )
        assert number(findings) == sum(
            span["rule_id"] == rule for line in reference.of("verification") for span in line["findings"]
        )


def test_the_table_of_models_holds_the_numbers_of_the_log(
    opened: Callable[..., Any], written: Path, reference: Reference
) -> None:
    rows = opened(written).evaluate(TABLE, "#models")
    by_kind = {
        column: reference.by_model(kind)
        for column, kind in ((1, "intervention"), (5, "run_started"), (8, "dead_end"), (10, "verification"))
    }
    models = {shown_name(model): model for model in by_kind[5]}
    assert {squeezed(row[0]) for row in rows} == set(models)
    for row in rows:
        for column, found in by_kind.items():
            assert number(row[column]) == found[models[squeezed(row[0])]]


def test_the_table_of_texts_holds_the_numbers_of_the_log(
    opened: Callable[..., Any], written: Path, reference: Reference
) -> None:
    origins = {
        "written under the guard": "guarded",
        "runs without a beginning": "cut",
        "calls that were watched": "observed",
        "verified apart": "apart",
    }
    rows = opened(written).evaluate(TABLE, "#texts > .wide")
    texts = reference.texts()
    assert len(rows) == len(texts)
    for origin, policy, count, characters, violations, rate, measured, exposed, exposure in rows:
        (lines,) = [
            lines
            for (source, digest), lines in texts.items()
            if source == origins[origin]
            and ((digest or "").removeprefix("sha256:")[:12] or "not named") == policy
        ]
        bad = sum(not line["ok"] for line in lines)
        known = [line["exposures"] for line in lines if "exposures" in line]
        long = sum(any(one["end"] - one["start"] >= 8 for one in spans) for spans in known)
        assert [number(text) for text in (count, characters, violations, measured, exposed)] == [
            len(lines),
            sum(line["length"] for line in lines),
            bad,
            len(known),
            long,
        ]
        assert number(rate) == pytest.approx(100 * bad / len(lines), abs=0.006)
        assert (exposure == DASH) == (not known)
        if known:
            assert number(exposure) == pytest.approx(100 * long / len(known), abs=0.006)


def test_charts_are_drawn_to_scale_and_have_a_table_behind(
    opened: Callable[..., Any], written: Path, reference: Reference
) -> None:
    page = opened(written)
    for chart, column, total in (
        ("timeline", 2, len(reference.of("intervention"))),
        ("histogram", 1, sum("removed_probability" in line for line in reference.of("intervention"))),
    ):
        svg = page.locator(f"#{chart}")
        assert svg.get_attribute("role") == "img"
        for label in svg.get_attribute("aria-labelledby").split():
            assert page.locator(f"#{label}").text_content()
        details = page.locator("section", has=svg).locator("details").first
        details.locator("summary").click()
        values = [
            number(row[column]) for row in page.evaluate(TABLE, f"section:has(#{chart}) > details[open]")
        ]
        assert sum(values) == total
        heights = [float(bar.get_attribute("height")) for bar in svg.locator("rect.intervention").all()]
        drawn = [value for value in values if value]
        assert len(heights) == len(drawn)
        for height, value in zip(heights, drawn, strict=True):
            assert height == pytest.approx(max(1.0, max(heights) * value / max(drawn)), abs=0.01)
        titles = [title.text_content() for title in svg.locator("rect.intervention title").all()]
        assert [int(re.search(r": ([\d,]+) ", text)[1].replace(",", "")) for text in titles] == drawn  # type: ignore[index]


# -- the table of events -------------------------------------------------------------------------------------------


def rules_of(line: dict[str, Any]) -> set[str]:
    if line["kind"] in ("intervention", "dead_end"):
        return set(line["rule_ids"])
    return {span["rule_id"] for span in line.get("findings", ())}


def test_filters_leave_what_the_log_has_of_it(
    opened: Callable[..., Any], written: Path, reference: Reference
) -> None:
    page = opened(written)
    assert status(page) == len(reference.lines)

    def model(line: dict[str, Any]) -> str | None:
        first = reference.start(line)
        return first.get("model_id") if first["kind"] == "run_started" else None

    def fitting(fits: Callable[[dict[str, Any]], bool]) -> int:
        return sum(map(fits, reference.lines))

    def choose(select: str, label: str) -> None:
        options = page.locator(f"{select} option").all_text_contents()
        (value,) = [option for option in options if option.startswith(f"{label} (")]
        page.select_option(select, label=value)

    kinds = Counter(line["kind"] for line in reference.lines)
    for kind, count in kinds.items():
        choose("#filter-kind", kind.replace("_", " "))
        assert status(page) == count
        assert {row[2] for row in page.evaluate(TABLE, "#event-table")} == {kind.replace("_", " ")}
    page.click("#filter-reset")
    for rule in ("email", "phone", HOSTILE[0]):
        choose("#filter-rule", rule)
        assert status(page) == fitting(lambda line, rule=rule: rule in rules_of(line))  # type: ignore[misc]
        assert all(rule in row[4] for row in page.evaluate(TABLE, "#event-table"))
    choose("#filter-kind", "intervention")
    count = fitting(lambda line: line["kind"] == "intervention" and HOSTILE[0] in rules_of(line))
    assert status(page) == count
    page.click("#filter-reset")
    for name, label in (("demo-2m", "demo-2m"), (None, "not named"), (HOSTILE[1], HOSTILE[1])):
        choose("#filter-model", label)
        assert status(page) == fitting(lambda line, name=name: model(line) == name)  # type: ignore[misc]
    page.click("#filter-reset")
    run = reference.of("intervention")[7]["run_id"]
    page.fill("#filter-run", run[:8].upper())
    page.wait_for_function(
        "n => document.querySelector('#status').textContent.includes(`${n} events`)",
        arg=len(reference.runs[run]),
    )
    assert {row[6] for row in page.evaluate(TABLE, "#event-table")} == {run[:8]}
    page.click("#filter-reset")
    for text in ("request-1", "<IMG", "demo", "no such id"):
        low = text.lower()

        def named(line: dict[str, Any], low: str = low) -> bool:
            ids = (line["run_id"], line.get("request_id"), model(line), *rules_of(line))
            return any(low in one.lower() for one in ids if one)

        page.fill("#filter-text", text)
        page.wait_for_function(
            "n => document.querySelector('#status').textContent.includes(`${n} events`)",
            arg=f"{fitting(named):,}",
        )
    assert "No event fits" in page.inner_text("#event-table tbody")
    page.click("#filter-reset")
    assert status(page) == len(reference.lines)


def test_pages_and_sorting_show_each_event_once(
    opened: Callable[..., Any], written: Path, reference: Reference
) -> None:
    page = opened(written)
    page.select_option("#filter-kind", index=1)  # the kind that is most frequent
    page.select_option("#page-size", "100")
    times, removed = [], []
    while True:
        for row in page.evaluate(TABLE, "#event-table"):
            times.append(row[1])
            removed.append(row[8])
        if page.is_disabled("#page-next"):
            break
        page.click("#page-next")
    lines = reference.of("intervention")
    assert times == [line["time"].replace("T", " ")[:23] for line in reversed(lines)]
    assert Counter(removed) == Counter(
        f"{line['removed_probability']:.3f}" if "removed_probability" in line else DASH for line in lines
    )
    heading = page.locator("#event-table th[data-sort=removed]")
    for direction, least_first in (("ascending", True), ("descending", False)):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == direction
        assert page.locator("#event-table th[aria-sort]").count() == 1
        values = sorted((number(one) for one in removed if one != DASH), reverse=not least_first)
        assert [number(row[8]) for row in page.evaluate(TABLE, "#event-table")] == values[:100]
    page.click("#page-last")
    assert (
        page.evaluate(TABLE, "#event-table")[-1][8] == DASH
    )  # what has no value is last, whatever the order


def test_everything_can_be_done_from_the_keyboard(opened: Callable[..., Any], written: Path) -> None:
    page = opened(written)
    page.focus("#filter-reset")
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement.closest('th')?.dataset.sort"
                " ?? document.activeElement.getAttribute('aria-label')"
            )
        )
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert {"time", "kind", "rules", "removed"} <= set(seen)
    label = seen[-1]
    assert label.startswith("Details of event")
    page.keyboard.press("Enter")
    detail = page.locator("#event-table tr.detail")
    assert detail.count() == 1
    assert "of run" in detail.inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # "Show only this run"
    run = page.input_value("#filter-run")
    assert len(run) == 36
    assert {row[6] for row in page.evaluate(TABLE, "#event-table")} == {run[:8]}
    assert page.evaluate("document.activeElement.id") == "filter-run"


def test_a_hundred_thousand_events_can_be_filtered(
    opened: Callable[..., Any], folder: Path, log: Path, reference: Reference
) -> None:
    report = read_report(log)
    times = 100_000 // report.table.shown + 1
    columns: dict[str, Column] = {name: list(column) * times for name, column in report.table.columns.items()}
    many = AuditReport(
        report.numbers,
        dataclasses.replace(report.table, columns=columns, total=report.table.total * times + 9),
    )
    path = folder / "many.html"
    path.write_text(render_report(many), encoding="utf-8")
    assert path.stat().st_size < 12e6
    page = opened(path)
    assert status(page) == times * len(reference.lines) >= 100_000
    assert "9 are left out" in page.inner_text("#events")
    page.select_option("#filter-kind", index=1)
    assert status(page) == times * len(reference.of("intervention"))
    page.locator("#event-table th[data-sort=rules] button").click()
    page.click("#page-last")
    assert page.locator("#event-table tbody tr").count() <= 50


# -- hostile names -------------------------------------------------------------------------------------------------


def test_names_stay_text_in_the_rows_too(opened: Callable[..., Any], written: Path) -> None:
    page = opened(written)
    for text in (HOSTILE[0], HOSTILE[1], "gpj.exe", "\\u202e"):
        page.click("#filter-reset")
        page.fill("#filter-text", text)
        page.wait_for_function(
            "() => document.querySelector('#status').textContent.includes('in this table')"
        )
        assert status(page)
        page.locator("#event-table td.toggle button").first.click()
        assert text in page.inner_text("#event-table tr.detail")
    assert page.locator("img, iframe, svg[onload]").count() == 0


def test_the_policy_of_the_page_lets_nothing_in(browser: Any, written: Path) -> None:
    page = browser.new_page()
    blocked: list[str] = []
    page.on("console", lambda message: blocked.append(message.text))
    page.goto(written.as_uri())
    load = """address => new Promise((done) => {
        const image = new Image();
        image.onload = () => done("loaded");
        image.onerror = () => done("refused");
        image.src = address;
    })"""
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
    assert page.evaluate(load, pixel) == "refused"
    assert any("Content Security Policy" in text for text in blocked)
    for sink in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<img>')",
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.broken = 9'}))",
        "fetch('data:text/plain,x')",
        "document.body.setAttribute('onclick', 'window.broken = 9')",
    ):
        outcome = page.evaluate(
            f"(async () => {{ try {{ await ({sink}); return 'done' }} catch (e) {{ return e.name }} }})()"
        )
        assert outcome == "TypeError", sink
    assert page.evaluate("window.broken") is None
    page.close()


# -- anywhere ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_texts_stand_out_and_nothing_is_cut_off(
    opened: Callable[..., Any], written: Path, scheme: str, viewport: dict[str, int]
) -> None:
    page = opened(written, viewport=viewport, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.locator("#event-table td.toggle button").first.click()
    count, contrast, text = page.evaluate(CONTRAST)
    assert count > 200
    assert contrast >= 4.5, text
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.evaluate(OVERFLOW) == []
    boxes, overlapping = page.evaluate(OVERLAPS)
    assert boxes > 200
    assert overlapping == []
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    red = int(re.findall(r"\d+", background)[0])
    assert red < 60 if scheme == "dark" else red > 240
    if viewport is PHONE:  # tables are lists there, each value with the name of its column
        assert (
            page.locator("#rules td").first.evaluate("one => getComputedStyle(one, '::before').content")
            == '"Interventions"'
        )
        scrolling = "[...document.querySelectorAll('.wide')].filter((one) => one.scrollWidth > one.clientWidth).length"
        assert page.evaluate(scrolling) == 0


def test_on_paper_there_are_no_controls_and_nothing_is_folded(
    opened: Callable[..., Any], written: Path
) -> None:
    page = opened(written, color_scheme="dark")
    assert page.is_visible(".controls")
    page.emulate_media(media="print")
    for selector in (".controls", "nav", "#event-table .toggle"):
        assert not page.locator(selector).filter(visible=True).count(), selector
    assert page.is_visible("#status")
    ink = page.evaluate("getComputedStyle(document.documentElement).color")
    assert max(map(int, re.findall(r"\d+", ink))) < 60  # dark ink also where screens are dark
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_all_but_the_rows_is_there(
    opened: Callable[..., Any], browser: Any, written: Path, reference: Reference
) -> None:
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto(written.as_uri())
    assert f"{len(reference.of('intervention')):,} interventions" in page.inner_text("#answers")
    assert "needs JavaScript" in page.inner_text("#events")
    assert not page.is_visible("#browser")
    assert page.is_visible("#timeline")
    context.close()


# -- logs that are not whole ---------------------------------------------------------------------------------------


def test_an_edited_log_is_never_shown_as_fine(opened: Callable[..., Any], folder: Path) -> None:
    log = write_log(folder / "edited.jsonl", random_events(80, 12, faults=False))
    lines = log.read_text("ascii").splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if '"ok":false' in line)
    lines[place] = lines[place].replace('"ok":false', '"ok":true')
    log.write_text("".join(lines))
    path = folder / "edited.html"
    path.write_text(render_report(read_report(log)), encoding="utf-8")
    for viewport in (WIDE, PHONE):
        page = opened(path, viewport=viewport)
        alarm = page.locator("#problems")
        assert "not as it was written" in alarm.inner_text()
        colours = page.evaluate(
            "['#problems h2', '#answer-integrity .verdict', 'body'].map("
            "(one) => getComputedStyle(document.querySelector(one)).color)"
        )
        assert colours[0] == colours[1] != colours[2]
        assert f"edited.jsonl:{place + 1}" in alarm.inner_text()
        assert alarm.bounding_box()["y"] < viewport["height"] / 2
        assert page.inner_text("#answer-integrity .verdict") == "No"
        assert page.inner_text("#answer-violations .verdict") in ("Yes", "Not known")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
