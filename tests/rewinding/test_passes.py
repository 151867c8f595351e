"""Passes over texts that go back: the logits are those of a model that reads each text anew."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf

from nco_guard.engines.hf.passes import passes_of

WIDTH = 90
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": WIDTH,
    "max_position_embeddings": 256,
}
OLD = {"n_layer": 2, "n_head": 4, "vocab_size": WIDTH}

MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL)),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=32, **OLD)),
    "opt": lambda: hf.OPTForCausalLM(
        hf.OPTConfig(
            hidden_size=32,
            ffn_dim=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            vocab_size=WIDTH,
            max_position_embeddings=256,
            word_embed_proj_dim=32,
        )
    ),
    "local": lambda: hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            vocab_size=WIDTH,
            attention_types=[[["global", "local"], 1]],
            window_size=6,
            max_position_embeddings=256,
        )
    ),
    "falcon alibi": lambda: hf.FalconForCausalLM(
        hf.FalconConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=WIDTH, alibi=True
        )
    ),
    "mpt": lambda: hf.MptForCausalLM(hf.MptConfig(d_model=32, n_heads=4, n_layers=2, vocab_size=WIDTH)),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(hidden_size=32, **OLD)),
    "sliding": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SMALL, sliding_window=5)),
    "hybrid": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**SMALL, sliding_window=5, head_dim=8)),
    "longrope": lambda: hf.Phi3ForCausalLM(
        hf.Phi3Config(
            **SMALL,
            pad_token_id=0,
            original_max_position_embeddings=14,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "long_factor": [30.0] * 4,
                "short_factor": [1.0] * 4,
                "original_max_position_embeddings": 14,
            },
        )
    ),
    "state in modules": lambda: hf.RecurrentGemmaForCausalLM(
        hf.RecurrentGemmaConfig(**(SMALL | {"num_hidden_layers": 3}), lru_width=32, attention_window_size=8)
    ),
    "recurrent": lambda: hf.MambaForCausalLM(
        hf.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=WIDTH, state_size=8)
    ),
    "t5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(
            d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=WIDTH, decoder_start_token_id=0
        )
    ),
    "bart": lambda: hf.BartForConditionalGeneration(
        hf.BartConfig(
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            vocab_size=WIDTH,
            max_position_embeddings=256,
        )
    ),
}
SHARED = {"llama", "gpt2", "opt", "local", "falcon alibi"}


def anew(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, text: list[int], options: dict[str, Any]
) -> torch.Tensor:
    """The logits after a text, float [width], from one pass over all of it."""
    whole = torch.cat([ids, torch.tensor([text], dtype=torch.long)], dim=1)
    if model.config.is_encoder_decoder:
        return model(
            decoder_input_ids=whole,
            encoder_outputs=options["encoder_outputs"],
            attention_mask=options["attention_mask"],
            use_cache=False,
        ).logits[0, -1]
    mask = torch.cat([mask, mask.new_ones(1, len(text))], dim=1)
    places = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if "position_ids" in options else {}
    return model(input_ids=whole, attention_mask=mask, use_cache=False, **places).logits[0, -1]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_a_model_that_reads_anew(name: str, rows: int) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    other = copy.deepcopy(model)  # some models keep in themselves what they read
    model.generation_config.eos_token_id = None
    chance = random.Random(rows)
    ids = torch.randint(5, WIDTH, (rows, 6))
    mask = torch.ones_like(ids)
    for row in range(rows):
        mask[row, : chance.randrange(4)] = 0
    told: list[str] = []

    def loop(_: Any, prompts: torch.Tensor, *, generation_config: Any, **options: Any) -> torch.Tensor:
        for unused in ("logits_processor", "stopping_criteria", "synced_gpus", "streamer"):
            options.pop(unused, None)
        passes = passes_of(model, prompts, generation_config, dict(options))
        told.append(type(passes).__name__)
        texts: list[list[int]] = [[] for _ in range(rows)]
        for step in range(60):
            asked = [row for row in range(rows) if row == 0 or step <= 25 * row]  # the others are over
            found = passes.logits({row: texts[row] for row in asked})
            for row in asked:
                own = dict(options)
                if model.config.is_encoder_decoder:
                    read = options["encoder_outputs"].last_hidden_state[row : row + 1]
                    own["encoder_outputs"] = type(options["encoder_outputs"])(last_hidden_state=read)
                    own["attention_mask"] = mask[row : row + 1]
                wanted = anew(other, prompts[row : row + 1], mask[row : row + 1], texts[row], own)
                torch.testing.assert_close(found[row], wanted, rtol=1e-4, atol=1e-4)
            for row in asked:
                _change(texts[row], chance)
        return prompts

    model.generate(ids, attention_mask=mask, custom_generate=loop, max_new_tokens=90, pad_token_id=0)
    assert (told == ["_Together"]) == (rows > 1 and name in SHARED)


def _change(text: list[int], chance: random.Random) -> None:
    """Write on, or go back, and then perhaps write some tokens at once."""
    kind = chance.random()
    if kind < 0.4:
        del text[chance.randrange(len(text) + 1) :]
    if kind > 0.2:
        text += [chance.randrange(5, WIDTH) for _ in range(1 if kind > 0.3 else 3)]
