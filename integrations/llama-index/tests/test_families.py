"""Every tokenizer family, models that long for what is forbidden: all routes agree, and none shows it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from llama_index.llms.nco_guard import NCOGuardLLM

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.testing import biased_model, tiny_tokenizer
from nco_guard.testing.tokenizers import FAMILIES

pytestmark = pytest.mark.anyio
POLICY = Policy(
    name="wants",
    rules=[
        RegexRule(id="email", regex=r"[a-z]+@[a-z]+\.com"),
        RegexRule(id="word", regex=r"\bass\b"),
        StringRule(id="cafe", strings=["café", "日本"]),
    ],
)
WANTS = ["john@enron.com", " ass ", "café", "日本"]


@pytest.fixture(params=FAMILIES)
def wanting(request: pytest.FixtureRequest) -> NCOGuardLLM:
    tokenizer = tiny_tokenizer(request.param)
    model = biased_model(tokenizer, WANTS)
    return NCOGuardLLM(model, tokenizer, guard=POLICY, max_new_tokens=24)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stop", [None, ["a"], [" ", "on"], ["@"]])
async def test_all_routes_agree_and_show_nothing_forbidden(
    wanting: NCOGuardLLM, verify: Any, seed: int, stop: list[str] | None
) -> None:
    prompt = "Write to the quick brown fox: "
    options: dict[str, Any] = {"do_sample": True, "temperature": 1.5, **({"stop": stop} if stop else {})}
    torch.manual_seed(seed)
    shown = ""
    for chunk in wanting.stream_complete(prompt, **options):
        shown += chunk.delta or ""
        assert verify(POLICY, shown).ok
        assert chunk.text == shown
    torch.manual_seed(seed)
    pieces = [chunk.delta async for chunk in await wanting.astream_complete(prompt, **options)]
    assert "".join(pieces) == shown
    torch.manual_seed(seed)
    whole = wanting.complete(prompt, **options).text
    assert verify(POLICY, whole).ok
    # A stream has shown what it has shown; at once, a cut text may be longer, up to the stop string.
    assert whole.startswith(shown)
    assert stop is None or not any(mark in whole for mark in stop)
    assert stop is not None or whole == shown


def test_left_alone_these_models_write_it(wanting: NCOGuardLLM, verify: Any) -> None:
    free = wanting.with_guard(
        Policy(name="nothing", rules=[StringRule(id="nothing", strings=["no such word"])])
    )
    torch.manual_seed(0)
    texts = [free.complete("Write to", do_sample=True).text for _ in range(8)]
    assert not all(verify(POLICY, text).ok for text in texts)
