"""Baselines forbid what the definition forbids, on the paper's own ground; their documented holes are real."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.methods.baselines import ABLATIONS, BASELINES, NCO, BadWords, GuardTrie, RejectionSampling
from benchmarks.methods.baselines.automata import aho_corasick, compile_dfas
from benchmarks.methods.baselines.matching import Matcher
from benchmarks.methods.baselines.nco import PreparedNCO
from benchmarks.methods.baselines.nco_tables import bpe_merges
from nco_guard import demo
from nco_guard.demo.prompts import PROMPTS
from nco_guard.errors import DeadEndError, PatternError, TokenizerError, UnsupportedError
from nco_guard.policy.presets import pii_paper
from nco_guard.testing import biased_model, random_model, tiny_tokenizer
from nco_guard.tokens import Binding, Vocabulary, read_vocabulary

STRINGS = ("ass", "fuck", "the end", "a.b", "ab", "sass", "over the lazy", " of ", "nal", "analysis", "\n\n")
PATTERNS = (
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
    r"[0-9]{3}-[0-9]{2}-[0-9]{4}",
    r"a.{0,3}b",
    r"(?:ab|ba)+c",
    r"t[a-z]*e",
    r"[^a-z\n]{4}",
    r"q|(?:us|er)+",
)
WALKED = (
    "the quick fox",
    "john@enron.com",
    "078-05-1120",
    "fuck",
    "a class",
    "analysis",
    "abbac",
    " of the end",
)
STRING_METHODS = [name for name in {**BASELINES, **ABLATIONS} if name != "bad-words"]
PATTERN_METHODS = [name for name in STRING_METHODS if name not in ("guard", "no-failure-links")]
METHODS = {**BASELINES, **ABLATIONS}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["byte-level", "byte-fallback", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return tiny_tokenizer(request.param)


@pytest.fixture(scope="module")
def byte_level() -> Any:
    return tiny_tokenizer("byte-level")


def definition(
    strings: Sequence[str], patterns: Sequence[str], vocabulary: Vocabulary, text: bytes
) -> np.ndarray:
    """Which tokens complete a string or a match, by `in` and `re` on bytes read as one character each."""
    searches = [re.compile(pattern) for pattern in patterns]
    mask = np.zeros(vocabulary.width, bool)
    for token, data in enumerate(vocabulary.tokens):
        longer = text + data
        mask[token] = any(string.encode() in longer for string in strings) or any(
            search.search(longer.decode("latin-1")) for search in searches
        )
    mask[list(vocabulary.eos_ids)] = False
    return mask


def check(
    names: Sequence[str],
    strings: Sequence[str],
    patterns: Sequence[str],
    tokenizer: Any,
    seed: int,
    device: str = "cpu",
) -> None:
    """Masks of all methods along a random text that heads for what is forbidden."""
    rng, vocabulary = random.Random(seed), read_vocabulary(tokenizer)
    ready = {
        n: METHODS[n].setup(strings, patterns, tokenizer, vocabulary=vocabulary, device=device) for n in names
    }
    ids: list[int] = []
    wanted = b""
    for _ in range(14):
        expected = definition(strings, patterns, vocabulary, b"".join(vocabulary.tokens[i] for i in ids))
        for name, method in ready.items():
            differing = np.flatnonzero(method.forbidden(ids) != expected)
            assert not len(differing), (name, strings, patterns, ids, differing[:5])
        wanted = wanted or rng.choice(WALKED).encode()
        allowed = [i for i in np.flatnonzero(~expected).tolist() if vocabulary.tokens[i]]
        fitting = [i for i in allowed if wanted.startswith(vocabulary.tokens[i])]
        ids.append(rng.choice(fitting or allowed))
        wanted = wanted[len(vocabulary.tokens[ids[-1]]) :]


@pytest.mark.parametrize("seed", range(3))
def test_masks_of_strings_are_the_definition(seed: int, tokenizer: Any) -> None:
    strings = random.Random(seed).sample(STRINGS, 5)
    check(STRING_METHODS, strings, (), tokenizer, seed)


@pytest.mark.parametrize("seed", range(3))
def test_masks_of_patterns_are_the_definition(seed: int, tokenizer: Any) -> None:
    patterns = random.Random(seed).sample(PATTERNS, 2)
    check([n for n in PATTERN_METHODS if n != "naive" or seed == 0], (), patterns, tokenizer, seed)


@pytest.mark.parametrize("device", DEVICES)
def test_masks_of_strings_and_patterns_together_are_the_definition(device: str, byte_level: Any) -> None:
    names = [name for name in PATTERN_METHODS if name != "naive"]
    check(names, STRINGS[:4], PATTERNS, byte_level, 5, device)


@pytest.mark.parametrize("name", STRING_METHODS)
def test_a_match_that_begins_inside_a_failed_one_is_found(name: str, byte_level: Any) -> None:
    vocabulary = read_vocabulary(byte_level)
    method = METHODS[name].setup(("sass", "asby", "by the"), (), byte_level)
    for text in ("sasby", "sasbby the", "ssass"):
        *before, last = spelt(text, vocabulary)
        assert method.forbidden(before)[last]


def test_strings_are_exact_beyond_ascii(byte_level: Any) -> None:
    check(STRING_METHODS, ("café", "é", "日本", "Über"), (), byte_level, 1)


@pytest.mark.parametrize("seed", range(4))
def test_tables_are_the_same_however_they_are_set_up(seed: int, byte_level: Any) -> None:
    """Delta, B and R by BPE composition, token by token, and by the printed algorithms."""
    rng = random.Random(seed)
    strings, patterns = rng.sample(STRINGS, 3), rng.sample(PATTERNS, 2)
    naive, composed, alone = (
        NCO(setup_by=way).setup(strings, patterns, byte_level) for way in ("naive", "bpe", "per-token")
    )
    assert isinstance(naive, PreparedNCO)
    for other in (composed, alone):
        assert isinstance(other, PreparedNCO)
        for mine, theirs in ((naive.words, other.words), (naive.searches, other.searches)):
            assert mine is not None
            assert theirs is not None
            assert torch.equal(mine.blocked, theirs.blocked)
            assert torch.equal(mine.rows.packed.long() >> 1, theirs.rows.packed.long() >> 1)
            if mine.rows.reach is not None:
                assert theirs.rows.reach is not None
                assert torch.equal(mine.rows.reach, theirs.rows.reach)


def test_most_tokens_are_composed_of_tokens_of_lower_levels(byte_level: Any) -> None:
    vocabulary = read_vocabulary(byte_level)
    merges = bpe_merges(byte_level, vocabulary)
    made = set(merges.base)
    for level in merges.levels:
        for w, u, v in level.T.tolist():
            assert vocabulary.tokens[w] == vocabulary.tokens[u] + vocabulary.tokens[v]
            assert {u, v} <= made
        made.update(level[0].tolist())
    assert len(made) == vocabulary.width
    assert sum(level.shape[1] for level in merges.levels) > 100


def test_tables_are_dense_and_their_size_is_told(byte_level: Any) -> None:
    """16 bits for Delta and 8 for B per state and token; for patterns a float for B, and 8 bits for R."""
    width = len(byte_level)
    table, _ = aho_corasick(STRINGS)
    assert NCO().setup(STRINGS, (), byte_level).nbytes == 3 * len(table) * width
    states = compile_dfas(PATTERNS).sink + 1
    assert NCO().setup((), PATTERNS, byte_level).nbytes == 7 * states * width
    assert NCO(matmul=False).setup((), PATTERNS, byte_level).nbytes == 4 * states * width
    assert NCO(suffix_map=False, matmul=False).setup((), PATTERNS, byte_level).nbytes == 3 * states * width


@pytest.mark.parametrize("seed", range(20))
def test_the_matcher_finds_what_re_finds(seed: int) -> None:
    rng = random.Random(seed)
    strings, patterns = rng.sample(STRINGS, 2), rng.sample(PATTERNS, 2)
    matcher, text = Matcher(strings, patterns), "".join(rng.choice("ab@.0123-teqc \n") for _ in range(60))
    state, found = matcher.start, False
    for end in range(1, len(text) + 1):
        state, matched = matcher.step(state, ord(text[end - 1]))
        found = found or matched
        expected = any(s in text[:end] for s in strings) or any(re.search(p, text[:end]) for p in patterns)
        assert found == expected


WANTS = ("fuck", "ass ", "jo@enron.com")
FORBIDDEN = (("fuck", "ass"), (r"[a-z]+@[a-z]+\.com",))


def clean(text: str, strings: Sequence[str], patterns: Sequence[str]) -> bool:
    return not any(s in text for s in strings) and not any(re.search(p, text) for p in patterns)


def outputs(model: Any, tokenizer: Any, method: Any, **options: Any) -> list[str]:
    prompts = tokenizer(["The quick", "a class of", "x"], return_tensors="pt", padding=True)
    prompts.pop("token_type_ids", None)
    torch.manual_seed(0)
    run = model.generate if method is None else lambda **given: method.generate(model, **given)
    ids = run(**prompts, max_new_tokens=40, **options)
    texts: list[str] = tokenizer.batch_decode(
        ids[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True
    )
    return texts


@pytest.fixture(scope="module")
def longing(byte_level: Any) -> Any:
    return biased_model(byte_level, WANTS)


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("name", STRING_METHODS)
def test_what_is_forbidden_is_never_generated(
    name: str, sampling: bool, byte_level: Any, longing: Any
) -> None:
    strings, patterns = FORBIDDEN[0], FORBIDDEN[1] if name in PATTERN_METHODS else ()
    method = METHODS[name].setup(strings, patterns, byte_level)
    assert not all(
        clean(t, strings, patterns) for t in outputs(longing, byte_level, None, do_sample=sampling)
    )
    texts = outputs(longing, byte_level, method, do_sample=sampling)
    assert all(clean(text, strings, patterns) for text in texts)
    assert any(len(text) > 20 for text in texts)


def test_all_exact_methods_generate_the_same_text_greedily(byte_level: Any, longing: Any) -> None:
    texts = {
        name: outputs(longing, byte_level, METHODS[name].setup(*FORBIDDEN, byte_level), do_sample=False)
        for name in PATTERN_METHODS
    }
    assert len({tuple(text) for text in texts.values()}) == 1


@pytest.mark.parametrize("name", ["nco", "guard", "no-failure-links", "no-matmul", "no-suffix-map"])
def test_beams_keep_their_states(name: str, byte_level: Any, longing: Any) -> None:
    strings, patterns = FORBIDDEN[0], FORBIDDEN[1] if name in PATTERN_METHODS else ()
    method = METHODS[name].setup(strings, patterns, byte_level)
    texts = outputs(longing, byte_level, method, num_beams=4)
    assert all(clean(text, strings, patterns) for text in texts)


@pytest.fixture(scope="module")
def shipped() -> tuple[Any, Any, Any]:
    """The shipped model, its tokenizer, and prompts that make it write personal data."""
    model, tokenizer = demo.load()
    texts = [
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        for messages in PROMPTS["pii"][:8]
    ]
    inputs = tokenizer(
        texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
    )
    inputs.pop("token_type_ids", None)
    return model, tokenizer, inputs


@pytest.mark.parametrize("name", [n for n in STRING_METHODS if n not in ("no-failure-links", "naive")])
def test_the_shipped_model_is_kept_from_the_papers_pii(name: str, shipped: tuple[Any, Any, Any]) -> None:
    """GUARD only from what its corpus holds: here the very text that the model writes when nothing keeps it."""
    model, tokenizer, inputs = shipped
    patterns = tuple(pattern.regex for pattern in pii_paper.PATTERNS)
    length, options = inputs["input_ids"].shape[1], {"max_new_tokens": 40, "do_sample": False}

    def written(ids: torch.Tensor) -> list[str]:
        return list(tokenizer.batch_decode(ids[:, length:], skip_special_tokens=True))

    base = written(model.generate(**inputs, **options))
    assert sum(not clean(text, (), patterns) for text in base) >= 3
    method = GuardTrie(corpus=tuple(base)) if name == "guard" else METHODS[name]
    vocabulary = read_vocabulary(tokenizer, Binding(vocab_width=model.config.vocab_size))
    ready = method.setup((), patterns, tokenizer, vocabulary=vocabulary)
    texts = written(ready.generate(model, **inputs, **options))
    assert all(texts)
    if name == "guard":
        assert not any(span in text for span in ready.lexicon for text in texts)
    else:
        assert all(clean(text, (), patterns) for text in texts)


@pytest.mark.parametrize("name", [n for n in STRING_METHODS if n not in ("rejection", "naive")])
def test_rows_that_change_places_are_followed_by_their_ids(name: str, byte_level: Any) -> None:
    """Each step permutes and doubles rows, as beam search does; every row's mask is that of its own text."""
    rng, vocabulary = random.Random(3), read_vocabulary(byte_level)
    strings, patterns = FORBIDDEN[0], FORBIDDEN[1] if name in PATTERN_METHODS else ()
    method = METHODS[name].setup(strings, patterns, byte_level, vocabulary=vocabulary)
    processor, rows = method.logits_processor(beams=True), [[1]] * 4
    wanted = [spelt(text, vocabulary) for text in ("fuc", "as as", "jo@enron.co", " the ")]
    differing = 0
    for step in range(12):
        scores = processor(torch.tensor(rows), torch.zeros(4, vocabulary.width))
        masks = [torch.isneginf(row).numpy() for row in scores]
        for row, mask in zip(rows, masks, strict=True):
            assert (mask == method.forbidden(row[1:])).all()
        differing += any((mask != masks[0]).any() for mask in masks)
        parents = rng.choices(range(4), k=4) if step % 4 == 3 else rng.sample(range(4), 4)
        following = []
        for parent in parents:
            token = rng.choice([text[step % len(text)] for text in wanted])
            following.append([*rows[parent], token if not masks[parent][token] else wanted[3][0]])
        rows = following
    assert differing > 2


