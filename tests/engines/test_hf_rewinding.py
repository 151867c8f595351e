"""Guarded generation that goes back, with real models: not one violation, and what is thrown away is seen nowhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers as hf
from transformers.generation.streamers import BaseStreamer

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.analysis.sentence_breaks import sentence_breaks
from nco_guard.audit import Intervention, MemorySink
from nco_guard.compiler import UTF8_RULE
from nco_guard.engines.hf import generate, stream
from nco_guard.engines.hf import rewinding as loops
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.engines.rows import StepReport
from nco_guard.errors import UnsupportedError
from nco_guard.policy import Rewind
from nco_guard.testing import biased_model, random_model, tiny_tokenizer

PROMPTS = ["what the", "a class of passengers said", "f"]
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 1.5},
    "several": {"do_sample": True, "num_return_sequences": 3},
    "one choice": {"do_sample": True, "top_k": 1},
    "filters": {"do_sample": True, "top_k": 4, "top_p": 0.8, "min_p": 0.01},
    "penalties": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 8},
    "no cache": {"use_cache": False, "do_sample": True},
    "static cache": {"cache_implementation": "static"},
    "beams": {"num_beams": 3},
}
SETTINGS = {
    "match": Rewind(),
    "sentence": Rewind(back_to="sentence"),
    "text": Rewind(back_to="text", per_match=4),
    "once": Rewind(per_match=1, per_text=1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("back_to", SETTINGS)
def test_no_text_breaks_the_policy(
    mode: str, back_to: str, tokenizer: Any, model_of: Any, guard: Any
) -> None:
    model, options = model_of(tokenizer), MODES[mode]
    torch.manual_seed(0)
    result = generate(
        guard, model, tokenizer, PROMPTS, max_new_tokens=20, rewind=SETTINGS[back_to], **options
    )
    assert len(result.texts) == len(PROMPTS) * options.get("num_return_sequences", 1)
    for text, ids, report in zip(result.texts, result.token_ids, result.reports, strict=True):
        assert report.ok
        assert guard.clean(text)
        assert text == tokenizer.decode(ids, skip_special_tokens=True)
        assert len(ids) <= 20
    if mode == "beams":
        assert result.rewinds is None
    else:
        assert result.rewinds is not None
        assert len(result.rewinds) == len(result.texts)
        assert all((one.rewinds > 0) == (one.discarded > 0) for one in result.rewinds)
        assert any(one.rewinds for one in result.rewinds)


@pytest.mark.parametrize("options", [{}, {"do_sample": True}])
@pytest.mark.parametrize(
    ("back_to", "rows"), [("match", 3), ("sentence", 3), ("text", 3), ("match", 8), ("match", 64)]
)
def test_a_row_writes_the_same_alone_and_in_a_batch(
    options: dict[str, Any],
    back_to: Any,
    rows: int,
    tokenizer: Any,
    model_of: Any,
    guard: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prompts = (PROMPTS * rows)[:rows]
    seeds = [*range(7, 7 + rows)]

    def written(prompts: list[str], own: list[int]) -> list[str]:
        monkeypatch.setattr(loops, "_seeds", lambda count: own)
        rewind = Rewind(back_to=back_to)
        return generate(
            guard, model_of(tokenizer), tokenizer, prompts, max_new_tokens=30, rewind=rewind, **options
        ).texts

    together = written(prompts, seeds)
    some = range(0, rows, max(1, rows // 8))
    assert [together[row] for row in some] == [written([prompts[row]], [seeds[row]])[0] for row in some]


def test_an_encoder_decoder_goes_back(byte_level: Any) -> None:
    guard = Guard(Policy(name="p", rules=[StringRule(id="word", strings=["fuck"])]))
    model = biased_model(byte_level, ["fuck"], seq2seq=True)
    torch.manual_seed(0)
    result = generate(
        guard, model, byte_level, PROMPTS, max_new_tokens=20, do_sample=True, when_blocked="rewind"
    )
    assert all(report.ok for report in result.reports)
    assert result.rewinds is not None
    assert sum(one.rewinds for one in result.rewinds) > 0


def test_what_is_streamed_is_never_taken_back(tokenizer: Any, model_of: Any, guard: Any) -> None:
    for seed in range(4):
        for back_to in ("match", "sentence"):
            results: list[Any] = []
            torch.manual_seed(seed)
            pieces = list(
                stream(
                    guard,
                    model_of(tokenizer),
                    tokenizer,
                    PROMPTS[0],
                    max_new_tokens=40,
                    do_sample=True,
                    rewind=Rewind(back_to=back_to),
                    on_result=results.append,
                )
            )
            assert "".join(pieces) == results[0].texts[0]
            assert guard.clean("".join(pieces))
            assert back_to == "sentence" or len(pieces) > 1


class Shown(BaseStreamer):
    """The tokens that were shown, the prompt left out."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._prompt = True

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt:
            self.ids += value.ravel().tolist()
        self._prompt = False

    def end(self) -> None:
        """All was shown."""


