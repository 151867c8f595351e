"""A real transformers model that certainly writes what it is told to: one that insists on a text."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import torch
from transformers import LlamaForCausalLM, pipeline

from nco_guard.testing import biased_model, random_model, tiny_tokenizer
from nco_guard.tokens import read_vocabulary
from tests.leaks.canaries import CLEAN, SECRET

__all__ = ["insisting", "knowing_tokenizer", "longing", "pipe_of", "tokenizer"]

_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' }}"
    "{% if message['content'] %}{{ message['content'] }}{% endif %}"
    "{% for call in message.get('tool_calls') or [] %}<tool_call>{{ call['function'] | tojson }}</tool_call>"
    "{% endfor %}{{ '\n' }}{% endfor %}"
    "{% if tools %}{{ 'tools: ' + (tools | tojson) + '\n' }}{% endif %}"
    "{% if add_generation_prompt %}{{ 'assistant:~ ' }}{% endif %}"
)
_MARK = b"assistant:~ "


@cache
def tokenizer() -> Any:
    """Byte level, so that every text can be written; its chat template writes tool calls."""
    made = tiny_tokenizer("byte-level", vocab_size=400)
    made.chat_template = _TEMPLATE
    return made


@cache
def knowing_tokenizer() -> Any:
    """The same, with long tokens out of which secrets are made."""
    words = f"Write to {SECRET.text} or {CLEAN.text}, card {SECRET.number} {CLEAN.number}, {SECRET.date} {CLEAN.date}."
    return tiny_tokenizer("byte-level", texts=[words] * 20, vocab_size=500)


class InsistingLM(LlamaForCausalLM):  # type: ignore[misc]
    """A Llama that wants `script`, token by token, and begins with it again wherever it was kept from it.

    Its logits depend on the whole text, so it is called without a cache.
    """

    script: bytes = b""
    tokens: tuple[bytes, ...] = ()

    def forward(self, input_ids: Any = None, **kwargs: Any) -> Any:
        output = super().forward(input_ids=input_ids, **kwargs)
        for row, ids in enumerate(input_ids.tolist()):
            written = b"".join(self.tokens[index] for index in ids)
            wanted = self._wanted(written.rsplit(_MARK, 1)[-1])
            for index, gain in wanted:
                output.logits[row, -1, index] += gain
        return output

    def _wanted(self, written: bytes) -> list[tuple[int, float]]:
        script = self.script
        known = next(n for n in range(min(len(script), len(written)), -1, -1) if written.endswith(script[:n]))
        rest = script[known:]
        if not rest:
            return [(self.config.eos_token_id, 1000.0)]
        return [
            (index, 100.0 + 10 * len(token))
            for index, token in enumerate(self.tokens)
            if token and rest.startswith(token)
        ]


# Pipelines look a model up by the name of its class.
InsistingLM.__name__ = LlamaForCausalLM.__name__


def insisting(script: str) -> Any:
    """The model that insists on `script`, then ends."""
    made, vocabulary = tokenizer(), read_vocabulary(tokenizer())
    config = random_model(made, hidden=16).config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = InsistingLM(config).eval()
    model.script, model.tokens = script.encode(), vocabulary.tokens
    model.generation_config.use_cache = False
    return model


@cache
def longing(text: str) -> Any:
    """The model for ways of decoding that have caches of their own: what it wants depends on the last token alone.

    After each token of `text` that is one of those which follow it there, anywhere else the first.
    """
    model = biased_model(knowing_tokenizer(), [text])
    ids = knowing_tokenizer()(text)["input_ids"]
    wanted = torch.zeros_like(model.bonus)
    wanted[:, ids[0]] = 30.0
    for token, following in itertools.pairwise(ids):
        wanted[token, following] = 60.0
    model.bonus = wanted
    return model


def pipe_of(model: Any, **options: Any) -> Any:
    """A text-generation pipeline over a model."""
    given = {"max_new_tokens": 96, "do_sample": False, **options}
    return pipeline("text-generation", model=model, tokenizer=tokenizer(), **given)
