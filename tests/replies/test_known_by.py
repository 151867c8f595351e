"""A family is found by what its chat template says of calls, and no other family is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nco_guard.replies import format_for, shipped_formats

LLAMA_3 = "{{ '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}"
LLAMA_4 = "{{ '<|header_start|>' + role + '<|header_end|>\\n\\n' }}"
DEEPSEEK = "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' }}"
PARAMETERS = "{{ '{\"name\": \"' + tool_call.name + '\", ' }}{{ '\"parameters\": ' }}"
PYTHON = "Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]"
GRANITE = "{{ '<|start_of_role|>assistant<|end_of_role|>' }}"
DSML = "{% set dsml_token = '｜DSML｜' %}{{ '\\n\\n<' + dsml_token + 'function_calls>\\n' }}"
SMOLLM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

# The words by which published templates are told apart, as they stand in them.
TEMPLATES = [
    ("hermes", '{{ \'<tool_call>\\n{"name": "\' + name + \'", "arguments": \' }}'),
    ("hermes", "{{ '<think>' }}within <tool_call></tool_call> XML tags"),
    ("qwen3-coder", "{{ '<tool_call>\\n<function=' + name + '>\\n' }}{{ '<parameter=' + key + '>\\n' }}"),
    ("llama-3", LLAMA_3 + PARAMETERS + "<|python_tag|>"),
    ("llama-3", LLAMA_3 + PARAMETERS),
    ("llama-4", LLAMA_4 + "{{ '<|python_start|>' }}{{ '<|python_end|>' }}" + PARAMETERS),
    ("pythonic", LLAMA_4 + PYTHON),
    ("pythonic", LLAMA_3 + PYTHON + PARAMETERS),
    (
        "pythonic",
        "{{ '<start_of_turn>model\\n' }}Example Format: [func_name1(params_name1=params_value1...)]",
    ),
    ("mistral", "{{ '[TOOL_CALLS][' }}{{ '{\"name\": \"' + name + '\", \"arguments\": ' }}"),
    ("mistral-args", "{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"),
    ("mistral-call-id", "{{ '[TOOL_CALLS]' + name }}{{ '[CALL_ID]' + id }}{{ '[ARGS]' + arguments }}"),
    ("deepseek-v3", DEEPSEEK + "{{ '\\n```json\\n' }}"),
    ("deepseek-v3.1", DEEPSEEK),
    ("deepseek-v3.2", DSML),
    ("deepseek-v4", DSML.replace("function_calls", "tool_calls")),
    ("gpt-oss", "{{ '<|start|>assistant<|channel|>analysis<|message|>' }}{{ '<|start|>assistant to=' }}"),
    ("phi-4-mini", "{{ '<|' + role + '|>' + content + '<|tool|>' + tools + '<|/tool|>' + '<|end|>' }}"),
    ("functools", 'all calls in a single JSON list formatted as functools[{"name": [function name]}]'),
    ("granite-3", GRANITE + "respond only with <|tool_call|> followed by a JSON list of tools used"),
    ("granite-4", GRANITE + '{{ \'<tool_call>\\n{"name": "\' + name + \'", "arguments": \' }}'),
    ("command-a", "{{ '<|START_ACTION|>[\\n' }}{{ '<|START_RESPONSE|>' }}"),
    ("command-a", "{{ '<|START_ACTION|>[\\n' }}{{ '<|START_TEXT|>' }}"),
    ("glm-4.5", "{{ '\\n<tool_call>' + name }}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>"),
    ("glm-4.7", "{{ '<tool_call>' + name }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>"),
    ("kimi-k2", "<|tool_calls_section_begin|>{{ '<|tool_call_begin|>' }}<|tool_call_argument_begin|>"),
    ("smollm2", "{{ '<|im_start|>system\\n" + SMOLLM + "<|im_end|>\\n' }}"),
    ("smollm3", SMOLLM + ".{% if '/no_think' in system_message %}within <tool_call></tool_call> XML tags"),
    (
        "functionary-3.1",
        LLAMA_3 + "{{ '<function=' + name + '>' + arguments + '</function>' }}<|python_tag|>",
    ),
    ("functionary-3.2", LLAMA_3 + "{{ '>>>' + name + '\\n' + arguments }}"),
    ("gemma-4", "{{ '<|tool_call>call:' + name + '{' }}<tool_call|>"),
    ("lfm2", "ns.system_prompt + \"List of tools: [\" }}{{ '<|tool_call_start|>[' + calls + ']' }}"),
    ("lfm2", 'ns.system_prompt + "List of tools: <|tool_list_start|>["'),
    ("apertus", "{%- set tool_calls_token = '<|tools_prefix|>' -%}"),
    (
        "kimi-k3",
        "{{- open_tag('argument', [('key', key), ('type', xtml_type(value))]) -}}{{- '<|end_of_msg|>' -}}",
    ),
    ("minimax-m1", "{{ '<beginning_of_sentence>ai name=assistant\\n<tool_calls>\\n' -}}"),
    ("minimax-m3", "{%- set ns_token = ']<]minimax[>[' -%}{{- ns_token + '<invoke name=\"' -}}"),
    ("gigachat-3", "{%- set role_sep = \"<|role_sep|>\\n\" -%}{{- {'role': 'function call'} -}}"),
    (
        "minicpm-5",
        "{{- '<function name=\"' ~ tool_call.name ~ '\">' }}{{- '<param name=\"' ~ param_name ~ '\">' }}",
    ),
    ("hunyuan-a13b", '格式化为<tool_calls>[{"name": "func_name1"}]</tool_calls>。{{ "助手：" + content }}'),
    ("jamba", "{{ '<|bom|><|assistant|> <tool_calls>[\\n    ' }}"),
    ("olmo-3", "respond with a pythonic function call wrapped in <function_calls></function_calls> XML tags"),
    ("xlam-2", "When using tools, make calls in a single JSON array:"),
    ("granite-20b-fc", "{{- '<function_call> ' + {'name': tc.function.name}|tojson }}"),
    ("internlm-2", '{{- "<|action_start|><|plugin|>\\n" }}'),
    (
        "longcat",
        '<longcat_tool_call>\n{"name": <function-name>, "arguments": <args-dict>}\n</longcat_tool_call>',
    ),
    ("functiongemma", "{{- '<start_function_call>call:' + name + '{' -}}"),
    ("step-3", "{{ '<steptml:invoke name=\"' + name + '\">' }}"),
    ("solar-open-2", "{{ '<|tool_call:start|>' + name }}{{ '<|tool_arg:start|>' + key }}"),
    ("nemotron-nano-2", "{{ '<TOOLCALL>[' }}{{ ']</TOOLCALL>' }}"),
    ("minimax-m2", "{% set begin = '<minimax:tool_call>' %}{{ '<invoke name=\"' + name + '\">' }}"),
    ("seed-oss", "{{ '<seed:tool_call>\\n<function=' + name + '>\\n' }}<parameter=x>"),
    (
        "hunyuan-3",
        "{% set begin = '<tool_calls{}>'.format(HYTK) %}{% set call = '<tool_call{}>'.format(HYTK) %}",
    ),
    ("gigachat-3.1", '{% set function_call = "<|function_call|>" %}'),
    (
        "solar-open",
        "{{ '<|tool_call:begin|>' + id }}{{ '<|tool_call:name|>' + name }}{{ '<|tool_call:args|>' }}",
    ),
    ("command-r", "{{ '\\nAction:\\n```json\\n[\\n' }}"),
    ("apriel", "within <tool_call></tool_call> XML tags {{ '\\n<tool_calls>[' }}"),
]
# Templates that write no calls, or calls of a form that no entry reads.
UNKNOWN = [
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}{% endfor %}",
    "{{ '<start_of_turn>' + role + '\\n' + message.content + '<end_of_turn>\\n' }}",
    "{{ '<|user|>\\n' + message.content + '<|end|>\\n<|assistant|>\\n' }}",
    "{{ '<tool_calls>\\n' + calls + '\\n</tool_calls>' }}",
    "{{- '<|start|>assistant to=' + name -}}{{- '<atem:function_calls>' -}}",
]


def tokenizer(template: str) -> Any:
    return SimpleNamespace(chat_template=template)


@pytest.mark.parametrize(("name", "template"), TEMPLATES)
def test_a_template_has_one_family(name: str, template: str) -> None:
    found = format_for(tokenizer(template))
    assert found is shipped_formats()[name]
    assert [form.name for form in shipped_formats().values() if form.fits(template)] == [name]


def test_every_family_is_found_by_its_template() -> None:
    assert {name for name, _ in TEMPLATES} >= {*shipped_formats()} - {"hermes-line"}


@pytest.mark.parametrize("template", UNKNOWN)
def test_a_template_without_known_calls_has_none(template: str) -> None:
    assert format_for(tokenizer(template)) is None
