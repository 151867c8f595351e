"""Mistakes that newcomers make: each is answered at the call by what is wrong, where, and how to mend it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig, pipeline

import nco_guard
from nco_guard import Guard, Policy, RegexRule, StringRule, errors, verify
from nco_guard.demo import load
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.errors import (
    ArgumentError,
    NCOGuardError,
    PatternError,
    PolicyError,
    TokenizerError,
    UnsupportedError,
)


@dataclass(frozen=True)
class World:
    """What all calls have right but for one thing."""

    guard: Guard
    model: Any
    tokenizer: Any

    def generate(self, prompts: Any = "Write to", **options: Any) -> Any:
        return self.guard.generate(self.model, self.tokenizer, prompts, **{"max_new_tokens": 2, **options})

    def stream(self, prompt: Any = "Write to", **options: Any) -> Any:
        """The call alone: no piece is asked for."""
        return self.guard.stream(self.model, self.tokenizer, prompt, **options)

    def pipe(self) -> Any:
        return pipeline("text-generation", model=self.model, tokenizer=self.tokenizer)


RULE = StringRule(id="word", strings=["codeword"])
POLICY = Policy(name="mistakes", rules=[RULE])
WRONG_ORDER = "model, tokenizer: these are in the wrong order; give the model first"
NO_MODEL = r"model: give a loaded .* as AutoModelForCausalLM\.from_pretrained\(\.\.\.\) returns, not its name"
NO_TOKENIZER = r"tokenizer LlamaForCausalLM .* this is a model; give its tokenizer, as AutoTokenizer"
NO_SINK = r"audit: give a function .*JsonLinesSink\(path\) is, not "
NO_POLICY = "policy must be a Policy, got "
PRESET = NO_POLICY + r"str; for a preset use from_presets\(name\) .* for a file their from_file\(path\)"
NO_PIPE = r'is no pipeline; give a pipeline: transformers\.pipeline\("text-generation"'
NO_RULE = r'rules\[0\]: a rule, as StringRule\(id="mine", strings=\["text"\]\), is needed, not '
LISTED = r"logits_processor: give a list, as logits_processor=\["
LENGTH = "max_tokens: generation has no such option, did you mean 'max_new_tokens'"
WARMTH = "temprature: generation has no such option, did you mean 'temperature'"

# The mistake, what it is answered by, and what that says.
Call = Callable[[World], object]
MISTAKES: list[tuple[str, Call, type[NCOGuardError], str]] = [
    ("swapped", lambda w: w.guard.generate(w.tokenizer, w.model, "x"), UnsupportedError, WRONG_ORDER),
    ("swapped, stream", lambda w: w.guard.stream(w.tokenizer, w.model, "x"), UnsupportedError, WRONG_ORDER),
    (
        "swapped, batch",
        lambda w: generate_batch(w.guard, w.tokenizer, w.model, ["x"]),
        UnsupportedError,
        WRONG_ORDER,
    ),
    (
        "swapped, continuous",
        lambda w: ContinuousBatch(w.guard, w.tokenizer, w.model),
        UnsupportedError,
        WRONG_ORDER,
    ),
    ("a name", lambda w: w.guard.generate("gpt2", w.tokenizer, "x"), UnsupportedError, NO_MODEL),
    ("a name, stream", lambda w: w.guard.stream("gpt2", w.tokenizer, "x"), UnsupportedError, NO_MODEL),
    (
        "a tokenizer's name",
        lambda w: w.guard.generate(w.model, "gpt2", "x"),
        UnsupportedError,
        r"tokenizer: give a loaded .* as AutoTokenizer\.from_pretrained",
    ),
    (
        "a model twice",
        lambda w: w.guard.generate(w.model, w.model, "x"),
        UnsupportedError,
        "tokenizer: this is a model; give its tokenizer",
    ),
    (
        "a pipeline",
        lambda w: w.guard.generate(w.pipe(), w.tokenizer, "x"),
        UnsupportedError,
        r"model: this is a pipeline; use guard\.wrap",
    ),
    (
        "audit as text",
        lambda w: Guard(POLICY, audit="audit.jsonl"),  # type: ignore[arg-type]
        ArgumentError,
        NO_SINK + "str",
    ),
    (
        "audit as path",
        lambda w: Guard.from_presets("pii", audit=Path("audit.jsonl")),  # type: ignore[arg-type]
        ArgumentError,
        NO_SINK,
    ),
    (
        "processor outside a list",
        lambda w: w.model.generate(
            **w.tokenizer("x", return_tensors="pt"), logits_processor=w.guard.logits_processor(w.tokenizer)
        ),
        ArgumentError,
        LISTED,
    ),
    (
        "processor outside a list, guarded",
        lambda w: w.generate(logits_processor=lambda ids, scores: scores),
        UnsupportedError,
        LISTED,
    ),
    (
        "processor outside a list, stream",
        lambda w: w.stream(logits_processor=lambda ids, scores: scores),
        UnsupportedError,
        LISTED,
    ),
    (
        "nothing to verify",
        lambda w: w.guard.verify(None),  # type: ignore[arg-type]
        ArgumentError,
        "text: a str is needed, not NoneType",
    ),
    (
        "bytes to verify",
        lambda w: w.guard.verify(b""),  # type: ignore[arg-type]
        ArgumentError,
        "text: a str is needed, not bytes: decode them first",
    ),
    (
        "policy's name to verify",
        lambda w: verify("pii", "x"),
        ArgumentError,
        r"policy: .* got str; for a preset",
    ),
    (
        "no prompts",
        lambda w: w.generate([]),
        UnsupportedError,
        "prompts: the list is empty; give at least one prompt",
    ),
    ("no prompts, stream", lambda w: w.stream([]), UnsupportedError, "prompts: the list is empty"),
    (
        "no pipeline",
        lambda w: w.guard.wrap(w.model),
        UnsupportedError,
        f"LlamaForCausalLM {NO_PIPE}.*or use guard.generate",
    ),
    ("pipeline's name", lambda w: w.guard.wrap("gpt2"), UnsupportedError, f"str {NO_PIPE}"),
    ("preset as policy", lambda w: Guard("pii"), ArgumentError, PRESET),  # type: ignore[arg-type]
    ("preset as policy, later", lambda w: w.guard.with_policy("pii"), ArgumentError, PRESET),  # type: ignore[arg-type]
    (
        "data as policy",
        lambda w: Guard({"name": "x", "rules": []}),  # type: ignore[arg-type]
        ArgumentError,
        NO_POLICY + r"dict; make one of it: Policy\(\*\*data\)",
    ),
    (
        "rule as policy",
        lambda w: Guard(RULE),  # type: ignore[arg-type]
        ArgumentError,
        NO_POLICY + r"StringRule; .*rules=\[rule\]",
    ),
    (
        "rules as policy",
        lambda w: Guard([RULE]),  # type: ignore[arg-type]
        ArgumentError,
        NO_POLICY + r"list; .*rules=rules\)",
    ),
    (
        "guard as policy",
        lambda w: Guard(w.guard),  # type: ignore[arg-type]
        ArgumentError,
        NO_POLICY + r"Guard; give its \.policy",
    ),
    (
        "text as rule",
        lambda w: w.guard.with_rules("foo"),  # type: ignore[arg-type]
        ArgumentError,
        NO_RULE + "str",
    ),
    (
        "list as rule",
        lambda w: w.guard.with_rules([RULE]),  # type: ignore[arg-type]
        ArgumentError,
        NO_RULE + r"list; give them one by one: with_rules\(\*rules\)",
    ),
    (
        "list as id",
        lambda w: w.guard.without(["word"]),  # type: ignore[arg-type]
        ArgumentError,
        r"rule_ids\[0\]: .* not list; give them one by one: without",
    ),
    (
        "list of presets",
        lambda w: Guard.from_presets(["pii"]),  # type: ignore[arg-type]
        ArgumentError,
        r"names\[0\]: .* not list; give them one by one: from_presets",
    ),
    (
        "preset as rule",
        lambda w: Policy(name="x", rules=["pii"]),  # type: ignore[list-item]
        PolicyError,
        r"rules\[0\].* mapping .* not str; a preset is written as the mapping \{preset: name\}",
    ),
    ("model as tokenizer", lambda w: w.guard.logits_processor(w.model), TokenizerError, NO_TOKENIZER),
    ("model as tokenizer, bound", lambda w: w.guard.bind(w.model), TokenizerError, NO_TOKENIZER),
    (
        "name as tokenizer",
        lambda w: w.guard.bind("gpt2"),
        TokenizerError,
        "tokenizer str: this is a name; give the tokenizer itself, as AutoTokenizer",
    ),
    ("max_tokens, stream", lambda w: w.stream(max_tokens=3), UnsupportedError, LENGTH),
    ("max_tokens", lambda w: w.generate(max_tokens=3), UnsupportedError, LENGTH),
    (
        "max_tokens, continuous",
        lambda w: ContinuousBatch(w.guard, w.model, w.tokenizer, max_tokens=3),
        UnsupportedError,
        LENGTH,
    ),
    ("max_tokens, pipeline", lambda w: w.guard.wrap(w.pipe())("x", max_tokens=3), UnsupportedError, LENGTH),
    ("temprature", lambda w: w.generate(temprature=0.3), UnsupportedError, WARMTH),
    ("temprature, stream", lambda w: w.stream(temprature=0.3), UnsupportedError, WARMTH),
    (
        "stop",
        lambda w: w.generate(stop=["x"]),
        UnsupportedError,
        "stop: generation has no such option, did you mean 'stop_strings'",
    ),
    (
        "an option like no other",
        lambda w: w.stream(zzz=1),
        UnsupportedError,
        r"zzz: .* leave it out .*GenerationConfig",
    ),
    (
        "a text as length, stream",
        lambda w: w.stream(max_new_tokens="3"),
        UnsupportedError,
        "max_new_tokens: a whole",
    ),
    (
        "beams, stream",
        lambda w: w.stream(num_beams=2),
        UnsupportedError,
        "num_beams, .* one sequence; use generate",
    ),
    *(
        (f"tables, {name}", call, UnsupportedError, "tables='gpu': one of 'auto', 'host'")
        for name, call in (
            ("stream", lambda w: w.stream(tables="gpu")),
            ("generate", lambda w: w.generate(tables="gpu")),
            ("going back", lambda w: w.generate(tables="gpu", when_blocked="rewind")),
            ("stream going back", lambda w: w.stream(tables="gpu", when_blocked="rewind")),
        )
    ),
    (
        "insensitive",
        lambda w: RegexRule(id="a", regex="x", case="insensitive"),  # type: ignore[arg-type]
        PolicyError,
        "rule 'a': field 'case': 'exact' or 'fold' is needed, did you mean 'fold'",
    ),
    (
        "insensitive, in a file",
        lambda w: Policy.from_yaml("name: x\nrules:\n- {id: a, strings: [x], case: insensitive}\n"),
        PolicyError,
        r"rule 'a': field 'case': .* did you mean 'fold'\? \(YAML, line 3\)",
    ),
    (
        "upper case",
        lambda w: StringRule(id="a", strings=["x"], normalize="NFKC"),  # type: ignore[arg-type]
        PolicyError,
        "field 'normalize': 'none' or 'nfkc' is needed, did you mean 'nfkc'",
    ),
]

# A regex that was not written raw: what stands there, and what was likely meant.
SLIPS = [("\a", r"\\a"), ("\b", r"\\b"), ("\v", r"\\v"), ("\f", r"\\f")]


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    return load()


@pytest.mark.parametrize(
    ("call", "error", "says"), [rest for _, *rest in MISTAKES], ids=[name for name, *_ in MISTAKES]
)
def test_a_mistake_is_answered_by_what_where_and_how_to_mend_it(
    loaded: tuple[Any, Any], call: Call, error: type[NCOGuardError], says: str
) -> None:
    guard = Guard(POLICY)
    with pytest.raises(error, match=says) as caught:
        call(World(guard, *loaded))
    assert "codeword" not in str(caught.value)
    assert not guard.log.history.runs  # before anything ran


def test_options_that_the_model_takes_are_not_taken_for_slips(loaded: tuple[Any, Any]) -> None:
    world = World(Guard(POLICY), *loaded)
    wanted = world.generate(max_new_tokens=2).texts
    taken = {"logits_to_keep": 1, "use_cache": True, "temprature": None}
    assert world.generate(max_new_tokens=2, **taken).texts == wanted
    assert "".join(world.stream(max_new_tokens=2, **taken)) == wanted[0]
    # A configuration of somebody's own may have more fields.
    own = GenerationConfig(max_new_tokens=2, of_my_own=3)
    options = {"generation_config": own, "max_new_tokens": None, "of_my_own": 4}
    assert world.generate(**options).texts == wanted


def test_every_slip_is_judged_as_transformers_judges_it(loaded: tuple[Any, Any]) -> None:
    """An option is refused as unknown where `model.generate` itself refuses it, and nowhere else."""
    world = World(Guard(POLICY), *loaded)
    ids = world.tokenizer("Write to", return_tensors="pt")
    for name in (
        "output_attentions",
        "position_ids",
        "cache_position",
        "labels",
        "nonsense",
        "decoder_input_ids",
    ):
        try:
            world.model.generate(**ids, max_new_tokens=1, **{name: False})
            refused = False
        except ValueError as error:
            refused = re.search("not used by the model", str(error)) is not None
        except Exception:
            refused = False
        try:
            world.generate(max_new_tokens=1, **{name: False})
            ours = False
        except Exception as error:
            ours = "no such option" in str(error)
        assert ours == refused, name


@pytest.mark.parametrize(("character", "meant"), SLIPS)
@pytest.mark.parametrize("field", ["regex", "stop_at"])
def test_a_regex_that_was_not_written_raw_is_refused_with_the_mend(
    character: str, meant: str, field: str
) -> None:
    fields = {"regex": "codeword", field: f"code{character}word"}
    wanted = rf"rule 'a': field '{field}': .* at position 4: .* {meant} was likely meant.* r\"{meant}\", in YAML single"
    escaped = character.encode("unicode_escape").decode()
    files = (
        lambda: RegexRule(id="a", **fields),
        lambda: Policy.from_yaml(
            f'name: x\nrules:\n- id: a\n  regex: code\n  {field}: "code{escaped}word"\n'
        ),
        lambda: Policy.from_json(json.dumps({"name": "x", "rules": [{"id": "a", **fields}]})),
    )
    for make in files if field == "stop_at" else (files[0], files[2]):
        with pytest.raises(PatternError, match=wanted) as caught:
            make()
        assert "codeword" not in str(caught.value)
        assert caught.value.position == 4
    assert f"\\x{ord(character):02x}" in str(caught.value)  # how to write it, if it is meant


def test_double_quotes_in_a_file_are_answered_by_single_ones() -> None:
    with pytest.raises(PatternError, match=r"backspace .* in YAML single quotes, .*line 4"):
        Policy.from_yaml('name: x\nrules:\n- id: a\n  regex: "\\bfoo\\b"\n')
    for slip in (r"\d+", r"\xZZ", r"\sa"):
        with pytest.raises(PolicyError, match=r"escape .*; put the value between single quotes.* line 4"):
            Policy.from_yaml(f'name: x\nrules:\n- id: a\n  regex: "{slip}"\n')
    policy = Policy.from_yaml("name: x\nrules:\n- id: a\n  regex: '\\bfoo\\b'\n")
    assert [f.start for f in verify(policy, "a foo").findings] == [2]


def test_characters_that_a_regex_may_hold_are_taken() -> None:
    for regex in ("a\tb", "a\r\nb", "(?x) a \n b", r"[\b]", r"\x08\x0c\f\v\a", re.escape("a\f\v\t\nb")):
        assert verify(Policy(name="x", rules=[RegexRule(id="a", regex=regex)]), "").ok
    strings = StringRule(id="a", strings=["a\bb\f"])
    assert not verify(Policy(name="x", rules=[strings]), "a\bb\f").ok


def test_every_error_can_be_imported_from_the_package() -> None:
    """What is raised is caught by names that stand beside `Guard`; no error is forgotten there."""
    kinds = {
        name for name, value in vars(errors).items() if isinstance(value, type) and not name.startswith("_")
    }
    raised = {name for name in kinds if issubclass(getattr(errors, name), Exception)}
    assert raised >= {"NCOGuardError", "ForcedTokenWarning"}
    for name in raised:
        assert getattr(nco_guard, name) is getattr(errors, name)
        assert name in nco_guard.__all__
