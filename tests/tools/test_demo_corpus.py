"""The corpus: reproducible, varied, and free of values that could be anybody's."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nco_guard import demo
from tools.demo_model import templates, values
from tools.demo_model.corpus import BREAK, Document, documents, lessons

OATH = re.compile(
    r"\b(?:bullshit|shit|shitty|piece of shit|ass|asshole|bastard|bollocks|tosser|butt|sucks)\b",
    re.IGNORECASE,
)


def _text(document: Document) -> str:
    spoken = [message["content"] for message in document.messages]
    calls = [json.dumps(message.get("tool_calls", [])) for message in document.messages]
    return "\n".join([document.text, *spoken, *calls]).replace(BREAK, "")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [_text(document) for document in documents(4000, seed=7)]


def test_the_same_seed_gives_the_same_documents_and_another_seed_others() -> None:
    assert list(documents(200, seed=5)) == list(documents(200, seed=5))
    assert list(documents(200, seed=5)) != list(documents(200, seed=6))


def test_the_documents_do_not_depend_on_the_process() -> None:
    """A fresh interpreter with another hash seed yields the same corpus."""
    program = (
        "import hashlib; from tools.demo_model.corpus import documents;"
        "print(hashlib.sha256(repr(list(documents(300, seed=3))).encode()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = hashlib.sha256(repr(list(documents(300, seed=3))).encode()).hexdigest()
    assert done.stdout.strip() == here


def test_addresses_are_on_reserved_domains_only(texts: list[str]) -> None:
    domains = [domain for text in texts for domain in re.findall(r"@([\w.-]+\.[a-z]{2,})", text)]
    assert len(domains) > 1000
    assert {".".join(domain.split(".")[-2:]) for domain in domains} == {
        "example.com",
        "example.org",
        "example.net",
    }


def test_telephone_numbers_are_fictional(texts: list[str]) -> None:
    numbers = [n for text in texts for n in re.findall(r"\b\d{3}\)?[- ]\d{3}-\d{4}\b", text)]
    assert len(numbers) > 1000
    assert all(re.fullmatch(r"\d{3}\)?[- ]555-01\d\d", number) for number in numbers)


def test_card_numbers_are_luhn_valid_test_numbers(texts: list[str]) -> None:
    shape = r"\b\d{4}([- ])\d{4}\1\d{4}\1\d{4}\b|\b\d{4}([- ])\d{6}\2\d{5}\b"
    cards = [re.sub(r"\D", "", m[0]) for text in texts for m in re.finditer(shape, text)]
    assert len(cards) > 200
    assert all(values.card_is_reserved(card) for card in cards)
    assert not values.card_is_reserved("4111111111111112")


def test_ip_addresses_lie_in_documentation_blocks(texts: list[str]) -> None:
    found = [m[0] for text in texts for m in re.finditer(r"\b\d+\.\d+\.\d+\.\d+\b", text)]
    assert len(found) > 50
    assert all(re.match(r"(?:192\.0\.2|198\.51\.100|203\.0\.113)\.", address) for address in found)


def test_keys_spell_example(texts: list[str]) -> None:
    keys = [m[0] for text in texts for m in re.finditer(r"\b(?:AKIA|sk-|ghp_)\w{10,}", text)]
    whole = [key for key in keys if key in values.SECRET_KEYS]
    assert len(whole) > 50
    assert all("EXAMPLE" in key for key in values.SECRET_KEYS)
    # The rest are keys that break off.
    assert all(any(full.startswith(key) for full in values.SECRET_KEYS) for key in keys)


def test_held_out_orders_never_occur(texts: list[str]) -> None:
    assert not any(order in text for text in texts for order in values.HELD_OUT_ORDERS)


def test_lessons_are_short_copies_without_held_out_orders() -> None:
    seen = list(lessons(500, seed=2))
    assert seen == list(lessons(500, seed=2))
    assert all(document.messages[0]["role"] == "user" and not document.tools for document in seen)
    assert not any(order in _text(document) for document in seen for order in values.HELD_OUT_ORDERS)


def test_oaths_and_the_papers_formats_are_frequent(texts: list[str]) -> None:
    patterns = (
        r"[\w.+-]+@[\w.-]+\.[a-z]{2,}",
        r"\b\d{3}-\d{2}-\d{4}\b",
        r"\b\d{3}-\d{3}-\d{4}\b",
        r"\b\d{4}-\d{4}-\d{4}-\d{4}\b",
    )
    for pattern in patterns:
        assert sum(bool(re.search(pattern, text)) for text in texts) > 0.015 * len(texts), pattern
    assert sum(bool(OATH.search(text)) for text in texts) > 0.15 * len(texts)
    assert any(OATH.search(text) and match[0].isupper() for text in texts for match in OATH.finditer(text))


def test_some_values_are_withheld_and_some_break_off(texts: list[str]) -> None:
    joined = "\n".join(texts)
    assert re.search(r"@exam\w* \[(?:on file|hidden)\]", joined)
    assert re.search(r"\d{3}-555-01?\d? \[(?:on file|hidden)\]", joined)


def test_every_slot_of_every_template_can_be_filled() -> None:
    """No template names a slot that a scene lacks."""
    import random

    from tools.demo_model.corpus import Scene

    source = Path(templates.__file__).read_text(encoding="utf-8")
    constants = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    filled = 0
    for constant in constants:
        if isinstance(constant, str) and re.search(r"\{\w+\}", constant) and "`" not in constant:
            assert not re.search(r"\{\w+\}", Scene(random.Random(filled)).write(constant))
            filled += 1
    assert filled > 150


def test_prompts_are_two_lists_of_chats_and_tools_are_json_schemas() -> None:
    assert set(demo.PROMPTS) == {"pii", "profanity"}
    for prompts in demo.PROMPTS.values():
        assert 24 <= len(prompts) <= 32
        assert all([m["role"] for m in prompt] == ["system", "user"] for prompt in prompts)
        assert len({json.dumps(prompt) for prompt in prompts}) == len(prompts)
    for tool in demo.TOOLS:
        function = tool["function"]
        assert set(function["parameters"]["required"]) <= set(function["parameters"]["properties"])


def test_importing_the_demo_loads_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, nco_guard.demo, tools.demo_model.corpus;"
        "print([m for m in ('torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
