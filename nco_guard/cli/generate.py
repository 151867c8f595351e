"""`nco-guard generate`: a local model under a policy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nco_guard.cli.inputs import load_model, load_policy, read_key
from nco_guard.cli.output import print_json, say, say_text, warn
from nco_guard.errors import NCOGuardError

if TYPE_CHECKING:
    from nco_guard.audit import Sink
    from nco_guard.engines.hf import GenerationOptions
    from nco_guard.policy import Rewind

__all__ = ["GenerateSettings", "run_generate"]


@dataclass(frozen=True)
class GenerateSettings:
    """How to decode; `temperature`, `top_p` and `top_k` (0 for all tokens) count only when sampling.

    `when_blocked`, `back_to`, `per_match` and `per_text` (0: no limit): None stands for what the policy says.
    """

    max_new_tokens: int = 64
    sample: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    batch_size: int = 8
    chat: bool = False
    when_blocked: Literal["mask", "rewind"] | None = None
    back_to: Literal["match", "sentence", "text"] | None = None
    per_match: int | None = None
    per_text: int | None = None

    def options(self, rewind: Rewind | None) -> GenerationOptions:
        """The options for `Guard.generate`. rewind: what the policy says."""
        options: GenerationOptions = {"max_new_tokens": self.max_new_tokens, "do_sample": self.sample}
        if self.sample:
            options |= {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        if self.when_blocked is not None:
            options["when_blocked"] = self.when_blocked
        limits = {"per_match": self.per_match, "per_text": self.per_text}
        said = {name: value or None for name, value in limits.items() if value is not None}
        if said or self.back_to is not None:
            far = {} if self.back_to is None else {"back_to": self.back_to}
            options["rewind"] = {**(rewind.model_dump() if rewind is not None else {}), **far, **said}
        return options


def run_generate(
    model_path: Path,
    policy: str,
    prompts: Sequence[str],
    settings: GenerateSettings,
    *,
    audit: Path | None,
    digest_key: Path | None = None,
    as_json: bool,
) -> int:
    """Generate one text per prompt; returns 1 if the verifier finds something in one of them, else 0."""
    from nco_guard.audit.digests import checked_key

    if not prompts:
        raise NCOGuardError("no prompt: give --prompt or --prompt-file")
    loaded = load_policy(policy)  # before the model: mistakes in a policy should not wait for gigabytes
    key = None if digest_key is None else checked_key("--digest-key", read_key(digest_key))
    model, tokenizer = load_model(model_path)
    from transformers import set_seed

    from nco_guard import Guard
    from nco_guard.audit import JsonLinesSink

    inputs = _chats(tokenizer, prompts) if settings.chat else list(prompts)
    outputs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        sink: Sink | None = stack.enter_context(JsonLinesSink(audit)) if audit else None
        guard = Guard(loaded, audit=sink, digest_key=key)
        options = settings.options(guard.policy.rewind)
        set_seed(settings.seed)
        for at in range(0, len(inputs), settings.batch_size):
            batch = inputs[at : at + settings.batch_size]
            result = guard.generate(model, tokenizer, batch, **options)
            back = result.rewinds or repeat(None, len(result.texts))
            for text, report, outcome, ids, counts in zip(
                result.texts, result.reports, result.outcomes, result.token_ids, back, strict=True
            ):
                output = {"text": text, "ok": report.ok, "outcome": str(outcome), "tokens": len(ids)}
                outputs.append(output if counts is None else output | {"rewinds": asdict(counts)})
    ok = all(output["ok"] for output in outputs)
    if as_json:
        print_json({"ok": ok, "policy_digest": guard.log.digest, "outputs": outputs})
    else:
        _print(outputs)
    if not ok:
        warn("THE GUARD FAILED: the verifier found violations in the output")
    return 0 if ok else 1


def _chats(tokenizer: Any, prompts: Sequence[str]) -> list[Any]:
    if not getattr(tokenizer, "chat_template", None):
        raise NCOGuardError("this tokenizer has no chat template; leave out --chat")
    return [[{"role": "user", "content": prompt}] for prompt in prompts]


def _print(outputs: Sequence[dict[str, Any]]) -> None:
    for number, output in enumerate(outputs, start=1):
        if len(outputs) > 1:
            say(f"--- {number} ({output['outcome']})")
        say_text(output["text"], exact=True)