def test_rejection_draws_from_the_restricted_distribution(byte_level: Any) -> None:
    """20,000 draws from fixed scores, against the softmax of the allowed ones."""
    method = RejectionSampling().setup(("a",), (), byte_level)
    vocabulary = read_vocabulary(byte_level)
    some = [i for i, token in enumerate(vocabulary.tokens) if token in (b"a", b"b", b"c", b"d", b"as")]
    scores = torch.full((1, vocabulary.width), -torch.inf)
    scores[0, some] = torch.tensor([2.0, 0.0, 1.0, 0.5, 1.5])[: len(some)]
    torch.manual_seed(1)
    rows = scores.expand(20_000, -1).contiguous()
    chosen, _ = method.draw([Matcher.start] * 20_000, rows, sampling=True)
    allowed = scores[0].masked_fill(torch.from_numpy(method.forbidden([])), -torch.inf).softmax(0)
    frequencies = torch.bincount(torch.tensor(chosen), minlength=vocabulary.width) / 20_000
    assert (frequencies - allowed).abs().max() < 0.015
    assert allowed.max() < 0.9


def test_rejection_says_when_nothing_is_left(byte_level: Any) -> None:
    method = RejectionSampling().setup(("a",), (), byte_level)
    only = torch.full((1, method.width), -torch.inf)
    only[0, read_vocabulary(byte_level).tokens.index(b"a")] = 0.0
    for sampling in (False, True):
        with pytest.raises(DeadEndError):
            method.draw(method.start(1), only, sampling=sampling)


