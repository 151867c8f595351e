"""The fast verifier against the definition, `verify_by_definition`, rule by rule and finding by finding."""

from __future__ import annotations

import gc
import pickle
import random
import re
import weakref
from concurrent.futures import ThreadPoolExecutor

import interegular
import pytest

from benchmarks.inputs.regex_sets import regexpspace_shaped
from nco_guard import Guard, verify
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule, StringRule, presets
from nco_guard.scan import Finding, Verifier, lanes, scanner
from nco_guard.scan.definition import verify_by_definition
from nco_guard.values import Cleaner
from tests.automata import patterns
from tests.automata.checksum_reference import CHECKS
from tests.slow import rest_slow
from tests.test_cases import CASES

FILLER = "Lorem ipsum dolor sit amet, consectetur adipiscing elit; "
FOLDS: list[dict[str, object]] = [
    {},
    {},
    {},
    {"normalize": "nfkc"},
    {"ignore": ("zero-width", "-")},
    {"json_escapes": True},
    {"normalize": "nfkc", "ignore": ("combining",), "json_escapes": True},
]
FOLDED_TEXTS = [
    "ａb",
    "a\u200bb",
    "\\u0061b",
    "ﬁ",
    "é",
    "e\u0301",
    "\\",
    "\\\\",
    '\\"',
    "ﷺ",
    "½",
    "ſ",
    "\ud800",
    "😀",
]


