"""Guarded `model.generate`: prompts in, texts that keep the policy out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, Unpack, get_args

import torch
from transformers import LogitsProcessorList

from nco_guard.arguments import function
from nco_guard.automata import Cutting
from nco_guard.engines.calls import (
    GenerationResult,
    GuardLike,
    common_vocabulary,
    guards_for,
)
from nco_guard.engines.endings import CUT, Outcome, refuse_broken, settle, verified
from nco_guard.engines.hf.device import DeviceLogitsProcessor, TablesChoice, chosen_tables
from nco_guard.engines.hf.inputs import (
    encode,
    fill_empty_prompts,
    first_token,
    logits_width,
    model_id,
    pad_token_id,
    refuse_right_padding,
)
from nco_guard.engines.hf.kinds import for_transformers
from nco_guard.engines.hf.options import Settings, in_one_place
from nco_guard.engines.hf.parameters import Chat, GenerationOptions, Prompts, StreamOptions
from nco_guard.engines.hf.processor import GuardLogitsProcessor
from nco_guard.engines.hf.rewinding import RewindChoice, RewindingProcessor, put_stop_strings, rewinding_loop
from nco_guard.engines.hf.streamers import HoldingStreamer, TextStream, check_streamer, stopped_by
from nco_guard.engines.recording import Recording, Recordings, begun
from nco_guard.engines.rows import OnStep
from nco_guard.engines.streaming import Generate, in_pieces
from nco_guard.errors import DeadEndError, UnsupportedError
from nco_guard.policy import Rewind
from nco_guard.scan import Report
from nco_guard.session import BoundGuard
from nco_guard.tokens import Binding, Borders, Vocabulary, shared_vocabulary

__all__ = [
    "bind_to_model",
    "generate",
    "generate_ids",
    "stream",
    "stream_run",
]

# How texts of `model.generate` end.
_ENDS = ("eos", "max_length", "stop_strings", "stopping_criteria")


def generate(
    guard: GuardLike,
    /,
    model: Any,
    tokenizer: Any,
    prompts: Prompts,
    *,
    guards: Sequence[GuardLike | None] | None = None,
    skip_special_tokens: bool = True,
    borders: Borders = None,
    regions: Cutting | None = None,
    on_step: OnStep | None = None,
    tables: TablesChoice = "host",
    **options: Unpack[GenerationOptions],
) -> GenerationResult:
    """Generate under a guard, or each prompt under one of its own.

    Guarantee: no text matches a hard rule, whatever the decoding options; what cannot be guaranteed is
    refused before anything is generated.

    Args:
        prompts: a string, a list of strings, a chat (list of messages), a list of chats, a tensor of ids, or the
            mapping that a tokenizer returns. Batches are padded on the left. For encoder-decoder models they are what
            the encoder reads; the text does not continue them, so rules with `context="prompt"` see the output alone.
        guards: one for each prompt, in place of `guard`; None there stands for `guard`. Each text is then as it would
            be if its prompt were generated under its guard alone (as far as the model's own arithmetic does not depend
            on the batch): masks, ends, dead ends, what rules see of the prompt, and the verification are those of its
            guard. Each guard that has an audit sink records its own prompts, as one run.
        skip_special_tokens: how the texts will be decoded; special tokens then add nothing to them.
        borders: how texts will be cut, as `regions`: see `Guard.bind`; reports are then those of `verify` with either.
        on_step: receives a `StepReport` for each step.
        tables: where masks and states live. "host": in memory, found as texts meet them, which waits for the device in
            every step. "device": with the model, all found beforehand (`BoundGuard.device_tables`), without waiting;
            dead ends are then raised once the generation is over. "auto": on the device if that is CUDA, the tables
            fit, and nobody needs the host in every step (`on_step`, an audit, a streamer, rules that read the prompt).
        **options: as for `model.generate`; `GenerationOptions` lists them, and `when_blocked` and `rewind`, which say
            whether a text goes back where the model would complete a match. Processors of yours run before the guard.
            A model's own inputs belong into the mapping of prompts. Generation stops at the tokenizer's end-of-sequence
            token too where the model's own configuration lacks it, since the text ends there.

    Raises `UnsupportedError` for options under which the guarantee would not hold, `TokenizerError` for
    tokenizers that cannot be modelled, `DeadEndError` where no token is left.

    Examples:
        >>> generate(Guard.from_presets("pii"), model, tokenizer, "Write to", max_new_tokens=8).reports[0].ok
        True
    """
    inputs = _encoded(model, tokenizer, prompts, options)
    return generate_ids(
        guard,
        model,
        tokenizer,
        {**inputs, **options},
        guards=guards,
        skip_special_tokens=skip_special_tokens,
        borders=borders,
        regions=regions,
        on_step=on_step,
        tables=tables,
    )


def stream(
    guard: GuardLike,
    /,
    model: Any,
    tokenizer: Any,
    prompt: str | Chat | torch.Tensor | Mapping[str, Any],
    *,
    skip_special_tokens: bool = True,
    borders: Borders = None,
    regions: Cutting | None = None,
    on_step: OnStep | None = None,
    tables: TablesChoice = "host",
    on_result: Callable[[GenerationResult], None] | None = None,
    **options: Unpack[StreamOptions],
) -> Iterator[str]:
    """Like `generate` for one prompt, yielding its text piece by piece while a thread generates.

    What has been yielded is never taken back: a token is shown once the text may end after it. Closing the iterator
    early stops the generation at its next step. `on_result` is given what `generate` returns (ids, why the text ended)
    once the text is over, by the thread that generates, and before the iterator is exhausted.

    The call itself raises what is wrong with the arguments; the iterator, errors of the generation, which it begins.

    Examples:
        >>> guard = Guard.from_presets("pii")
        >>> text = "".join(stream(guard, model, tokenizer, "Write to", max_new_tokens=8))
        >>> guard.verify(text).ok
        True
    """
    own = {
        "skip_special_tokens": skip_special_tokens,
        "borders": borders,
        "regions": regions,
        "on_step": on_step,
        "tables": tables,
    }
    return in_pieces(stream_run(guard, model, tokenizer, prompt, options, on_result, **own))


def stream_run(
    guard: GuardLike,
    model: Any,
    tokenizer: Any,
    prompt: Any,
    options: Mapping[str, Any],
    on_result: Callable[[GenerationResult], None] | None = None,
    **own: Any,
) -> Generate:
    """What a thread runs so that its text can be read as a stream (`engines.streaming`): see `stream`.

    own: what `stream` takes that is no option of a generation.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "guards" in given:
        raise UnsupportedError("guards: a stream has one prompt; call the stream of its own guard")
    inputs = _encoded(model, tokenizer, prompt, given)
    if "streamer" in given or inputs["input_ids"].shape[0] != 1:
        raise UnsupportedError("stream: takes one prompt and no streamer; use generate")
    tables = own.get("tables", "host")
    _, settings, rewinds = _checked(model, {**inputs, **given}, own.get("on_step"), tables)
    settings.refuse_several()
    read = {name: own[name] for name in ("skip_special_tokens", "borders", "regions") if name in own}
    bounds = [bind_to_model(guard, model, tokenizer, settings, **read)]
    rewinds.settings(bounds, settings, streams=True, tables=tables)

    def run(write: Callable[[str], None], left: Event) -> None:
        arguments = stopped_by(left, {**inputs, **given})
        result = generate_ids(guard, model, tokenizer, arguments, on_text=write, **own)
        if on_result is not None:
            on_result(result)

    return run