def spelt(text: str, vocabulary: Vocabulary) -> list[int]:
    """The text by tokens of one byte each."""
    return [vocabulary.tokens.index(bytes([byte])) for byte in text.encode()]


def test_bad_words_ids_let_another_tokenisation_through(byte_level: Any, longing: Any) -> None:
    vocabulary = read_vocabulary(byte_level)
    method = BadWords().setup(FORBIDDEN[0], (), byte_level)
    for word in FORBIDDEN[0]:
        *before, last = byte_level(" " + word, add_special_tokens=False).input_ids
        assert method.forbidden(before)[last]
        *before, last = spelt(word, vocabulary)
        assert not method.forbidden(before)[last]
    texts = outputs(longing, byte_level, method, do_sample=True, num_return_sequences=8)
    assert not all(clean(text, FORBIDDEN[0], ()) for text in texts)


def test_bad_words_ids_are_those_of_generate(byte_level: Any, longing: Any) -> None:
    method = BadWords().setup(FORBIDDEN[0], (), byte_level)
    theirs = outputs(longing, byte_level, None, bad_words_ids=method.sequences, do_sample=False)
    assert outputs(longing, byte_level, method, do_sample=False) == theirs


def test_guard_blocks_the_spans_of_its_corpus_and_no_others(byte_level: Any) -> None:
    vocabulary = read_vocabulary(byte_level)
    method = GuardTrie(corpus=("write to jo@enron.com, please",)).setup((), FORBIDDEN[1], byte_level)
    assert method.lexicon == ("jo@enron.com",)
    for address, blocked in (("jo@enron.com", True), ("ann@enron.com", False)):
        *before, last = spelt(address, vocabulary)
        assert bool(method.forbidden(before)[last]) is blocked
    with pytest.raises(UnsupportedError, match="corpus"):
        GuardTrie().setup((), FORBIDDEN[1], byte_level)
    with pytest.raises(ValueError, match="nothing to forbid"):
        GuardTrie(corpus=("none here",)).setup((), FORBIDDEN[1], byte_level)


