"""The tiny model that ships with nco-guard, and what to ask it.

A Llama of two million parameters that writes fictional support e-mails and chats, full of e-mail addresses,
telephone numbers, social security and card numbers, keys and oaths: something for a policy to forbid, with
nothing to download. `model/README.md` is its model card; `tools/demo_model` in the source tree made it.
Importing this package loads neither torch nor transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nco_guard.demo.prompts import PROMPTS, SYSTEM_PROMPT, TOOLS, Message, chat
from nco_guard.errors import MissingExtraError

__all__ = ["PROMPTS", "SYSTEM_PROMPT", "TOOLS", "Message", "chat", "load", "model_path"]


def model_path() -> Path:
    """The directory with the weights and the tokenizer, as `from_pretrained` takes it."""
    return Path(__file__).resolve().parent / "model"


def load() -> tuple[Any, Any]:
    """The model (float32, on the CPU, in evaluation mode) and its tokenizer.

    Cost: about half a second and 15 MB once torch and transformers are imported; opens no connection.
    Raises `MissingExtraError` where torch or transformers is not installed.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("the demonstration model", "hf") from error
    path = model_path()
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    return model.eval(), tokenizer
