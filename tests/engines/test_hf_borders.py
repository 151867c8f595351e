"""Generation of replies that are cut at special tokens: no part matches, nor do all of them joined."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.errors import UnsupportedError
from nco_guard.testing import biased_model, tiny_tokenizer

PATTERNS = {"word": r"\bass\b", "plain": "assume|class", "end": r"the\Z"}
POLICY = Policy(name="p", rules=[RegexRule(id=name, regex=regex) for name, regex in PATTERNS.items()])


@pytest.fixture(scope="module")
def world() -> tuple[Any, Any, list[int]]:
    tokenizer = tiny_tokenizer("byte-level", special_tokens=("<s>", "<|x|>", "<|y|>"))
    model = biased_model(tokenizer, ["ass", "assume", "class", "the"], bonus=7.0)
    return tokenizer, model, tokenizer.convert_tokens_to_ids(["<|x|>", "<|y|>"])


def cutting(ids: list[int]) -> Any:
    """A processor that longs for special tokens."""

    def process(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, ids] += 8.0
        return scores

    return process


def clean(parts: list[str]) -> bool:
    return not any(re.search(p, text) for p in PATTERNS.values() for text in [*parts, "".join(parts)])


@pytest.mark.parametrize("tables", ["host", "device"])
def test_no_part_matches_nor_do_all_joined(world: Any, tables: Any) -> None:
    tokenizer, model, ids = world
    guard, cuts, tempted = Guard(POLICY), 0, 0
    torch.manual_seed(0)
    options: dict[str, Any] = {"do_sample": True, "max_new_tokens": 24, "logits_processor": [cutting(ids)]}
    for _ in range(4):
        prompts = ["Write", "a cl"]
        result = guard.generate(model, tokenizer, prompts, borders="special", tables=tables, **options)
        for text, written, report in zip(result.texts, result.token_ids, result.reports, strict=True):
            parts = re.split(r"<s>|<\|x\|>|<\|y\|>|<unk>|<pad>", text.removesuffix("</s>"))
            assert clean(parts), parts
            assert report.ok
            bound = guard.bind(tokenizer, borders="special")
            assert bound.vocabulary.parts_of(written) == parts
            assert bound.vocabulary.text_of(written) == text
            cuts += len(parts) - 1
        plain = guard.generate(model, tokenizer, prompts, **options)
        special = {*bound.vocabulary.special_ids}
        for written in plain.token_ids:
            tempted += not clean(_cut(tokenizer, written, special))
    assert cuts > 10
    assert tempted  # without borders some of them are written


def _cut(tokenizer: Any, ids: list[int], special: set[int]) -> list[str]:
    parts: list[list[int]] = [[]]
    for token in ids:
        if token in special:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tokenizer.decode(part) for part in parts]


def test_a_stream_shows_what_borders_say_and_a_record_is_about_the_parts(world: Any) -> None:
    tokenizer, model, ids = world
    sink = MemorySink()
    monitored = POLICY.with_rules(RegexRule(id="seen", regex=".", monitor=True))
    guard = Guard(monitored, audit=sink, correlation_key=b"0123456789abcdef")
    results: list[Any] = []
    torch.manual_seed(1)
    pieces = guard.stream(
        model,
        tokenizer,
        "Write",
        borders="special",
        on_result=results.append,
        do_sample=True,
        max_new_tokens=20,
        logits_processor=[cutting(ids)],
    )
    text = "".join(pieces)
    assert text == results[0].texts[0]
    assert "<|" in text
    vocabulary = guard.bind(tokenizer, borders="special").vocabulary
    joined = vocabulary.searched(results[0].token_ids[0])
    assert results[0].reports[0].length == len(joined) < len(text)


def test_a_processor_for_loops_of_others(world: Any) -> None:
    tokenizer, model, ids = world
    guard = Guard(POLICY)
    torch.manual_seed(2)
    prompt = tokenizer("Write", return_tensors="pt").input_ids
    processor = guard.logits_processor(tokenizer, max_new_tokens=16, borders="special")
    written = model.generate(
        prompt, logits_processor=[cutting(ids), processor], max_new_tokens=16, do_sample=True
    )
    bound = guard.bind(tokenizer, borders="special")
    assert guard.verify(parts=bound.vocabulary.parts_of(written[0, prompt.shape[1] :].tolist())).ok


def test_what_does_not_follow_borders_is_refused_by_name(world: Any) -> None:
    from transformers import TextStreamer

    tokenizer, model, _ = world
    guard = Guard(POLICY)
    options: dict[str, Any] = {"borders": "special", "max_new_tokens": 4}
    with pytest.raises(UnsupportedError, match="borders"):
        guard.generate(model, tokenizer, "Write", when_blocked="rewind", **options)
    with pytest.raises(UnsupportedError, match="borders"):
        guard.generate(model, tokenizer, "Write", streamer=TextStreamer(tokenizer), **options)


def test_explanations_agree_with_the_mask(world: Any) -> None:
    tokenizer, _, ids = world
    rules = [*POLICY.rules, StringRule(id="soft", strings=["of"], penalty=1.0)]
    session = Guard(Policy(name="p", rules=rules)).bind(tokenizer, borders="special").session()
    spelled = {index: tokenizer.decode([index]) for index in range(len(tokenizer))}
    written = [next(i for i, text in spelled.items() if text == letter) for letter in "ass"]
    for token in [*written, ids[0]]:
        if session.mask()[token]:
            break
        session.advance(token)
        mask = session.mask()
        for each in range(len(mask)):
            told = session.explain(each)
            assert told.forbidden == mask[each]
            assert told.forbidden == any(reason.forbids for reason in told.reasons)
        assert session.explain().forbidden == int(mask.sum())
    reason = session.explain(ids[0]).reasons[0]
    assert (reason.code, reason.rule_ids, reason.start) == ("end", ("word",), None)


def test_no_text_that_is_shown_of_a_field_matches(world: Any) -> None:
    from nco_guard.automata import FieldMark, ReplyFields

    tokenizer, model, ids = world
    regions = ReplyFields((FieldMark("<|x|>", "content", "call"), FieldMark("<|y|>", "call", "content")))
    sink = MemorySink()
    guard, cuts = Guard(POLICY, audit=sink), 0
    torch.manual_seed(3)
    for _ in range(4):
        result = guard.generate(
            model,
            tokenizer,
            ["Write", "a cl"],
            regions=regions,
            skip_special_tokens=False,
            do_sample=True,
            max_new_tokens=24,
            logits_processor=[cutting(ids)],
        )
        for text, report in zip(result.texts, result.reports, strict=True):
            shown = ["".join(region.text for region in each) for each in regions.texts(text)]
            assert not any(re.search(pattern, each) for pattern in PATTERNS.values() for each in shown)
            assert report.ok
            cuts += len(shown) - 1
    assert cuts > 4
    view = next(event.decode_view for event in sink.events if event.kind == "guarantee_configured")
    assert (view.fields, view.free_fields, view.borders) == (("content", "call"), (), 0)