@pytest.fixture(params=["adaptive", "sparse", "long", "short"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts are dense with places to look at; once they are searched as long ones are, once as for long lists.

    And once as they are searched themselves: without asking where conditions hold.
    """
    if request.param == "short":
        monkeypatch.setattr(lanes, "_AT_ONCE", 1 << 30)
    if request.param == "sparse":
        monkeypatch.setattr(scanner, "_DENSE", 0)
    if request.param == "long":
        monkeypatch.setattr(scanner, "_LONG_LIST", 0)
        monkeypatch.setattr(lanes, "_SHORT", 60)


def random_rule(rng: random.Random, index: int) -> Rule | None:
    kind = rng.random()
    mode: dict[str, object] = rng.choice([{}, {"monitor": True}, {"penalty": 2.0}])
    fold: dict[str, object] = rng.choice(FOLDS)
    name = f"r{index}"
    case = rng.choice(["exact", "fold"])
    whole = rng.random() < 0.3
    context = rng.choice(["output", "output", "prompt"])
    try:
        if kind < 0.3:
            strings = tuple({"".join(rng.choices("abkKé1 \u212as", k=rng.randint(1, 4))) for _ in range(3)})
            confusables = rng.choice(["none", "none", "letters", "leet"])
            return StringRule(
                id=name, strings=strings, case=case, whole_word=whole, context=context,
                confusables=confusables, **fold, **mode,
            )  # fmt: skip
        if kind < 0.4:
            fsm = interegular.parse_pattern(rng.choice(["ab+", "a[^b]c?", "(ab|k)1", ".a"])).to_fsm()
            return AutomatonRule(id=name, fsm=fsm, **mode)
        if kind < 0.5:
            pattern = rng.choice([r"[\d -]{2,}", r"(?<!1)\d{2,6}(?!\d)", r"[a-k\d]{5,}"])
            return RegexRule(id=name, regex=pattern, checksum=rng.choice(list(CHECKS.values())), **mode)
        pattern, flags = patterns.valid_pattern(rng, 4)
        if flags & ~re.IGNORECASE or re.compile(pattern, flags).search(""):
            return None
        return RegexRule(
            id=name, regex=pattern, case="fold" if flags else "exact", whole_word=whole, context=context,
            **fold, **mode,
        )  # fmt: skip
    except ValueError:
        return None


def random_policy(rng: random.Random) -> CompiledPolicy:
    while True:
        found = [rule for i in range(rng.randint(1, 4)) if (rule := random_rule(rng, i)) is not None]
        if found:
            try:
                return compile_policy(Policy(name="p", rules=tuple(found)))
            except ValueError:
                continue


def random_text(rng: random.Random) -> str:
    pieces = [
        rng.choice([patterns.text(rng), rng.choice(FOLDED_TEXTS), "ab", "1234", "k1", " ", "\0"])
        for _ in range(rng.randint(0, 8))
    ]
    if rng.random() < 0.3:
        pieces.insert(rng.randint(0, len(pieces)), FILLER)
    return "".join(pieces)


def streamed(verifier: Verifier, text: str, rng: random.Random, piece: int) -> tuple[Finding, ...]:
    stream = verifier.stream(piece=piece)
    found: list[Finding] = []
    place = 0
    while place < len(text):
        size = rng.randint(1, 1 + len(text) // 3)
        safe = stream.safe
        more = stream.feed(text[place : place + size])
        assert all(finding.start >= safe for finding in more)
        found += more
        place += size
    found += stream.finish()
    return tuple(sorted(found, key=lambda f: (f.start, f.end, f.rule_id)))


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_random_policies_find_in_random_texts_what_the_definition_finds(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(40):
        compiled = random_policy(rng)
        verifier = Verifier(compiled)
        texts = [random_text(rng) for _ in range(6)]
        expected = [verify_by_definition(compiled, text) for text in texts]
        assert verifier.verify_many(texts) == expected, compiled.policy.to_json()
        found += sum(len(report.findings) for report in expected)
        for text, report in zip(texts, expected, strict=True):
            for piece in (1, 7, 50):
                assert streamed(verifier, text, rng, piece) == report.findings, (
                    compiled.policy.to_json(),
                    text,
                )
        context = random_text(rng)
        for text in texts[:2]:
            assert verifier.verify(text, context=context) == verify_by_definition(
                compiled, text, context=context
            ), (
                compiled.policy.to_json(),
                context,
                text,
            )
    assert found > 100


@pytest.mark.parametrize("kept", [64 << 20, 2_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_of_rules_finds_what_its_members_find(
    seed: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass of all machines together decides who looks further; `kept`: also when its states are forgotten."""
    monkeypatch.setattr(lanes, "_KEPT_BYTES", kept)
    monkeypatch.setattr(lanes, "_PASS", 8)
    rng = random.Random(seed)
    regexes = [
        r"wx+y|zz",
        r"\bwz\b",
        r"w(?=x)",
        r"(?<!z)yy",
        "z$",
        "^xw",
        *regexpspace_shaped(30, seed=seed).patterns,
    ]
    rules = [
        RegexRule(id=f"r{i}", regex=regex, **rng.choice([{}, {"monitor": True}, {"context": "prompt"}]))
        for i, regex in enumerate(regexes)
    ]
    rules.append(RegexRule(id="other", regex="abcdefghijklmnop|[A-Z]{3}", penalty=1.0))
    compiled = compile_policy(Policy(name="p", rules=tuple(rules)))
    verifier = Verifier(compiled)
    assert [len(crowd.lane.scanners) for crowd in verifier._crowds] == [36]
    texts = ["".join(rng.choices("wxyz aqu\n", k=rng.randint(0, 30))) for _ in range(60)]
    texts += ["", "no such letters", "ABC", "w"]
    expected = [verify_by_definition(compiled, text) for text in texts]
    assert verifier.verify_many(texts) == expected
    assert 4 < sum(report.findings == () for report in expected) < 60
    for text, report in zip(texts[:20], expected, strict=False):
        assert streamed(verifier, text, rng, 7) == report.findings
        assert verifier.verify(text, context="wxx") == verify_by_definition(compiled, text, context="wxx")


@pytest.mark.usefixtures("_way")
def test_the_corpus_of_cases_is_found_alike_and_at_any_cut() -> None:
    rng = random.Random(1)
    for case in CASES:
        compiled = compile_policy(Policy(name="p", rules=(case.rule,)))
        verifier = Verifier(compiled)
        texts = [*case.match, *case.no_match, *(text for text, _ in case.spans)]
        texts += [FILLER + text + FILLER for text in texts]
        expected = [verify_by_definition(compiled, text) for text in texts]
        assert verifier.verify_many(texts) == expected, case.id
        for text, report in zip(texts, expected, strict=True):
            assert streamed(verifier, text, rng, 3) == report.findings, (case.id, text)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("name", ["pii", "pii_paper", "secrets"])
def test_the_examples_of_presets_are_found_alike(name: str) -> None:
    compiled = compile_policy(Policy.from_presets(name))
    verifier = Verifier(compiled)
    texts = [t for p in presets.patterns(name) for t in (*p.examples.match, *p.examples.no_match)]
    rng = random.Random(2)
    texts.append("".join(text + rng.choice([" ", "\n", FILLER]) for text in texts))
    reports = verifier.verify_many(texts)
    assert reports == [verify_by_definition(compiled, text) for text in texts]
    assert streamed(verifier, texts[-1], rng, 20) == reports[-1].findings
    assert len(reports[-1].findings) > 5


def test_ldnoobw_finds_alike_as_words_and_as_substrings() -> None:
    base = Policy.from_presets("ldnoobw").rules[0]
    assert isinstance(base, StringRule)
    rng = random.Random(3)
    words = [*FILLER.split(), "class", "assess", "ASSASSIN", "grape", "Scunthorpe", *base.strings]
    text = "".join(rng.choice([word, word.upper(), word[:3]]) + rng.choice(" .-\nk_") for word in words * 3)
    for whole in (True, False):
        for case in ("exact", "fold"):
            rule = base.model_copy(update={"whole_word": whole, "case": case})
            compiled = compile_policy(Policy(name="p", rules=(rule,)))
            assert Verifier(compiled).verify(text) == verify_by_definition(compiled, text)


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        (r"(a+)+$", "a"),
        (r"(x+x+)+y", "x"),
        (r"(?s)a.*b|a", "a"),
        (r"a+@b", "a"),
        (r"(?s)a(?=.*b)", "a"),
        (r"[\w.]+@[\w.]+\.com", "a@a"),
        (r".{0,30}password", "passwor"),
        (r"(?s)begin.*end", "begin"),
    ],
)
def test_the_work_is_linear_in_the_text_whole_and_in_pieces(pattern: str, unit: str) -> None:
    """Counted in characters that automata read."""

    def work(length: int, pieces: bool) -> int:
        verifier = Verifier(Policy(name="p", rules=(RegexRule(id="r", regex=pattern),)))
        text = (unit * length)[:length] + "!"
        if pieces:
            stream = verifier.stream(piece=500)
            for place in range(0, len(text), 100):
                stream.feed(text[place : place + 100])
            stream.finish()
        else:
            verifier.verify(text)
        return verifier.steps

    for pieces in (False, True):
        assert work(16_000, pieces) <= 2.5 * work(8_000, pieces) + 5_000
        assert work(16_000, pieces) < 200 * 16_000


