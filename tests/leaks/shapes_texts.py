"""Shapes of texts: what a reader is given as text, and what a local model insists on writing."""

from __future__ import annotations

import json

from tests.leaks.shapes import Shape, shapes

__all__ = ["CALLED", "JSON", "PARSED", "TEXTS", "WRITTEN"]

#: Finished texts.
TEXTS: list[Shape] = shapes(
    "text",
    {
        "in the middle": lambda s: f"Write to {s.text} today.",
        "alone": lambda s: s.text,
        "at the start": lambda s: f"{s.text} is the address",
        "at the end": lambda s: f"the address: {s.text}",
        "twice": lambda s: f"{s.text} and {s.text}",
        "side by side": lambda s: f"{s.text}{s.text}",
        "number": lambda s: f"card {s.number}.",
        "date": lambda s: f"born {s.date} in Oslo",
        "all forms": lambda s: f"{s.text} {s.number} {s.date} {s.uuid}",
        "between lines": lambda s: f"a\n{s.text}\r\nb\u2028{s.number}",
        "between wide characters": lambda s: f"\U0001f600{s.text}é{s.number}日本",
        "with a beginning that is none": lambda s: f"x@ @y nora@ {s.text[:12]} {s.text}",
        "in JSON": lambda s: f'{{"mail": "{s.text}", "card": {s.number}}}',
        "in HTML": lambda s: f"<a href='mailto:{s.text}'>{s.text}</a>",
        "in Markdown": lambda s: f"**{s.text}** `{s.number}`",
        "long": lambda s: "word " * 300 + s.text + " word" * 300,
    },
)

#: What a local model insists on; short enough to be written many times over.
WRITTEN: list[Shape] = shapes(
    "written",
    {
        "in the middle": lambda s: f"Write to {s.text} today.",
        "alone": lambda s: s.text,
        "twice": lambda s: f"{s.text} {s.text}",
        "number": lambda s: f"card {s.number}.",
        "date": lambda s: f"born {s.date}",
        "all forms": lambda s: f"{s.text} {s.number} {s.date}",
        "between wide characters": lambda s: f"\U0001f600{s.text}é{s.number}日",
        "at a line's end": lambda s: f"a\n{s.text}\nb",
    },
)

#: Tool calls that a local model insists on.
CALLED: list[Shape] = shapes(
    "called",
    {
        "argument": lambda s: _called(f'{{"m": "{s.text}"}}'),
        "argument with escapes": lambda s: _called(f'{{"m": "{s.escaped}"}}'),
        "argument with other escapes": lambda s: _called('{"m": "' + s.text.replace(".", "\\u002e") + '"}'),
        "key": lambda s: _called(f'{{"{s.text}": 1}}'),
        "number": lambda s: _called(f'{{"card": {s.number}}}'),
        "text before the call": lambda s: f"I ask {s.text} " + _called('{"a": 1}'),
        "text after the call": lambda s: _called('{"a": 1}') + f" for {s.text}",
        "call that breaks off": lambda s: f'<tool_call>{{"name": "lookup", "arguments": {{"m": "{s.text}',
        "call that is no JSON": lambda s: f"<tool_call>{s.text}</tool_call>",
        "reasoning": lambda s: f"<think>{s.text}</think>So.",
        "reasoning in two parts": lambda s: f"<think>{s.text[:9]}</think>a<think>{s.text[9:]}</think>b",
        "text on both sides of reasoning": lambda s: f"{s.text[:9]}<think>Hm.</think>{s.text[9:]}",
        "reasoning, text and a call": lambda s: (
            f"<think>{s.text}</think>So. " + _called(f'{{"m": "{s.text}"}}')
        ),
    },
)


#: What a local model insists on, for somebody who parses its text.
PARSED: list[Shape] = shapes(
    "parsed",
    {
        "number with an exponent": lambda s: f'{{"card": {s.exponent}}}',
        "number with a point": lambda s: f'So: {{"a": "b", "card": [{s.number}.0]}}',
        "escapes": lambda s: f'{{"mail": "{s.escaped}"}}',
        "ReAct": lambda s: f'Thought: I look.\nAction: lookup\nAction Input: {{"n": {s.exponent}}}\n',
    },
)


def _called(arguments: str) -> str:
    return f'<tool_call>{{"name": "lookup", "arguments": {arguments}}}</tool_call>'


#: JSON as somebody will parse it, whole or broken off.
JSON: list[Shape] = shapes(
    "json",
    {
        "value": lambda s: f'{{"m": "{s.text}"}}',
        "escaped value": lambda s: f'{{"m": "{s.escaped}"}}',
        "upper-case escapes": lambda s: f'{{"m": "{s.text}"}}'.replace("m", "\\u006D"),
        "every character escaped": lambda s: '{"m": "' + "".join(f"\\u{ord(c):04x}" for c in s.text) + '"}',
        "escaped key": lambda s: f'{{"{s.escaped}": 1}}',
        "number": lambda s: f'{{"card": {s.number}}}',
        "number with an exponent": lambda s: f'{{"card": {s.exponent}}}',
        "number with an exponent, broken off": lambda s: f'{{"a": [1, {{"card": {s.exponent}',
        "number with an exponent in a text": lambda s: f'{{"card": "{s.exponent}"}}',
        "number's digits escaped": lambda s: (
            '{"card": "' + "".join(f"\\u003{c}" for c in str(s.number)) + '"}'
        ),
        "nested JSON": lambda s: _json_in(f'{{"m": "{s.escaped}"}}'),
        "nested twice": lambda s: _json_in(_json_in(f'{{"m": "{s.escaped}"}}')),
        "surrogate pairs": lambda s: f'{{"m": "\\ud83d\\ude00{s.escaped}\\ud83d\\ude00"}}',
        "lone surrogate": lambda s: f'{{"m": "\\ud83d{s.escaped}"}}',
        "broken off": lambda s: f'{{"a": 1, "m": "{s.escaped}',
        "broken off in an escape": lambda s: f'{{"a": "{s.escaped}\\u00',
        "two objects": lambda s: f'{{"a": 1}} {{"m": "{s.escaped}"}}',
        "objects on lines": lambda s: f'{{"a": 1}}\n{{"m": "{s.escaped}"}}\n',
        "text before it": lambda s: f'Action Input: {{"m": "{s.escaped}"}}',
        "fenced": lambda s: f'```json\n{{"m": "{s.escaped}"}}\n```',
        "a list": lambda s: f'["a", "{s.escaped}"]',
        "a string": lambda s: f'"{s.escaped}"',
        "escaped slash": lambda s: f'{{"m": "https:\\/\\/x\\/{s.escaped}"}}',
        "same key twice": lambda s: f'{{"m": "{s.escaped}", "m": "fine"}}',
        "comments": lambda s: f'{{"m": "{s.escaped}" /* so */}}',
        "single quotes": lambda s: f"{{'m': '{s.escaped}'}}",
        "very deep": lambda s: "[" * 80 + f'"{s.escaped}"' + "]" * 80,
        "NaN beside it": lambda s: f'{{"n": NaN, "m": "{s.escaped}"}}',
    },
)


def _json_in(text: str) -> str:
    return json.dumps({"body": text})