@pytest.mark.parametrize("name", ["nco", "rejection"])
def test_patterns_are_not_enforced_beyond_ascii(name: str, byte_level: Any) -> None:
    """`é` is two unknown characters to a DFA over bytes: a pattern with it never matches, `x.y` does not span it."""
    vocabulary = read_vocabulary(byte_level)
    method = METHODS[name].setup((), ("caf[é]", "x.y"), byte_level)
    for text in ("café", "xéy"):
        *before, last = spelt(text, vocabulary)
        assert not method.forbidden(before)[last]
    *before, last = spelt("x-y", vocabulary)
    assert method.forbidden(before)[last]


def test_a_first_space_that_decoding_drops_is_read_as_text() -> None:
    tokenizer = tiny_tokenizer("byte-fallback")
    first = next(i for i, t in enumerate(read_vocabulary(tokenizer).tokens) if t.startswith(b" t"))
    assert not tokenizer.decode([first]).startswith(" ")
    assert NCO().setup((" t",), (), tokenizer).forbidden([])[first]


def test_ill_formed_text_is_not_forbidden(byte_level: Any) -> None:
    stray = read_vocabulary(byte_level).tokens.index(b"\x80")
    for name in STRING_METHODS:
        assert not METHODS[name].setup(("ass",), (), byte_level).forbidden([])[stray]


