"""Trains the demonstration model from scratch: `python -m tools.demo_model --output DIR`.

The corpus is generated (`corpus.documents`), the tokenizer is a byte-level BPE trained on it, the model a
small Llama. Seeds, algorithms and the number of threads are fixed: the same machine with the same versions of
torch, transformers and tokenizers gives the same weights. Cost: about twelve minutes on
one CPU core, under 2 GB.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tools.demo_model.corpus import BREAK, Document, documents, lessons

__all__ = ["CHAT_TEMPLATE", "encode", "main", "train_model", "train_tokenizer"]

PAD, END = "<|pad|>", "<|end|>"
ROLES: Final = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
TOOL_MARKS: Final = ("<tool_call>", "</tool_call>")

VOCABULARY: Final = 2304
ROW: Final = 512  # positions of a packed row; longer documents are left out
OPEN_ROWS: Final = 24
ROWS: Final = 4  # rows of a step
STEPS: Final = 1500
PEAK_RATE: Final = 2e-3
SEED: Final = 20260
THREADS: Final = 1

#: Token ids, labels and positions, which start at 0 in each document.
Row = tuple[list[int], list[int], list[int]]

# Digits and the marks inside addresses and numbers stand alone: then copying an order number is copying
# single tokens, and a value can break off at any of its parts.
_PIECES: Final = (
    r" ?\p{L}+|\p{N}| ?[-.@_+*\[\]()]|[^\S\n]?[^\s\p{L}\p{N}\-.@_+*\[\]()]+|[^\S\n]+(?!\S)|\n+|\s+"
)

CHAT_TEMPLATE: Final = (
    """
{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content -%}{%- for part in content if part.text is defined -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- set system = messages and messages[0].role == 'system' -%}
{%- if system or tools -%}
<|system|>{% if system %}{{ text(messages[0].content) }}{% endif %}
{%- if tools -%}
{{ '\\n\\n' if system }}Tools:
{%- for tool in tools %}{{ '\\n' }}{{ (tool.function or tool) | tojson }}{% endfor -%}
{%- endif -%}
<|end|>
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<|user|>{{ text(message.content) }}<|end|>
{%- elif message.role == 'assistant' -%}
<|assistant|>{{ text(message.content) }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function if call.function is defined else call -%}
<tool_call>{"name": {{ function.name | tojson }}, "arguments": """
    """{{ function.arguments if function.arguments is string else function.arguments | tojson }}}</tool_call>
{%- endfor -%}
<|end|>
{%- elif message.role == 'tool' -%}
<|tool|>{{ text(message.content) }}<|end|>
{%- elif message.role == 'system' and not loop.first -%}
<|system|>{{ text(message.content) }}<|end|>
{%- elif message.role != 'system' -%}
{{ raise_exception('unknown role: use system, user, assistant or tool') }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
"""
).strip()


def _texts(document: Document) -> Iterator[str]:
    """What the tokenizer learns from: the document's texts and its JSON."""
    yield document.text.replace(BREAK, "")
    for message in document.messages:
        yield message["content"].replace(BREAK, "")
        for call in message.get("tool_calls", ()):
            yield json.dumps(call["function"])
    for tool in document.tools:
        yield json.dumps(tool["function"])


def train_tokenizer(corpus: Sequence[Document]) -> Any:
    """A byte-level BPE tokenizer with all 256 bytes, the chat template and the special tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(TOOL_MARKS),
        min_frequency=3,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[PAD, END, *ROLES],
        show_progress=False,
    )
    bpe.train_from_iterator((text for document in corpus for text in _texts(document)), trainer)
    # Visible in decoded text, unlike the special tokens: agents parse them.
    bpe.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in TOOL_MARKS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES),
        padding_side="left",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return [token for part in text.split(BREAK) for token in tokenizer(part)["input_ids"]]


def encode(tokenizer: Any, document: Document) -> tuple[list[int], list[int]]:
    """A document's token ids and labels.

    Only what the assistant says, and plain text, is learned; other labels are -100.
    """
    end, speaker = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|assistant|>")
    if not document.messages:
        ids = [*_tokens(tokenizer, document.text), end]
        return ids, ids
    text = tokenizer.apply_chat_template(
        list(document.messages), tools=list(document.tools) or None, tokenize=False
    )
    ids = _tokens(tokenizer, text)
    labels, speaking = [], False
    for token in ids:
        labels.append(token if speaking else -100)
        speaking = token == speaker or (speaking and token != end)
    return ids, labels


def _rows(tokenizer: Any, count: int) -> Iterator[Row]:
    """`count` packed rows of whole documents, filled first-fit from a few open ones."""
    pad = tokenizer.pad_token_id
    open_rows: list[Row] = []
    made = 0
    rng = random.Random(SEED)
    full, short = documents(sys.maxsize, seed=SEED), lessons(sys.maxsize, seed=SEED)
    while True:
        # Only short lessons at first, then fewer and fewer until the middle.
        easy = 1 - (made / count - 0.1) / 0.4
        ids, labels = encode(tokenizer, next(short if rng.random() < easy else full))
        if len(ids) > ROW:
            continue
        row = next((row for row in open_rows if len(row[0]) + len(ids) <= ROW), None)
        if row is None:
            if len(open_rows) == OPEN_ROWS:
                done = open_rows.pop(0)
                gap = ROW - len(done[0])
                yield done[0] + [pad] * gap, done[1] + [-100] * gap, done[2] + list(range(gap))
                made += 1
                if made == count:
                    return
            row = ([], [], [])
            open_rows.append(row)
        row[0].extend(ids)
        # The first token of a document is not predicted from the document before it.
        row[1].extend([-100, *labels[1:]])
        row[2].extend(range(len(ids)))


def _rate(step: int, steps: int) -> float:
    """Learning rate: linear warm-up over 4 % of the steps, then a cosine down to 2 % of the peak."""
    warm = max(1, steps // 25)
    if step < warm:
        return PEAK_RATE * (step + 1) / warm
    return PEAK_RATE * (0.02 + 0.49 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


def _new_model(tokenizer: Any) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    # The usual deviation of 0.02 suits wide models; in this narrow one attention would wake up slowly.
    for name, weights in model.named_parameters():
        if weights.dim() > 1:
            closing = name.endswith(("o_proj.weight", "down_proj.weight"))
            torch.nn.init.normal_(weights, std=0.02 if closing else config.hidden_size**-0.5)
    return model


def train_model(tokenizer: Any, *, steps: int = STEPS) -> tuple[Any, float]:
    """The trained model and its loss (nats per learned token, mean of the last twentieth of the steps).

    Sets torch's seed, thread count and deterministic mode for the process. Prints a progress line.
    """
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    model = _new_model(tokenizer).train()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=PEAK_RATE,
        betas=(0.9, 0.98),
    )
    rows = _rows(tokenizer, steps * ROWS)
    losses: list[float] = []
    started = time.monotonic()
    for step in range(steps):
        batch = torch.tensor([next(rows) for _ in range(ROWS)])
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, steps)
        # Positions that start again at 0 make transformers keep packed documents apart.
        ids, labels, positions = batch.unbind(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=labels, position_ids=positions, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        recent = losses[-max(1, steps // 20) :]
        if step % 10 == 0 or step + 1 == steps:
            spent = time.monotonic() - started
            left = spent / (step + 1) * (steps - step - 1)
            mean = sum(recent) / len(recent)
            line = f"step {step + 1}/{steps}  loss {mean:.3f}  {spent:.0f} s, {left:.0f} s left"
            print(line, end="\r" if sys.stdout.isatty() else "\n", flush=True)
    return model.eval(), sum(recent) / len(recent)


def _save(model: Any, tokenizer: Any, output: Path) -> None:
    """Half precision on disk, single precision once loaded."""
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, max_new_tokens=128
    )
    model.half().save_pretrained(output)
    tokenizer.save_pretrained(output)
    config = output / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["dtype"] = "float32"
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and saves; prints progress, the final loss and the size."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_model", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="directory for model and tokenizer")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"optimizer steps (default {STEPS})")
    options = parser.parse_args(arguments)
    random.seed(SEED)
    tokenizer = train_tokenizer(list(documents(6000, seed=SEED)))
    model, loss = train_model(tokenizer, steps=options.steps)
    _save(model, tokenizer, options.output)
    print(f"\nfinal loss {loss:.4f}, {model.num_parameters():,} parameters, {len(tokenizer):,} tokens")
    return 0