@pytest.mark.parametrize("family", ["byte-level", "wordpiece"])
def test_streams_show_whole_sentences_where_texts_go_back_to_them(family: Any) -> None:
    tokenizer = tiny_tokenizer(family, ["it was. so? yes! what the fuck. 日本。は！"])
    model = biased_model(tokenizer, ["fuck", ". so", "! yes", "本。は"], bonus=9.0)
    guard = Guard(Policy(name="p", rules=[StringRule(id="word", strings=["fuck"])]))
    pieces = rewinds = 0
    for seed in range(12):
        torch.manual_seed(seed)
        shown, lengths = Shown(), set[int]()
        hook = model.register_forward_pre_hook(
            lambda *_, shown=shown, lengths=lengths: lengths.add(len(shown.ids))
        )
        result = generate(
            guard,
            model,
            tokenizer,
            "it was",
            max_new_tokens=40,
            do_sample=True,
            rewind=Rewind(back_to="sentence"),
            streamer=shown,
        )
        hook.remove()
        assert shown.ids == list(result.token_ids[0])
        vocabulary = guard.bind(tokenizer).vocabulary
        whole = vocabulary.text_of(shown.ids)
        breaks = {place for start, end in sentence_breaks(whole) for place in range(start, end + 1)}
        for length in lengths - {0}:
            upto = len(vocabulary.text_of(shown.ids[:length]))
            # A mark was followed by a space that was taken back, or a closing sign came where none had to.
            ended = any(start <= upto <= end for start, end in sentence_breaks(whole[:upto] + " "))
            assert ended or upto in breaks
        pieces += len(lengths) - 1
        rewinds += result.rewinds[0].rewinds
    assert pieces > 12
    assert rewinds > 0


@pytest.mark.parametrize("family", ["byte-level", "byte-fallback", "unigram", "wordpiece"])
def test_a_match_that_began_in_the_prompt_goes_back_to_the_first_token(family: Any) -> None:
    tokenizer = tiny_tokenizer(family)
    model = biased_model(tokenizer, ["the fuck", " fuck", "fuck"], 1)
    rule = RegexRule(id="joined", regex=r"what the\s+fuck", context="prompt")
    steps: list[StepReport] = []
    rewinds = 0
    for seed in range(12):
        torch.manual_seed(seed)
        result = generate(
            Guard(Policy(name="p", rules=[rule])),
            model,
            tokenizer,
            "what the",
            max_new_tokens=10,
            do_sample=True,
            when_blocked="rewind",
            on_step=steps.append,
        )
        rewinds += result.rewinds[0].rewinds
        assert not re.match(r"what the\s+fuck", tokenizer.decode(result.output[0], skip_special_tokens=True))
    back = [step for step in steps if step.discarded[0]]
    assert len(back) == rewinds > 3
    assert all(step.steps == step.discarded for step in back)