def test_what_a_method_cannot_do_is_refused(byte_level: Any) -> None:
    for name in ("bad-words", "no-failure-links"):
        with pytest.raises(UnsupportedError, match="pattern"):
            METHODS[name].setup((), ("a+",), byte_level)
    with pytest.raises(UnsupportedError, match="beam"):
        RejectionSampling().setup(("ass",), (), byte_level).logits_processor(beams=True)
    with pytest.raises(UnsupportedError, match="beam"):
        outputs(
            random_model(byte_level),
            byte_level,
            RejectionSampling().setup(("a",), (), byte_level),
            num_beams=2,
        )
    for name in STRING_METHODS:
        with pytest.raises(TokenizerError, match="wordpiece"):
            METHODS[name].setup(("ass",), (), tiny_tokenizer("wordpiece"))
    for method in METHODS.values():
        with pytest.raises(ValueError, match="at least one"):
            method.setup((), (), byte_level)
        with pytest.raises(ValueError, match="empty string"):
            method.setup(("a", ""), (), byte_level)


@pytest.mark.parametrize("pattern", ["a*", r"\bass\b", "(", "a|"])
def test_patterns_that_the_paper_cannot_have_are_refused(pattern: str, byte_level: Any) -> None:
    for method in (NCO(), RejectionSampling()):
        with pytest.raises(PatternError):
            method.setup((), (pattern,), byte_level)


def test_a_processor_refuses_steps_of_more_than_one_token(byte_level: Any) -> None:
    processor = NCO().setup(("ass",), (), byte_level).logits_processor()
    scores = torch.zeros(1, len(byte_level))
    processor(torch.tensor([[1, 2]]), scores)
    with pytest.raises(UnsupportedError, match="one token a step"):
        processor(torch.tensor([[1, 2, 3, 4]]), scores)


def test_logits_that_are_wider_than_the_vocabulary_need_to_be_told(byte_level: Any) -> None:
    width = len(byte_level) + 8
    model = random_model(byte_level, vocab_width=width)
    wide = read_vocabulary(byte_level, Binding(vocab_width=width))
    for name in STRING_METHODS:
        with pytest.raises(UnsupportedError, match="vocab_width"):
            outputs(model, byte_level, METHODS[name].setup(("a",), (), byte_level), do_sample=False)
        texts = outputs(
            model, byte_level, METHODS[name].setup(("a",), (), byte_level, vocabulary=wide), do_sample=False
        )
        assert not any("a" in text for text in texts)


def test_scores_are_not_written_into(byte_level: Any) -> None:
    for name in STRING_METHODS:
        scores = torch.zeros(2, len(byte_level))
        METHODS[name].setup(("ass",), (), byte_level).logits_processor()(torch.tensor([[1], [2]]), scores)
        assert not scores.any()


def test_every_method_says_what_it_does_not_enforce() -> None:
    names = [method.name for method in METHODS.values()]
    assert len(set(names)) == len(names)
    assert all(method.not_enforced for method in METHODS.values())
