"""Random policies, tokenizers of every family, real models, every decoding: not one text breaks its policy.

Texts are what `tokenizer.decode` gives, and Python's `re` judges them; nothing of the library does.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.errors import DeadEndError
from nco_guard.masking import bruteforce
from nco_guard.policy import Rewind
from nco_guard.session import BoundGuard
from nco_guard.testing import Family
from nco_guard.testing.tokenizers import FAMILIES
from tests.fuzz import worlds
from tests.masking import test_masks

LENGTH = 8
BATCH: dict[str, dict[str, Any]] = {
    "greedy": {},
    "multinomial": {"do_sample": True},
    "top-k": {"do_sample": True, "top_k": 3},
    "top-p": {"do_sample": True, "top_p": 0.7, "temperature": 1.4},
    "beams": {"num_beams": 3},
    "all beams": {"num_beams": 3, "num_return_sequences": 3},
    "beam sampling": {"num_beams": 2, "do_sample": True, "top_k": 0},
    "several": {"do_sample": True, "num_return_sequences": 4},
    "static cache": {"cache_implementation": "static", "do_sample": True, "disable_compile": True},
    "no cache": {"use_cache": False, "do_sample": True},
}
# Rows that share a cache, so that many cost little.
BACK: dict[str, dict[str, Any]] = {
    "going back, greedy": {"when_blocked": "rewind"},
    "going back": {"when_blocked": "rewind", "do_sample": True, "top_k": 0},
    "going back, one choice": {"when_blocked": "rewind", "do_sample": True, "top_k": 1},
    "back to sentences": {"rewind": Rewind(back_to="sentence"), "do_sample": True, "num_return_sequences": 2},
    "back to the text": {"rewind": Rewind(back_to="text", per_match=3), "do_sample": True, "top_p": 0.9},
}
# Rows that are run one by one.
BACK_ALONE: dict[str, dict[str, Any]] = {
    "going back, no cache": {"when_blocked": "rewind", "do_sample": True, "use_cache": False},
    "going back, static cache": {
        "when_blocked": "rewind",
        "do_sample": True,
        "cache_implementation": "static",
        "disable_compile": True,
    },
    "going back, sliding": {"when_blocked": "rewind", "do_sample": True, "model": "sliding"},
    "back to the text, sliding": {"rewind": Rewind(back_to="text"), "do_sample": True, "model": "sliding"},
    "going back, hybrid": {"when_blocked": "rewind", "model": "hybrid", "do_sample": True, "top_p": 0.9},
    "back to sentences, hybrid": {"rewind": Rewind(back_to="sentence"), "model": "hybrid"},
    "going back, encoder-decoder": {"when_blocked": "rewind", "do_sample": True, "model": "encoder-decoder"},
    "back to the text, encoder-decoder": {"rewind": Rewind(back_to="text"), "model": "encoder-decoder"},
}
SINGLE: dict[str, dict[str, Any]] = {
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
    "sampled lookup": {"prompt_lookup_num_tokens": 2, "do_sample": True},
    "assisted": {"assistant_model": True},
    "sampled assisted": {"assistant_model": True, "do_sample": True},
}


class Fuzzer:
    """Runs worlds and counts what it did."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.totals: Counter[str] = Counter()
        torch.manual_seed(seed)
        torch.set_num_threads(1)

    def judge(self, world: worlds.World, sequences: torch.Tensor, prompt_length: int, how: str) -> None:
        def decode(ids: torch.Tensor) -> str:
            return str(world.tokenizer.decode(ids, skip_special_tokens=True))

        for row in sequences:
            text, context, joined = decode(row[prompt_length:]), decode(row[:prompt_length]), decode(row)
            broken = world.violated(text, context, joined[len(context) :])
            assert not broken, (how, broken, context, text, world.guard.policy.to_json())
        self.totals["generations"] += len(sequences)
        self.totals[how] += len(sequences)
        if any(rule.reads_prompt for rule in world.oracles):
            self.totals["with rules that read the prompt"] += len(sequences)

    def generate(self, world: worlds.World, prompts: list[str], how: str, options: dict[str, Any]) -> Any:
        """One guarded call; None where the policy leaves no way to end in time."""
        options = dict(options)
        model = self.rng.choice(world.models)
        if kind := options.pop("model", None):
            model = worlds.other_model(world.family, kind)
        elif "rewind" in options or "when_blocked" in options:
            model = world.models[1]
        if options.get("assistant_model"):
            options["assistant_model"] = self.rng.choice(world.models)
        inputs = world.tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
        try:
            result = world.guard.generate(
                model, world.tokenizer, dict(inputs), max_new_tokens=LENGTH, **options
            )
        except DeadEndError:
            self.totals["no way to end"] += 1
            return None
        sequences = result.output if isinstance(result.output, torch.Tensor) else result.output.sequences
        self.judge(world, sequences, 1 if kind == "encoder-decoder" else inputs.input_ids.shape[1], how)
        if result.rewinds is not None:
            back = sum(one.rewinds > 0 for one in result.rewinds)
            self.totals["went back"] += back
            self.totals[f"{how}: went back"] += back
        return result

    def raw(self, world: worlds.World, batch: int) -> None:
        """Plain `model.generate` with one processor object, used again and again; logits are compared bit by bit."""
        bound = world.guard.bind(world.tokenizer)
        processor = GuardLogitsProcessor(bound, max_new_tokens=LENGTH)
        for options in ({}, {"do_sample": True}, {"num_beams": 2}):
            prompts = [self.rng.choice(worlds.PROMPTS) for _ in range(batch)]
            inputs = world.tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
            scored = not options
            try:
                output = self.rng.choice(world.models).generate(
                    **inputs,
                    **options,
                    max_new_tokens=LENGTH,
                    logits_processor=[processor],
                    return_dict_in_generate=True,
                    output_scores=scored,
                    output_logits=scored,
                )
            except DeadEndError:
                self.totals["no way to end"] += 1
                processor.reset()
                continue
            # Beams can be filled up with impossible rows; `Guard.generate` trims those.
            if not options.get("num_beams"):
                self.judge(
                    world, output.sequences, inputs.input_ids.shape[1], "one processor, again and again"
                )
            for scores, logits in zip(output.scores or (), output.logits or (), strict=True):
                kept = scores > -torch.inf
                if not world.soft:
                    assert torch.equal(scores[kept], logits[kept])
                self.totals["logits compared"] += int(kept.sum())
            processor.reset()

    def masks(self, bound: BoundGuard, rows: list[list[int]]) -> None:
        """Masks against the definition along generated texts, once per state; fork and rollback against replay."""
        tables, vocabulary = bound.tables, bound.vocabulary
        known: dict[tuple[tuple[int, ...], int], bool] = {}
        seen: set[int] = set()
        for row in rows:
            session = bound.session()
            for token in row:
                state = session._text.state(tables)
                if state >= 0 and state not in seen:
                    seen.add(state)
                    expected = bruteforce.forbidden(
                        tables.constraints, tables.components(state), vocabulary, known=known
                    )
                    assert np.array_equal(session.mask(), expected), bound.policy.to_json()
                    self.totals["masks compared"] += vocabulary.width
                if session.ended or session.mask()[token]:
                    break
                session.advance(token)
            self.rollback(bound, session)

    def rollback(self, bound: BoundGuard, session: Any) -> None:
        ids = session.token_ids
        copy = session.fork()
        back = self.rng.randint(0, len(ids))
        copy.rollback(back)
        replay = bound.session()
        for token in ids[: len(ids) - back]:
            replay.advance(token)
        for one, other in ((copy, replay), (session, session.fork())):
            assert one.token_ids == other.token_ids
            assert np.array_equal(one.mask(), other.mask())
            assert (one.may_end, one.ended, one.text) == (other.may_end, other.ended, other.text)
        assert session.token_ids == ids
        self.totals["rollbacks"] += 1

    def together(self, bound: BoundGuard, rows: list[list[int]]) -> None:
        """A batch is its rows: the same random scores, masked together and one by one, bit for bit."""
        length = min(map(len, rows))
        ids = torch.tensor([row[:length] for row in rows])
        prompt = torch.zeros((len(rows), 1), dtype=torch.int64)
        together = GuardLogitsProcessor(bound)
        apart = [GuardLogitsProcessor(bound) for _ in rows]
        for step in range(length):
            seen = torch.cat([prompt, ids[:, :step]], dim=1)
            scores = torch.randn(len(rows), bound.vocabulary.width)
            one = together(seen, scores)
            for row, processor in enumerate(apart):
                assert torch.equal(one[row : row + 1], processor(seen[row : row + 1], scores[row : row + 1]))
        self.totals["batches against rows"] += 1

    def generated_together(self, world: worlds.World) -> None:
        """What `Guard.generate` writes for a batch of prompts is what it writes for each alone."""
        model = self.rng.choice(world.exact_models)
        prompts = [self.rng.choice(worlds.PROMPTS) for _ in range(3)]

        def generate(prompts: list[str], options: dict[str, Any]) -> Any:
            try:
                return world.guard.generate(model, world.tokenizer, prompts, max_new_tokens=LENGTH, **options)
            except DeadEndError:
                return None

        for options in ({}, {"num_beams": 3, "num_return_sequences": 2}, {"when_blocked": "rewind"}):
            together = generate(prompts, options)
            apart = [generate([prompt], options) for prompt in prompts]
            found = [result for result in apart if result is not None]
            assert (together is None) == (len(found) < len(apart)), world.guard.policy.to_json()
            if together is None:
                continue
            for name in ("texts", "token_ids", "outcomes", "reports"):
                expected = [item for result in found for item in getattr(result, name)]
                assert getattr(together, name) == expected, (prompts, world.guard.policy.to_json())
            self.totals["generated together and alone"] += len(together.texts)

    def threads(self, world: worlds.World) -> None:
        """Two threads generate under one bound guard."""
        bound = world.guard.bind(world.tokenizer)
        found: list[tuple[torch.Tensor, int]] = []
        errors: list[Exception] = []

        def work() -> None:
            prompt = world.tokenizer(["ab a"] * 8, return_tensors="pt", return_token_type_ids=False)
            try:
                processor = GuardLogitsProcessor(bound, max_new_tokens=LENGTH)
                output = world.models[1].generate(
                    **prompt, max_new_tokens=LENGTH, do_sample=True, logits_processor=[processor]
                )
            except DeadEndError:
                self.totals["no way to end"] += 1
            except Exception as error:  # handed to the main thread
                errors.append(error)
            else:
                found.append((output, prompt.input_ids.shape[1]))

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not errors, errors
        for output, length in found:
            self.judge(world, output, length, "threads")

    def world(self, family: Family, batch: int) -> None:
        """One random policy through everything."""
        world = worlds.world(self.rng, family)
        bound = world.guard.bind(world.tokenizer)
        rows: list[list[int]] = []
        texts = (
            dict.fromkeys(BATCH, batch)
            | dict.fromkeys(BACK, 4 * batch)
            | dict.fromkeys(BACK_ALONE, batch // 4)
        )
        for how, options in (BATCH | BACK | BACK_ALONE).items():
            rows_each = max(options.get("num_beams", 1), options.get("num_return_sequences", 1))
            count = max(1, texts[how] // rows_each)
            prompts = [self.rng.choice(worlds.PROMPTS) for _ in range(count)]
            result = self.generate(world, prompts, how, options)
            if result is not None:
                rows.extend(self.rng.sample(result.token_ids, min(3, len(result.token_ids))))
        for how, options in SINGLE.items():
            self.generate(world, [self.rng.choice(worlds.PROMPTS)], how, options)
        self.raw(world, batch)
        self.masks(bound, rows)
        if len(rows) > 1 and min(map(len, rows)):
            self.together(
                bound, [row for row in rows if not set(row) & set(bound.vocabulary.eos_ids)] or rows[:1]
            )
        if self.rng.random() < 0.5:
            self.generated_together(world)
        if self.rng.random() < 0.3:
            self.threads(world)
        self.totals["policies"] += 1


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_breaks_its_policy(family: Family) -> None:
    fuzzer = Fuzzer(1)
    for _ in range(3):
        fuzzer.world(family, batch=6)
    print(dict(fuzzer.totals))
    assert fuzzer.totals["generations"] > 100
    assert fuzzer.totals["masks compared"] > 500
    assert fuzzer.totals["went back"] > 0


def test_unguarded_the_same_models_write_what_is_forbidden() -> None:
    """Else the other tests would prove nothing."""
    fuzzer, broken = Fuzzer(2), 0
    for family in FAMILIES:
        for _ in range(5):
            world = worlds.world(fuzzer.rng, family)
            inputs = world.tokenizer(["a b"] * 16, return_tensors="pt", return_token_type_ids=False)
            output = world.models[1].generate(**inputs, max_new_tokens=LENGTH, do_sample=True)
            texts = world.tokenizer.batch_decode(
                output[:, inputs.input_ids.shape[1] :], skip_special_tokens=True
            )
            broken += sum(bool(world.violated(text, "", text)) for text in texts)
    assert broken > 20


@pytest.mark.slow
def test_no_text_breaks_its_policy_at_length() -> None:
    """A hundred thousand generations, twenty thousand of which went back; ten million entries of masks."""
    fuzzer = Fuzzer(3)
    while fuzzer.totals["generations"] < 100_000 or fuzzer.totals["went back"] < 20_000:
        fuzzer.world(FAMILIES[fuzzer.totals["policies"] % len(FAMILIES)], batch=64)
        if fuzzer.totals["policies"] % 10 == 0:
            print(dict(fuzzer.totals), flush=True)
    assert min(fuzzer.totals[f"{how}: went back"] for how in BACK | BACK_ALONE) >= 20
    seed = 0
    while fuzzer.totals["masks compared"] < 10_000_000:
        fuzzer.totals["masks compared"] += test_masks.walk(seed := seed + 1, policies=100, steps=25)
    print(dict(fuzzer.totals))