def test_scores_are_those_of_the_text_that_stays(byte_level: Any, model_of: Any, guard: Any) -> None:
    model = model_of(byte_level)
    torch.manual_seed(0)
    result = generate(
        guard,
        model,
        byte_level,
        PROMPTS[:2],
        max_new_tokens=20,
        do_sample=True,
        rewind=Rewind(),
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        top_k=0,
    )
    assert sum(one.rewinds for one in result.rewinds) > 0
    prompt = byte_level(PROMPTS[:2], padding=True, padding_side="left", return_tensors="pt")
    sequences = result.output.sequences
    pads = torch.ones(2, sequences.shape[1] - prompt.input_ids.shape[1], dtype=torch.long)
    mask = torch.cat([prompt.attention_mask, pads], dim=1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=sequences, attention_mask=mask, position_ids=places).logits
    begin = prompt.input_ids.shape[1] - 1
    for row, ids in enumerate(result.token_ids):
        for step in range(len(ids)):
            torch.testing.assert_close(
                result.output.logits[step][row], logits[row, begin + step], atol=1e-3, rtol=1e-3
            )
            wanted = torch.log_softmax(logits[row, begin + step], dim=-1)
            torch.testing.assert_close(result.output.scores[step][row], wanted, atol=1e-3, rtol=1e-3)


def test_scores_are_kept_of_the_text_that_stays_alone(
    byte_level: Any, model_of: Any, guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[int, int]] = []

    class Counting(loops._Loop):
        def take(self, logits: Any) -> None:
            super().take(logits)
            kept.extend((len(row.noted), len(row.ids)) for row in self.rows)

        def result(self, **options: Any) -> Any:
            # Rows end at different steps; what fills their place is where the rest is, wherever that may be.
            with torch.device("meta"):
                return super().result(**options)

    monkeypatch.setattr(loops, "_Loop", Counting)
    modes: list[dict[str, Any]] = [{}, {"do_sample": True}]
    for options in modes:
        texts = []
        for scored in (False, True):
            kept.clear()
            torch.manual_seed(4)
            result = generate(
                guard,
                model_of(byte_level),
                byte_level,
                PROMPTS,
                max_new_tokens=25,
                rewind=Rewind(per_match=30),
                return_dict_in_generate=True,
                output_scores=scored,
                stop_strings=["5"],
                **options,
            )
            texts.append(result.texts)
            assert len({len(ids) for ids in result.token_ids}) > 1
        assert sum(one.discarded for one in result.rewinds or ()) > 4
        assert texts[0] == texts[1]
        assert max(noted - length for noted, length in kept) <= 1


def test_processors_that_read_ids_see_texts_that_are_there(
    byte_level: Any, model_of: Any, guard: Any
) -> None:
    own = byte_level(PROMPTS, padding=True, padding_side="left", return_tensors="pt").input_ids
    size = own.shape[1]
    strange: list[Any] = []
    written: set[tuple[int, ...]] = {()}

    def allowed(row: int, ids: torch.Tensor) -> list[int]:
        if not torch.equal(ids[:size], own[row]) or 0 in ids[size:]:
            strange.append((row, ids))
            return []
        return range(5, len(byte_level))  # type: ignore[return-value]

    class Reader(hf.LogitsProcessor):  # type: ignore[misc]
        def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            assert len(ids) == len(scores) == len(PROMPTS)
            for row in ids.tolist():
                # No token that a text could hold has been left out on the way to it.
                if tuple(row[size:-1]) not in written and len(row) > size:
                    strange.append(row)
                written.add(tuple(row[size:]))
            return scores

    readers: list[dict[str, Any]] = [
        {"prefix_allowed_tokens_fn": allowed},
        {"logits_processor": hf.LogitsProcessorList([Reader()])},
    ]
    for options in readers:
        torch.manual_seed(0)
        result = generate(
            guard,
            model_of(byte_level),
            byte_level,
            PROMPTS,
            max_new_tokens=20,
            do_sample=True,
            rewind=Rewind(),
            **options,
        )
        assert sum(one.rewinds for one in result.rewinds or ()) > 0
        assert not strange


class Weighted(hf.LlamaForCausalLM):  # type: ignore[misc]
    """A model with an input of its own: a number for each row."""

    def prepare_inputs_for_generation(self, input_ids: Any, weight: Any = None, **kwargs: Any) -> Any:
        return super().prepare_inputs_for_generation(input_ids, **kwargs) | {"weight": weight}

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        outputs = super().forward(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            **kwargs,
        )
        if weight is not None:
            logits = outputs.logits
            outputs.logits = logits + weight * torch.linspace(0, 8, logits.shape[-1])
        return outputs