def _encoded(model: Any, tokenizer: Any, prompts: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The prompts as keyword arguments of `model.generate`; what the options would give once more is refused."""
    inputs = encode(tokenizer, model, prompts)
    if clash := sorted({*inputs, "inputs"} & set(options)):
        raise UnsupportedError(f"{', '.join(clash)}: given by prompts and again as an option")
    return inputs


def generate_ids(
    guard: GuardLike,
    model: Any,
    tokenizer: Any,
    options: Mapping[str, Any],
    *,
    guards: Sequence[GuardLike | None] | None = None,
    skip_special_tokens: bool = True,
    borders: Borders = None,
    regions: Cutting | None = None,
    on_step: OnStep | None = None,
    tables: TablesChoice = "host",
    on_text: Callable[[str], None] | None = None,
) -> GenerationResult:
    """The guarded call itself: keyword arguments of `model.generate` in, trimmed ids out."""
    arguments, settings, choice = _checked(model, options, on_step, tables)
    _put_prompts(arguments, model, tokenizer, settings)
    of_prompts = guards_for(guard, guards, arguments["input_ids"].shape[0])
    bind = partial(
        bind_to_model,
        model=model,
        tokenizer=tokenizer,
        settings=settings,
        skip_special_tokens=skip_special_tokens,
        borders=borders,
        regions=regions,
    )
    rows = _rows_of(of_prompts, arguments, tokenizer, settings, bind)
    _put_ends(arguments, rows, settings, tokenizer)
    streamer = _put_streamer(arguments, rows, on_text)
    recording = _recordings(rows, model_id(model), on_step, settings.drafts)
    finished = False
    try:
        rewinds = choice.settings(rows.bounds, settings, streams=streamer is not None, tables=tables)
        processor = (
            _put_processor(arguments, rows, settings, recording, tables, streams=streamer is not None)
            if rewinds is None
            else _put_loop(arguments, rows, rewinds, recording, settings, tokenizer)
        )
        output = _run(model, arguments, settings.beams)
        if isinstance(processor, DeviceLogitsProcessor):
            processor.check()
        result = _settle_all(rows, output, fills=settings.beams > 1)
        back = None
        if isinstance(processor, RewindingProcessor):
            result, back = replace(result, rewinds=processor.counts), processor.fell_back()
        finished = True
    except Exception as error:
        recording.failed(error)
        raise
    finally:
        # Whoever reads from it in another thread would wait for ever.
        if not finished and streamer is not None:
            streamer.end()
    searched = [rows.vocabulary.searched(ids) for ids in result.token_ids]
    recording.finished(result.outcomes, result.token_ids, result.reports, searched, back)
    refuse_broken(result.reports)
    return result


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that one call generates: `count` of them, as many for each prompt, which has a guard of its own.

    prompt_length: of the rows; what an encoder reads is no part of them, they begin with one start token then, and
    `reads_prompt` is False. max_length: prompt included.
    """

    guards: list[GuardLike]
    bounds: list[BoundGuard]
    count: int
    vocabulary: Vocabulary
    pad: int | None
    prompt_length: int
    max_length: int
    reads_prompt: bool


def _put_prompts(arguments: dict[str, Any], model: Any, tokenizer: Any, settings: Settings) -> None:
    """Put `input_ids` among the arguments, prompts of nothing filled; refused is what cannot be one."""
    input_ids = (
        arguments.pop("inputs", None) if arguments.get("input_ids") is None else arguments["input_ids"]
    )
    if input_ids is None or input_ids.shape[-1] == 0:
        if settings.encoder_decoder:
            raise UnsupportedError("an encoder-decoder model needs a prompt of text, given as input ids")
        input_ids = first_token(model, tokenizer, settings)
        arguments.pop("attention_mask", None)
    arguments["input_ids"] = input_ids
    if not settings.encoder_decoder:
        fill_empty_prompts(arguments, lambda: first_token(model, tokenizer, settings))
        refuse_right_padding(arguments)


def _rows_of(
    guards: list[GuardLike],
    arguments: Mapping[str, Any],
    tokenizer: Any,
    settings: Settings,
    bind: Callable[[GuardLike], BoundGuard],
) -> _Rows:
    """The rows, their guards bound."""
    distinct = list({id(each): each for each in guards}.values())
    bound_of = {id(each): bind(each) for each in distinct}
    bounds = [bound_of[id(each)] for each in guards]
    vocabulary = common_vocabulary(bounds)
    pad = pad_token_id(settings, tokenizer, vocabulary)
    count = len(guards) * settings.sequences
    if count > 1 and pad not in (*vocabulary.special_ids, *vocabulary.eos_ids):
        raise UnsupportedError(
            "several sequences need a pad token that adds no text: set tokenizer.pad_token (for example to "
            "tokenizer.eos_token), or pad_token_id"
        )
    reads_prompt = not settings.encoder_decoder
    prompt_length = arguments["input_ids"].shape[1] if reads_prompt else 1
    max_length = settings.max_length(prompt_length)
    return _Rows(guards, bounds, count, vocabulary, pad, prompt_length, max_length, reads_prompt)


def _put_ends(arguments: dict[str, Any], rows: _Rows, settings: Settings, tokenizer: Any) -> None:
    """Tell `model.generate` where texts end, as the guard sees it."""
    if settings.get("max_new_tokens") is None and settings.get("max_length") is None:
        arguments["max_new_tokens"] = rows.max_length - rows.prompt_length
    if rows.vocabulary.eos_ids:
        arguments["eos_token_id"] = list(rows.vocabulary.eos_ids)
    if rows.pad is not None:
        arguments["pad_token_id"] = rows.pad
    if settings.get("stop_strings") is not None:
        arguments.setdefault("tokenizer", tokenizer)


def _put_streamer(arguments: dict[str, Any], rows: _Rows, on_text: Callable[[str], None] | None) -> Any:
    """The streamer of this call, or None; `model.generate` gets one that shows what may be shown."""
    streamer = TextStream(rows.vocabulary, on_text) if on_text is not None else arguments.get("streamer")
    if streamer is not None:
        if rows.count > 1:
            raise UnsupportedError("streamer: takes one sequence at a time")
        check_streamer(streamer, rows.vocabulary)
        arguments["streamer"] = HoldingStreamer(streamer, rows.bounds[0], reads_prompt=rows.reads_prompt)
    return streamer


def _put_processor(
    arguments: dict[str, Any],
    rows: _Rows,
    settings: Settings,
    recording: Recordings,
    tables: TablesChoice,
    *,
    streams: bool,
) -> GuardLogitsProcessor | DeviceLogitsProcessor:
    """The guard as the last processor of the call."""
    others = list(arguments.get("logits_processor") or ())
    limits: dict[str, Any] = {
        "max_length": rows.max_length,
        # The scores are transformers' own copy unless it keeps them as raw logits, or somebody else holds
        # them; prompt lookup shows one tensor again and again.
        "in_place": not others and not settings.get("output_logits") and not settings.drafts,
        "beams": settings.beams,
        "engine_ends": True,
    }
    device = arguments["input_ids"].device
    wanted = recording.wanted
    on_device = chosen_tables(rows.bounds, device, tables, reports=wanted is not None, streams=streams)
    processor: GuardLogitsProcessor | DeviceLogitsProcessor
    if on_device is None:
        processor = GuardLogitsProcessor(
            rows.bounds,
            **limits,
            reads_prompt=rows.reads_prompt,
            on_step=wanted,
            changes_only=recording.changes_only and not settings.drafts,
            on_forced=_in_the_outcome,
        )
    else:
        processor = DeviceLogitsProcessor(
            rows.bounds[0],
            on_device,
            **limits,
            prompt_length=rows.prompt_length,
            drafts=settings.drafts,
        )
    arguments["logits_processor"] = LogitsProcessorList([*others, processor])
    return processor


def _put_loop(
    arguments: dict[str, Any],
    rows: _Rows,
    rewinds: Sequence[Rewind],
    recording: Recordings,
    settings: Settings,
    tokenizer: Any,
) -> RewindingProcessor:
    """The loop that goes back, in place of transformers' own."""
    put_stop_strings(arguments, settings, tokenizer)
    processor = RewindingProcessor(
        rows.bounds,
        rewinds,
        max_length=rows.max_length,
        reads_prompt=rows.reads_prompt,
        on_step=recording.wanted,
        changes_only=recording.changes_only,
        streamer=arguments.get("streamer"),
    )
    others = arguments.get("logits_processor", ())
    arguments["logits_processor"] = LogitsProcessorList([*others, processor])
    arguments["custom_generate"] = rewinding_loop
    return processor


def _checked(
    model: Any, options: Mapping[str, Any], on_step: OnStep | None, tables: TablesChoice
) -> tuple[dict[str, Any], Settings, RewindChoice]:
    """The options that were given, and how `model.generate` will read them; what cannot be meant is refused."""
    if on_step is not None:
        function("on_step", on_step, "a function that takes a StepReport")
    if tables not in get_args(TablesChoice):
        raise UnsupportedError(f"tables={tables!r}: one of {', '.join(map(repr, get_args(TablesChoice)))}")
    settings = Settings(model, options)
    settings.refuse_unsupported()
    settings.refuse_unknown()
    arguments = for_transformers(options)
    return arguments, settings, RewindChoice.taken(arguments)


def bind_to_model(
    guard: GuardLike,
    model: Any,
    tokenizer: Any,
    settings: Settings | None = None,
    skip_special_tokens: bool = True,
    borders: Borders = None,
    regions: Cutting | None = None,
) -> BoundGuard:
    """The guard bound as a generation with these settings binds it (None: those of the model).

    Errors: `TokenizerError` for a tokenizer that does not fit the model.
    """
    settings = Settings(model, {}) if settings is None else settings
    return guard.bind(
        tokenizer,
        vocab_width=logits_width(model),
        skip_special_tokens=skip_special_tokens,
        eos_token_ids=sorted(settings.eos_token_ids),
        borders=borders,
        regions=regions,
    )


def vocabulary_of(model: Any, tokenizer: Any, settings: Settings, skip_special_tokens: bool) -> Vocabulary:
    """What a generation with these settings reads the tokenizer as, where nothing cuts its texts."""
    ends = sorted(settings.eos_token_ids)
    return shared_vocabulary(tokenizer, Binding.checked(logits_width(model), skip_special_tokens, ends))


def _recordings(rows: _Rows, model: str | None, on_step: OnStep | None, drafts: bool) -> Recordings:
    """A run for each guard, begun."""
    keys = [id(each) for each in rows.guards]
    runs: dict[int, Recording] = {}
    try:
        for key, each, bound in zip(keys, rows.guards, rows.bounds, strict=True):
            if key not in runs:
                own = rows.count * keys.count(key) // len(keys)
                runs[key] = Recording(begun(each.log, bound, own, model, _ENDS), None, drafts)
    except Exception as error:
        for run in runs.values():
            run.failed(error)
        raise
    order = list(runs)
    return Recordings(list(runs.values()), [order.index(key) for key in keys], rows.count, on_step)


def _in_the_outcome(_: str) -> None:
    """A forced token is told by the outcome of its sequence; drafts that are thrown away need not be told."""


def _run(model: Any, arguments: dict[str, Any], beams: int) -> Any:
    try:
        return model.generate(**in_one_place(model, arguments))
    except RuntimeError as error:
        # torch's complaint where fewer candidates are left than beams ask for; it has no type of its own.
        if beams > 1 and "multinomial" in str(error):
            raise DeadEndError("beam sampling: fewer allowed tokens are left than beams ask for") from error
        raise


def _settle_all(generated: _Rows, output: Any, *, fills: bool) -> GenerationResult:
    """Trim every sequence to where it may end, in `output` as well, and verify each text by its guard."""
    guards, bounds, pad = generated.guards, generated.bounds, generated.pad
    begins, limit = generated.prompt_length, generated.max_length - generated.prompt_length
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    places = [number * len(guards) // len(sequences) for number in range(len(sequences))]
    prompts: list[list[int]] = []
    token_ids: list[list[int]] = []
    outcomes: list[Outcome] = []
    for row, place in zip(sequences, places, strict=True):
        prompt = row[:begins].tolist() if generated.reads_prompt else []
        kept, outcome = settle(bounds[place], prompt, row[begins:].tolist(), pad, limit, fills=fills)
        if outcome in CUT and len(sequences) > 1 and pad is not None:
            row[begins + len(kept) :] = pad
        prompts.append(prompt)
        token_ids.append(kept)
        outcomes.append(outcome)
    rows_of: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        rows_of.setdefault(id(guards[place]), []).append(number)
    reports: dict[int, Report] = {}
    for rows in rows_of.values():
        place = places[rows[0]]
        of_rows = [prompts[i] for i in rows], [token_ids[i] for i in rows]
        reports.update(zip(rows, verified(guards[place].verifier, bounds[place], *of_rows), strict=True))
    if len(outcomes) == 1 and outcomes[0] in CUT:
        sequences = sequences[:, : begins + len(token_ids[0])]
        if isinstance(output, torch.Tensor):
            output = sequences
        else:
            output.sequences = sequences
    texts = [generated.vocabulary.text_of(ids) for ids in token_ids]
    return GenerationResult(texts, token_ids, outcomes, [reports[i] for i in range(len(texts))], output)
