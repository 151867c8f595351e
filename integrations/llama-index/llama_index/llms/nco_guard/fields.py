"""What the constructors take by keyword, for type checkers and editors: LlamaIndex's own fields, and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypedDict

from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms.llm import CompletionToPromptType, MessagesToPromptType
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.types import BaseOutputParser, PydanticProgramMode

from nco_guard.engines.hf.weights import WeightOptions
from nco_guard.replies import ReplyFormat

__all__ = ["LLMFields", "LoadedFields", "LoadingLLMFields", "NCOGuardFields"]


class LLMFields(TypedDict, total=False):
    """LlamaIndex's own fields of every LLM; None counts as not given."""

    callback_manager: CallbackManager | None
    rate_limiter: Any
    system_prompt: str | None
    messages_to_prompt: MessagesToPromptType | None
    completion_to_prompt: CompletionToPromptType | None
    output_parser: BaseOutputParser | None
    pydantic_program_mode: PydanticProgramMode | None
    query_wrapper_prompt: BasePromptTemplate | None


class NCOGuardFields(LLMFields, total=False):
    """What else `NCOGuardLLM` takes beside its model and its policy."""

    context_window: int | None
    max_new_tokens: int | None
    generate_kwargs: Mapping[str, Any] | None
    stopping_ids: Sequence[int]
    is_chat_model: bool | None
    reply_format: ReplyFormat | str | PathLike[str] | Mapping[str, Any] | None
    strict: bool | None
    model_name: str | None


class LoadingLLMFields(LLMFields, WeightOptions, total=False):
    """LlamaIndex's own fields, and how weights are loaded."""


class LoadedFields(NCOGuardFields, WeightOptions, total=False):
    """What it takes where it loads its model."""