def test_inputs_of_a_model_s_own_are_not_dropped_on_the_way(byte_level: Any, guard: Any) -> None:
    model = random_model(byte_level)
    model.__class__ = Weighted
    weight = torch.tensor([[[4.0]], [[-4.0]]])

    def texts(count: int, weight: Any) -> Any:
        prompts = byte_level(["the"] * count, return_tensors="pt", return_token_type_ids=False)
        return generate(
            guard, model, byte_level, {**prompts, "weight": weight}, max_new_tokens=8, when_blocked="rewind"
        ).texts

    with pytest.raises(UnsupportedError, match="weight"):
        texts(2, weight)
    assert texts(1, weight[:1]) != texts(1, weight[1:])
    # What is one number is every row's.
    assert texts(2, 4.0) == texts(1, 4.0) * 2 == texts(1, weight[:1]) * 2


def test_rotary_factors_that_depend_on_what_was_read_are_refused_by_name(byte_level: Any) -> None:
    config = biased_model(byte_level, ["a"]).config
    config.max_position_embeddings = 16
    config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = hf.LlamaForCausalLM(config).eval()
    guard = Guard(Policy(name="p", rules=[StringRule(id="a", strings=["ab"])], when_blocked="rewind"))
    for prompts in ("f", ["f", "what the"]):
        assert generate(guard, model, byte_level, prompts, max_new_tokens=4).reports[0].ok
        with pytest.raises(UnsupportedError, match="beyond 16 tokens"):
            generate(guard, model, byte_level, prompts, max_new_tokens=20)


def test_stop_strings_and_criteria_end_a_text(byte_level: Any, model_of: Any, guard: Any) -> None:
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        PROMPTS,
        max_new_tokens=40,
        rewind=Rewind(),
        stop_strings=["e"],
    )
    for text, ids, outcome in zip(result.texts, result.token_ids, result.outcomes, strict=True):
        assert ("e" in text) == (outcome == "stopped")
        assert "e" not in byte_level.decode(ids[:-1])


def test_soft_rules_weigh_and_prompts_count(byte_level: Any) -> None:
    rules = [
        StringRule(id="soft", strings=["s"], penalty=100.0),
        RegexRule(id="joined", regex="the fuck", context="prompt"),
    ]
    guard = Guard(Policy(name="p", rules=rules))
    model = biased_model(byte_level, ["s", " fuck"])
    for seed in range(3):
        torch.manual_seed(seed)
        result = generate(
            guard, model, byte_level, "what the", max_new_tokens=12, do_sample=True, when_blocked="rewind"
        )
        assert "s" not in result.texts[0]
        assert result.reports[0].ok
        assert not ("the" + result.texts[0]).startswith("the fuck")


def test_a_policy_says_it_for_all_calls(byte_level: Any, model_of: Any) -> None:
    rule = StringRule(id="strings", strings=("fuck", "ass "))
    policy = Policy(name="p", rules=[rule], when_blocked="rewind", rewind={"back_to": "sentence"})
    assert Policy.from_yaml(policy.to_yaml()) == policy
    assert Policy(name="p", rules=[rule], when_blocked="mask").digest == Policy(name="p", rules=[rule]).digest
    model = model_of(byte_level)
    assert generate(Guard(policy), model, byte_level, "f", max_new_tokens=8).rewinds is not None
    masked = generate(Guard(policy), model, byte_level, "f", max_new_tokens=8, when_blocked="mask")
    assert masked.rewinds is None
    other = Guard(Policy(name="q", rules=[rule]))
    with pytest.raises(UnsupportedError, match="differ"):
        generate(Guard(policy), model, byte_level, ["f", "g"], guards=[None, other], max_new_tokens=8)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
        ({"guidance_scale": 1.5}, "guidance_scale"),
        ({"tables": "device"}, "tables"),
        ({"cache_implementation": "offloaded"}, "offloaded"),
        ({"cache_implementation": "offloaded_static"}, "offloaded_static"),
    ],
)
def test_what_cannot_go_back_is_refused_by_name(options: dict[str, Any], named: str, byte_level: Any) -> None:
    model, guard = (
        random_model(byte_level),
        Guard(Policy(name="p", rules=[StringRule(id="a", strings=["a"])])),
    )
    with pytest.raises(UnsupportedError, match=named):
        generate(guard, model, byte_level, "f", max_new_tokens=4, when_blocked="rewind", **options)


