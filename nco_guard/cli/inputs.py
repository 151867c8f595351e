"""What commands are given: policies, texts, models and tokenizers, each error in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_guard.errors import MissingExtraError, NCOGuardError

if TYPE_CHECKING:
    from nco_guard.policy import Policy

__all__ = ["encoder", "load_model", "load_policy", "load_tokenizer", "read_key", "read_text", "require_hf"]


def load_policy(spec: str) -> Policy:
    """The policy of a file, of a preset, `pii`, or of several, `pii,ldnoobw`; read as `guard=` is elsewhere."""
    from nco_guard.policy.given import given_policy, is_path

    names = [name.strip() for name in spec.split(",")]
    return given_policy(spec if is_path(spec) else names[0] if len(names) == 1 else names, "policy")


def read_text(name: str) -> str:
    """The text of a UTF-8 file, line ends untouched so that offsets are the file's; `-` is stdin."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise NCOGuardError(f"{name}: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NCOGuardError(f"{name}: not UTF-8 at byte {error.start}") from None


def read_key(path: Path) -> bytes:
    """The bytes of a file that holds a secret."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NCOGuardError(f"cannot read the key {path}: {error.strerror}") from error


def require_hf(feature: str) -> None:
    """Raise `MissingExtraError` unless torch and transformers can be imported; quieten transformers."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise MissingExtraError(feature, "hf") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a local folder, or of one `tokenizer.json`; nothing is downloaded."""
    # Importing torch takes seconds: not to say that a path is wrong.
    if not path.exists():
        raise NCOGuardError(f"no tokenizer at {path}")
    require_hf("loading a tokenizer")
    import transformers

    try:
        if path.is_file():
            return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
        return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # the tokenizers package raises plain Exception for a broken file
        raise NCOGuardError(f"cannot load a tokenizer from {path}: {_first_line(error)}") from error


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """What turns text into the ids of a tokenizer, special tokens left out."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return list(ids)

    return encode


def load_model(path: Path) -> tuple[Any, Any]:
    """The causal model of a local folder and its tokenizer; downloads nothing, runs no code of the folder."""
    if not path.is_dir():
        raise NCOGuardError(f"no model folder at {path}")
    require_hf("loading a model")
    from nco_guard.engines.hf.loading import load_local

    return load_local(path, load_tokenizer(path), model_kwargs={"local_files_only": True})


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
