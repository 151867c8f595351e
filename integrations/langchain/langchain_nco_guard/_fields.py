"""What the functions that make models take by keyword, for type checkers and editors: the fields of the models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Literal, TypedDict

from langchain_core.caches import BaseCache
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.language_models import ModelProfile
from langchain_core.rate_limiters import BaseRateLimiter
from pydantic import SecretStr

from nco_guard import OnMatch
from nco_guard.replies import ReplyFormat
from nco_guard.scan import Replacement

__all__ = ["ChatFields", "VerifiedFields"]


class _ModelFields(TypedDict, total=False):
    """LangChain's own fields of every chat model."""

    name: str | None
    cache: BaseCache | bool | None
    verbose: bool
    callbacks: list[BaseCallbackHandler] | BaseCallbackManager | None
    tags: list[str] | None
    metadata: dict[str, Any] | None
    custom_get_token_ids: Callable[[str], list[int]] | None
    rate_limiter: BaseRateLimiter | None
    disable_streaming: bool | Literal["tool_calling"]
    output_version: str | None
    profile: ModelProfile | None


class ChatFields(_ModelFields, total=False):
    """Fields of `ChatNCOGuard` beside its model and its guard."""

    model_name: str
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    stop: list[str] | None
    timeout: float | None
    max_retries: int | None
    api_key: SecretStr | None
    streaming: bool
    generation_kwargs: dict[str, Any]
    reply_format: ReplyFormat | str | PathLike[str] | Mapping[str, Any] | None


class VerifiedFields(_ModelFields, total=False):
    """Fields of `VerifiedChatModel` beside its model and its guard."""

    action: OnMatch
    replacement: Replacement
    max_retries: int
    retry_prompt: str