def test_beams_keep_the_mask_and_warn_of_what_undoes_its_price(
    byte_level: Any, model_of: Any, guard: Any
) -> None:
    options: dict[str, Any] = {
        "max_new_tokens": 6,
        "num_beams": 3,
        "do_sample": False,
        "when_blocked": "rewind",
    }
    result = generate(guard, model_of(byte_level), byte_level, "f", **options)
    assert result.rewinds is None
    assert result.reports[0].ok
    with pytest.warns(UserWarning, match="renormalize_logits"):
        generate(guard, model_of(byte_level), byte_level, "f", renormalize_logits=True, **options)


def test_continuous_batches_go_back_nowhere_and_say_so(byte_level: Any) -> None:
    rule = StringRule(id="a", strings=["ab"])
    model = random_model(byte_level)
    masks, goes_back = (
        Guard(Policy(name="p", rules=[rule], when_blocked=when)) for when in ("mask", "rewind")
    )
    for guard, options in ((goes_back, {}), (masks, {"when_blocked": "rewind"})):
        with pytest.raises(UnsupportedError, match="when_blocked='rewind'"):
            ContinuousBatch(guard, model, byte_level, **options)
        with pytest.raises(UnsupportedError, match="when_blocked='rewind'"):
            generate_batch(masks, model, byte_level, ["x"], guards=[guard], **options)
    with pytest.raises(UnsupportedError, match="rewind"):
        ContinuousBatch(masks, model, byte_level, rewind=Rewind())  # type: ignore[call-arg]
    result = generate_batch(
        goes_back, model, byte_level, ["x"], max_new_tokens=3, do_sample=False, when_blocked="mask"
    )
    assert result.reports[0].ok


def test_wrong_choices_are_refused_at_the_call() -> None:
    tokenizer = tiny_tokenizer("byte-level")
    model, guard = random_model(tokenizer), Guard(Policy(name="p", rules=[StringRule(id="a", strings=["a"])]))
    for wrong, named in (
        ({"when_blocked": "retry"}, "when_blocked"),
        ({"rewind": "match"}, "rewind"),
        ({"rewind": Rewind(), "when_blocked": "mask"}, "rewind"),
    ):
        with pytest.raises(match=named):
            generate(guard, model, tokenizer, "f", max_new_tokens=4, **wrong)
        with pytest.raises(match=named):
            stream(guard, model, tokenizer, "f", max_new_tokens=4, **wrong)
    with pytest.raises(UnsupportedError, match="streamed"):
        stream(guard, model, tokenizer, "f", max_new_tokens=4, rewind=Rewind(back_to="text"))


def test_steps_and_events_tell_of_each_going_back(
    byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    sink, steps = MemorySink(), list[Any]()
    guard = guard_of(*guard.policy.rules, audit=sink)
    torch.manual_seed(0)
    result = guard.generate(
        model_of(byte_level),
        byte_level,
        PROMPTS,
        max_new_tokens=30,
        do_sample=True,
        rewind=Rewind(per_text=3),
        on_step=steps.append,
    )
    assert result.rewinds is not None
    told = [
        (row, discarded)
        for step in steps
        for row, discarded in zip(step.rows, step.discarded, strict=True)
        if discarded is not None
    ]
    events = [event for event in sink.events if isinstance(event, Intervention)]
    back = [event for event in events if event.action == "rewound"]
    assert told == [(event.sequence, event.discarded) for event in back]
    for row, counts in enumerate(result.rewinds):
        own = [discarded for number, discarded in told if number == row]
        assert (len(own), sum(own)) == (counts.rewinds, counts.discarded)
    assert any(counts.fallbacks for counts in result.rewinds)
    assert any(event.action == "masked" for event in events)
    known = {UTF8_RULE, *(rule.id for rule in guard.policy.rules)}
    assert all(set(event.rule_ids) <= known for event in back)
    assert sum(bool(event.rule_ids) for event in back) > 0
