"""Toy vocabularies, and tiny tokenizers of every family, trained on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

from nco_guard.arguments import choice, whole
from nco_guard.errors import MissingExtraError
from nco_guard.tokens import Vocabulary

__all__ = ["FAMILIES", "Family", "tiny_tokenizer", "toy_vocabulary"]

Family = Literal["byte-level", "byte-fallback", "unigram", "wordpiece"]
"""Kinds of tokenizer, by how a token becomes text."""
FAMILIES: tuple[Family, ...] = get_args(Family)

_TEXTS = (
    "The quick brown fox jumps over the lazy dog. A class of passengers, an analysis, a document.",
    "Write to john@enron.com or call 555-123-4567; the code is 078-05-1120.\n\tÜber, café, 日本, 😀!",
    "what the fuck is this, you ass? Nothing, he said, and went away to the assembly of Scunthorpe.",
)
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def toy_vocabulary(
    merges: Iterable[str | bytes] = (),
    *,
    special_tokens: int = 1,
    strips_first_space: bool = False,
    padding: int = 0,
) -> Vocabulary:
    """All 256 single bytes (id = byte), then `merges`, then `special_tokens` skipped ones, then one
    end-of-sequence.

    `padding` adds that many unusable columns. Needs no other package.

    Examples:
        >>> vocabulary = toy_vocabulary(["fu", "ck"])
        >>> vocabulary.tokens[256:258], vocabulary.eos_ids
        ((b'fu', b'ck'), (259,))
    """
    special_tokens = whole("special_tokens", special_tokens, "give how many there are", least=0)
    padding = whole("padding", padding, "give how many columns there are", least=0)
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [merge.encode() if isinstance(merge, str) else merge for merge in merges]
    first_special = len(tokens)
    eos = first_special + special_tokens
    tokens += [b""] * (special_tokens + 1 + padding)
    return Vocabulary.build(
        tokens,
        eos_ids=[eos],
        special_ids=range(first_special, eos + 1),
        unusable_ids=range(eos + 1, len(tokens)),
        strips_first_space=strips_first_space,
        family="toy",
    )


def tiny_tokenizer(
    family: Family = "byte-level",
    texts: Sequence[str] = _TEXTS,
    vocab_size: int = 400,
    special_tokens: Sequence[str] = ("<s>",),
) -> Any:
    """A small `transformers.PreTrainedTokenizerFast`, trained on `texts`; pads on the left and has a chat
    template.

    Its end of sequence is `</s>`, its pad `<pad>`, both special, beside `<unk>` and `special_tokens`.
    "byte-level" and "byte-fallback" can write every byte. The same texts give the same tokens in every process.
    `vocab_size` is an upper bound of what is learnt; byte-fallback has 256 byte tokens on top of it. Raises
    `MissingExtraError` without the extra `hf`, `ArgumentValueError` for another family.

    Examples:
        >>> small = tiny_tokenizer("byte-level")
        >>> small.decode(small("a class").input_ids)
        'a class'
    """
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError("nco_guard.testing.tiny_tokenizer", "hf") from error

    choice("family", family, tuple(_TRAINED))
    specials = [*dict.fromkeys(["<unk>", *special_tokens, "</s>", "<pad>"])]
    settings = {"vocab_size": vocab_size, "special_tokens": specials, "show_progress": False}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_TRAINED[family](texts, settings),
        unk_token="<unk>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def _byte_level(texts: Sequence[str], settings: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw.train_from_iterator(texts, trainers.BpeTrainer(initial_alphabet=alphabet, **settings))
    return raw


def _byte_fallback(texts: Sequence[str], settings: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    raw.train_from_iterator(texts, trainers.BpeTrainer(limit_alphabet=60, **settings))
    state = json.loads(raw.to_str())
    vocab: dict[str, int] = state["model"]["vocab"]
    for byte in range(256):
        vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
    state["model"]["byte_fallback"] = True
    raw = Tokenizer.from_str(json.dumps(state))
    raw.pre_tokenizer = None
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return raw


def _unigram(texts: Sequence[str], settings: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    raw = Tokenizer(models.Unigram())
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    raw.train_from_iterator(texts, trainers.UnigramTrainer(unk_token="<unk>", **settings))
    # Training numbers tokens of equal scores as they come: put in order, a tokenizer is the same in every process.
    state = json.loads(raw.to_str())
    vocab: list[tuple[str, float]] = state["model"]["vocab"]
    special = len(settings["special_tokens"])
    scored = sorted(((piece, round(score, 3)) for piece, score in vocab[special:]), key=_by_score)
    state["model"]["vocab"] = [*vocab[:special], *scored]
    return Tokenizer.from_str(json.dumps(state))


def _by_score(scored: tuple[str, float]) -> tuple[float, str]:
    return -scored[1], scored[0]


def _wordpiece(texts: Sequence[str], settings: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    # Training of words' pieces differs from process to process, that of pairs does not.
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special: list[str] = settings["special_tokens"]
    halved = settings | {"vocab_size": len(special) + (settings["vocab_size"] - len(special)) // 2}
    trained.train_from_iterator(texts, trainers.BpeTrainer(**halved))
    pieces = [piece for piece, _ in sorted(trained.get_vocab().items(), key=lambda entry: entry[1])]
    pieces += [f"##{piece}" for piece in pieces[len(special) :]]
    raw = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token="<unk>"))
    raw.add_special_tokens(special)
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.decoder = decoders.WordPiece()
    return raw


_TRAINED: dict[str, Callable[[Sequence[str], dict[str, Any]], Any]] = {
    "byte-level": _byte_level,
    "byte-fallback": _byte_fallback,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
}
