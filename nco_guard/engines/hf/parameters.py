"""What a generation can be told by keyword, for type checkers and editors: the one list of its options.

What is refused whatever its value (`engines.hf.options` says why) is not in it. A tokenizer's or a model's own inputs
beyond ids and mask (`pixel_values`, `position_ids`, ...) are given with the prompts, as the mapping that a tokenizer or
processor returns. None counts as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import torch
from transformers import CompileConfig, GenerationConfig, WatermarkingConfig
from transformers.generation.streamers import BaseStreamer

from nco_guard.policy import Rewind

if TYPE_CHECKING:
    from nco_guard.engines.rows import StepReport

__all__ = ["BatchOptions", "Chat", "GenerationOptions", "ProcessorOptions", "Prompts", "StreamOptions"]

Chat = Sequence[Mapping[str, Any]]
"""A list of messages, as `{"role": "user", "content": "Hello"}`."""
Prompts = str | Sequence[str] | Chat | Sequence[Chat] | torch.Tensor | Mapping[str, Any]
"""A text, texts, a chat, chats, a tensor of token ids, or the mapping that a tokenizer returns."""

_Choice = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_Stop = Callable[..., Any]


class BatchOptions(TypedDict, total=False):
    """What continuous batching can be told beside limits: fields of transformers' `GenerationConfig`, or one of these.

    Their meaning is that of transformers. One is the guard's own: `when_blocked="mask"`, where a policy says otherwise.
    """

    generation_config: GenerationConfig | None
    assistant_confidence_threshold: float | None
    assistant_lookbehind: int | None
    bos_token_id: int | None
    cache_config: Mapping[str, Any] | None
    cache_implementation: str | None
    compile_config: CompileConfig | None
    decoder_start_token_id: int | Sequence[int] | None
    disable_compile: bool | None
    diversity_penalty: float | None
    do_sample: bool | None
    early_stopping: bool | str | None
    encoder_no_repeat_ngram_size: int | None
    encoder_repetition_penalty: float | None
    eos_token_id: int | Sequence[int] | torch.Tensor | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    length_penalty: float | None
    low_memory: bool | None
    max_cache_len: int | None
    max_length: int | None
    max_matching_ngram_size: int | None
    min_p: float | None
    num_assistant_tokens: int | None
    num_assistant_tokens_schedule: str | None
    pad_token_id: int | None
    prefill_chunk_size: int | None
    remove_invalid_values: bool | None
    renormalize_logits: bool | None
    return_dict_in_generate: bool | None
    suppress_tokens: Sequence[int] | None
    target_lookbehind: int | None
    temperature: float | None
    top_h: float | None
    top_k: int | None
    top_p: float | None
    typical_p: float | None
    use_cache: bool | None
    when_blocked: Literal["mask", "rewind"] | None


class StreamOptions(BatchOptions, total=False):
    """What the generation of one text can be told: all that `model.generate` knows and the guarantee survives.

    And two of the guard's own. when_blocked: what happens where the model would complete a match. "mask": one of the
    tokens that are left is chosen. "rewind": the text goes back, as far and as often as `rewind` says, and goes on as
    the model would if it could not say it; beyond that, and with beams, the mask acts. None: what the policy says.
    """

    assistant_model: Any
    attention_mask: torch.Tensor | None
    bad_words_ids: Sequence[Sequence[int]] | None
    begin_suppress_tokens: Sequence[int] | None
    exponential_decay_length_penalty: tuple[int, float] | None
    guidance_scale: float | None
    logits_processor: Sequence[_Choice] | None
    max_new_tokens: int | None
    max_time: float | None
    min_length: int | None
    min_new_tokens: int | None
    negative_prompt_attention_mask: torch.Tensor | None
    negative_prompt_ids: torch.Tensor | None
    no_repeat_ngram_size: int | None
    output_attentions: bool | None
    output_hidden_states: bool | None
    output_logits: bool | None
    output_scores: bool | None
    prefix_allowed_tokens_fn: Callable[[int, torch.Tensor], Sequence[int]] | None
    prompt_lookup_num_tokens: int | None
    repetition_penalty: float | None
    rewind: Rewind | Mapping[str, Any] | None
    sequence_bias: Mapping[tuple[int, ...], float] | Sequence[Sequence[Any]] | None
    stop_strings: str | Sequence[str] | None
    stopping_criteria: Sequence[_Stop] | None
    synced_gpus: bool | None
    watermarking_config: WatermarkingConfig | Mapping[str, Any] | None


class GenerationOptions(StreamOptions, total=False):
    """What `Guard.generate` can be told for `model.generate`: also what concerns several texts of one prompt.

    For a function of your own that hands options on: `def answer(prompt: str, **options: Unpack[GenerationOptions])`.
    """

    num_beams: int | None
    num_return_sequences: int | None
    streamer: BaseStreamer | None


class ProcessorOptions(TypedDict, total=False):
    """What `Guard.logits_processor` can be told: the arguments of `GuardLogitsProcessor` beside the guard."""

    max_length: int | None
    max_new_tokens: int | None
    in_place: bool
    beams: int
    engine_ends: bool
    reads_prompt: bool
    on_step: Callable[[StepReport], None] | None
    changes_only: bool
    on_forced: Callable[[str], None] | None