def test_conditions_are_made_when_enough_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    compiled = compile_policy(Policy.from_presets("pii"))
    verifier = Verifier(compiled)
    (lane,) = verifier._lanes
    text = FILLER + "mail me at jane.doe@example.com, 10.20.30.40"
    made = []
    for _ in range(60):
        assert verifier.verify(text) == verify_by_definition(compiled, text)
        made.append("_filter" in vars(lane))
    assert made == sorted(made)
    assert set(made) == {False, True}


def test_a_verifier_is_shared_by_threads() -> None:
    compiled = compile_policy(Policy.from_presets("pii"))
    verifier = Verifier(compiled)
    texts = [FILLER * i + "mail me at jane.doe@example.com, 10.20.30.40" for i in range(40)]
    expected = [verify_by_definition(compiled, text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(verifier.verify, texts)) == expected


def test_a_compiled_policy_has_one_verifier_which_is_forgotten_with_it() -> None:
    guard = Guard.from_presets("pii")
    compiled = guard.verifier.compiled
    verifier = Verifier.of(compiled)
    assert Verifier.of(guard) is guard.verifier is verifier
    assert Cleaner(guard).finder.verifier is Cleaner(compiled).finder.verifier is verifier
    assert Verifier.of(guard.without("pii.email")) is not verifier
    gone = weakref.ref(verifier)
    del guard, compiled, verifier
    gc.collect()
    assert gone() is None


def test_a_policy_keeps_what_it_is_compiled_to_and_neither_outlives_the_other() -> None:
    policy = Policy.from_presets("pii")
    size, equal = len(pickle.dumps(policy)), policy.model_copy()
    with ThreadPoolExecutor(4) as pool:
        (verifier,) = set(pool.map(Verifier.of, [policy] * 4))
    assert Verifier.of(policy) is verifier is not Verifier.of(equal)
    assert verify(policy, "to jo@example.com") == verifier.verify("to jo@example.com")
    assert (policy, hash(policy), len(pickle.dumps(policy))) == (equal, hash(equal), size)
    gone = weakref.ref(verifier), weakref.ref(verifier.compiled)
    del policy, verifier
    gc.collect()
    assert [each() for each in gone] == [None, None]


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        (r"[\w.]+@[\w.]+\.com", "jane.doe@example.com"),
        (r"[a-z]{3,9}#\d{4}Q", "abcdef#1234Q"),
        (r"(?<=to )[a-z ]{1,20}(?:zap|zip)!", "call me zip!"),
    ],
)
def test_parts_of_matches_are_waited_for_at_every_cut(
    pattern: str, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conditions about a later part of a match, where that part has not come yet."""
    monkeypatch.setattr(scanner, "_DENSE", 0)
    compiled = compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=pattern),)))
    verifier = Verifier(compiled)
    text = f"{FILLER}to {match} {FILLER}"
    expected = verify_by_definition(compiled, text).findings
    assert len(expected) == 1
    for cut in range(len(text) + 1):
        stream = verifier.stream(piece=1)
        found = [*stream.feed(text[:cut]), *stream.feed(text[cut:]), *stream.finish()]
        assert tuple(found) == expected, cut
