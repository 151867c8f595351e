"""Reading tokenizers: what each id adds to the text, and what is refused."""

import itertools
import random
import subprocess
import sys
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from transformers import BertTokenizer, T5Tokenizer

from nco_guard.errors import TokenizerError
from nco_guard.testing import tiny_tokenizer, toy_vocabulary
from nco_guard.testing.tokenizers import FAMILIES
from nco_guard.tokens import Binding, TextPieces, Vocabulary, read_vocabulary


def cleaning(tokenizer: Any) -> Any:
    """The tokenizer with `clean_up_tokenization_spaces` really on."""
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    return tokenizer


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("cleanup", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_text_is_what_decode_returns(family: str, cleanup: bool, skip: bool) -> None:
    """Random sequences of ids decode to `text_of`, wherever their bytes are valid UTF-8."""
    tokenizer = tiny_tokenizer(family)
    if cleanup:
        tokenizer = cleaning(tokenizer)
        added = ["n't", "?", ".", "'", "re"]
        tokenizer.add_tokens([*added, " .", " '", " , '", " '  've"] if "byte" in family else added)
    tokenizer.add_tokens(["plain added", "ümlaut\n", "<0x4g>"])
    tokenizer.add_tokens(
        [AddedToken("sp a", special=True, normalized=True), AddedToken("kept as is", normalized=False)]
    )
    vocabulary = read_vocabulary(tokenizer, Binding(skip_special_tokens=skip))
    source, compared = random.Random(0), 0
    ids = [token for token in range(len(tokenizer)) if token not in vocabulary.eos_ids]
    for _ in range(3000):
        sample = source.choices(ids, k=source.randint(1, 6))
        text = vocabulary.text_of(sample)
        if "\ufffd" not in text:
            compared += 1
            assert text == tokenizer.decode(sample, skip_special_tokens=skip)
    assert compared > 300


@pytest.mark.parametrize("family", FAMILIES)
def test_encoded_text_comes_back(family: str) -> None:
    """Text goes through encode and `text_of` unharmed, first space and split characters included."""
    tokenizer = tiny_tokenizer(family)
    vocabulary = read_vocabulary(tokenizer)
    texts = ["the class", "john@enron.com went", "a"]
    if family == "wordpiece":
        texts = ["the class", "john@enron.com went", "a"]
    elif family != "unigram":
        texts += ["  two spaces\n\ttab", "ΑΩ 中文 😀 é\u0301"]
    for text in texts:
        assert vocabulary.text_of(tokenizer(text, add_special_tokens=False).input_ids) == text


def test_byte_level_tokens_need_not_be_valid_utf8() -> None:
    vocabulary = read_vocabulary(tiny_tokenizer("byte-level"))
    assert {bytes([byte]) for byte in range(256)} <= set(vocabulary.tokens)


def test_byte_fallback_tokens_are_bytes_and_join() -> None:
    tokenizer = tiny_tokenizer("byte-fallback")
    vocabulary = read_vocabulary(tokenizer)
    a, b = (tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in b"ab")
    assert vocabulary.text_of([a, b]) == "ab" == tokenizer.decode([a, b])
    assert vocabulary.strips_first_space


def test_added_tokens_decode_as_decode_does_it() -> None:
    """Under a byte-level decoder an added token is read through the byte alphabet only if all of it fits."""
    tokenizer = tiny_tokenizer("byte-level")
    tokenizer.add_tokens([AddedToken("Ġ世"), AddedToken("ĠxyzĠ"), AddedToken("a b")])
    vocabulary = read_vocabulary(tokenizer)
    tokens = [vocabulary.tokens[tokenizer.convert_tokens_to_ids(text)] for text in ("Ġ世", "ĠxyzĠ", "a b")]
    assert tokens == ["Ġ世".encode(), b" xyz ", b"a b"]


def test_special_tokens_are_nothing_or_their_text() -> None:
    tokenizer = tiny_tokenizer()
    special = tokenizer.convert_tokens_to_ids("<s>")
    skipped, kept = (read_vocabulary(tokenizer, Binding(skip_special_tokens=skip)) for skip in (True, False))
    assert (skipped.tokens[special], kept.tokens[special]) == (b"", b"<s>")
    assert special in skipped.special_ids
    assert special not in skipped.unusable_ids
    assert skipped.digest != kept.digest


def test_text_ends_at_the_first_end_of_sequence() -> None:
    tokenizer = tiny_tokenizer()
    vocabulary = read_vocabulary(tokenizer)
    ids = tokenizer("the fox", add_special_tokens=False).input_ids
    end = tokenizer.eos_token_id
    assert vocabulary.text_of([*ids, end, *ids]) == "the fox"
    assert vocabulary.until_end([*ids, end, end]) == [*ids, end]


def test_an_end_of_sequence_that_is_not_special_adds_its_text() -> None:
    tokenizer = tiny_tokenizer()
    token = tokenizer("!", add_special_tokens=False).input_ids
    vocabulary = read_vocabulary(tokenizer, Binding(eos_token_ids=tuple(token)))
    assert vocabulary.eos_ids == tuple(sorted([tokenizer.eos_token_id, *token]))
    assert vocabulary.text_of([*token, *token]) == "!"


def test_padding_columns_and_holes_are_unusable() -> None:
    tokenizer = tiny_tokenizer()
    vocabulary = read_vocabulary(tokenizer, Binding(vocab_width=len(tokenizer) + 3))
    assert vocabulary.width == len(vocabulary.tokens) == len(tokenizer) + 3
    assert vocabulary.unusable_ids == tuple(range(len(tokenizer), len(tokenizer) + 3))
    raw = Tokenizer(models.BPE(vocab={"a": 0, "b": 4}, merges=[]))
    raw.decoder = decoders.ByteLevel()
    assert read_vocabulary(raw).unusable_ids == (1, 2, 3)


def test_a_raw_tokenizer_reads_like_its_wrapper() -> None:
    tokenizer = tiny_tokenizer()
    raw = read_vocabulary(tokenizer.backend_tokenizer, Binding(eos_token_ids=(tokenizer.eos_token_id,)))
    assert raw == read_vocabulary(tokenizer)
    assert raw.digest == read_vocabulary(tokenizer).digest


def test_the_digest_is_the_same_in_another_process() -> None:
    code = "from nco_guard.testing import toy_vocabulary as t; print(t(['fu', 'ck']).digest)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == toy_vocabulary(["fu", "ck"]).digest
    assert toy_vocabulary(["fuc", "k"]).digest != toy_vocabulary(["fu", "ck"]).digest


def test_reading_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, nco_guard.tokens, nco_guard.testing; nco_guard.testing.toy_vocabulary();"
        "assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _broken(change: str) -> object:
    tokenizer = tiny_tokenizer("wordpiece" if "pieces" in change else "byte-fallback")
    backend = tokenizer.backend_tokenizer
    if change == "own cleanup":
        tokenizer = cleaning(tokenizer)
        tokenizer.clean_up_tokenization = str.strip
    elif change == "irregular pieces":
        tokenizer.add_tokens(["do not"])
    elif change == "pieces without a prefix":
        backend.decoder = decoders.WordPiece(prefix="")
    elif change == "no decoder":
        backend.decoder = None
    elif change == "strip without fuse":
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)])
    elif change == "regex":
        backend.decoder = decoders.Sequence([decoders.Replace(Regex("▁+"), " "), decoders.Fuse()])
    elif change == "suffix":
        backend.decoder = decoders.BPEDecoder()
    elif change == "ctc":
        backend.decoder = decoders.CTC()
    elif change.startswith("metaspace"):
        tokenizer.add_tokens([" x" if "space in front" in change else "x▁y"])
        backend.decoder = decoders.Metaspace()
    elif change == "word level":
        backend.model = models.WordLevel({"a": 0}, unk_token="a")
    return tokenizer


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("own cleanup", "clean_up_tokenization_spaces = False"),
        ("irregular pieces", "'do not'"),
        ("pieces without a prefix", "prefix"),
        ("no decoder", "no decoder"),
        ("strip without fuse", "Strip"),
        ("regex", "regular expression"),
        ("suffix", "BPEDecoder"),
        ("ctc", "CTC"),
        ("metaspace", "Metaspace"),
        ("metaspace, space in front", "space"),
        ("word level", "WordLevel"),
    ],
)
def test_what_cannot_be_modelled_is_refused_by_name(change: str, words: str) -> None:
    with pytest.raises(TokenizerError, match=words):
        read_vocabulary(_broken(change))


def test_wordpieces_read_as_decode_reads_them_first_and_later() -> None:
    """The first token keeps its `##` and gets no space; a later one loses the former and gets the latter."""
    vocab = {"[UNK]": 0, "a": 1, "##b": 2, ".": 3, "'s": 4, "##": 5, "##.": 6, "é": 7}
    for cleanup in (True, False):
        raw = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
        raw.decoder = decoders.WordPiece(cleanup=cleanup)
        vocabulary = read_vocabulary(raw)
        assert vocabulary.family == "wordpiece"
        for length in range(5):
            for ids in itertools.product(range(len(vocab)), repeat=length):
                assert vocabulary.text_of(ids) == raw.decode(list(ids))
    assert vocabulary.text_of([2, 2, 1]) == "##bb a"


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("cleanup", [False, True])
@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_tokenizer_classes_of_transformers_are_read_like_their_families(
    kind: str, cleanup: bool, skip: bool
) -> None:
    tokenizer: Any
    if kind == "bert":
        pieces = [*"abcdefst.,'?!", "n't", "the", "fox", *(f"##{letter}" for letter in "abcdefst.'")]
        named = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
        tokenizer = BertTokenizer(vocab={piece: index for index, piece in enumerate(named)})
    else:
        scored = ["▁the", "▁fox", *"abcdefst.,'?!▁", "n't"]
        tokenizer = T5Tokenizer(vocab=[(piece, -3.0) for piece in ("<pad>", "</s>", "<unk>", *scored)])
    tokenizer.clean_up_tokenization_spaces = cleanup
    vocabulary = read_vocabulary(tokenizer, Binding(skip_special_tokens=skip))
    assert vocabulary.family == {"bert": "wordpiece", "t5": "unigram"}[kind]
    outside = {*vocabulary.eos_ids, *vocabulary.unusable_ids}
    ids, source = [index for index in range(vocabulary.width) if index not in outside], random.Random(4)
    for _ in range(1500):
        sample = source.choices(ids, k=source.randint(1, 8))
        assert vocabulary.text_of(sample) == tokenizer.decode(sample, skip_special_tokens=skip)


def test_the_cleanup_of_decode_is_part_of_the_digest() -> None:
    tokenizer = tiny_tokenizer("unigram")
    plain = read_vocabulary(tokenizer)
    assert read_vocabulary(cleaning(tokenizer)).digest != plain.digest
    assert plain.rewriting is None


def settled(vocabulary: Vocabulary, ids: list[int]) -> str:
    """The definition: what `text_of` says of the bytes that are certain, but for what may be half a character."""
    if vocabulary.rewriting is None:
        return vocabulary.text_of(ids).rstrip("\ufffd")
    state, parts = vocabulary.rewriting.begin(fresh=True), []
    for byte in vocabulary.raw_bytes(ids):
        state, part = vocabulary.rewriting.step(state, byte)
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace").rstrip("\ufffd")


@pytest.mark.parametrize("cleans", [False, True])
@pytest.mark.parametrize("family", [*FAMILIES, "toy"])
def test_pieces_of_text_are_what_is_certain_and_never_taken_back(family: str, cleans: bool) -> None:
    if family == "toy":
        vocabulary = toy_vocabulary([" a", "é", b"\xe2\x82", b"\xac!"] * 30, strips_first_space=cleans)
    else:
        tokenizer = tiny_tokenizer(family)
        vocabulary = read_vocabulary(cleaning(tokenizer) if cleans else tokenizer)
    source = random.Random(3)
    for _ in range(300):
        sample = source.choices(range(vocabulary.width), k=12)
        pieces, shown, position = TextPieces(vocabulary), "", 0
        while position < len(sample):
            size = source.choice([0, 1, 1, 1, 2, 5])
            shown += pieces.feed(sample[position : position + size])
            position += size
            assert shown == settled(vocabulary, vocabulary.until_end(sample[:position]))
        assert shown + pieces.finish() == vocabulary.text_of(sample)
        assert (pieces.feed(sample), pieces.finish()) == ("", "")


def test_the_work_of_a_piece_does_not_grow_with_the_text_before_it() -> None:
    vocabulary = read_vocabulary(tiny_tokenizer())
    pieces = TextPieces(vocabulary)
    read = 0

    class Counted(tuple[bytes, ...]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal read
            read += 1
            return super().__getitem__(index)

    object.__setattr__(vocabulary, "tokens", Counted(vocabulary.tokens))
    token = next(i for i, data in enumerate(vocabulary.tokens) if data == b"a")
    assert "".join(pieces.feed([token]) for _ in range(500)) == "a" * 500
    assert read == 500


def test_widths_and_ends_that_do_not_fit_are_refused() -> None:
    tokenizer = tiny_tokenizer()
    with pytest.raises(TokenizerError, match="columns"):
        read_vocabulary(tokenizer, Binding(vocab_width=len(tokenizer) - 1))
    with pytest.raises(TokenizerError, match="eos_ids"):
        read_vocabulary(tokenizer, Binding(eos_token_ids=(len(tokenizer),)))
    with pytest.raises(TokenizerError, match="no token"):
        read_vocabulary(tokenizer, Binding(eos_token_ids=(len(tokenizer),), vocab_width=len(tokenizer) + 1))
    with pytest.raises(TokenizerError, match=r"no tokenizer; give one that is loaded"):
        read_vocabulary(object())
    with pytest.raises(TokenizerError, match=r"no tokenizers\.Tokenizer"):
        read_vocabulary(str.split)  # callable, as a slow tokenizer is


def test_a_cleanup_that_decode_ignores_is_accepted() -> None:
    """Llama-3 ships with the flag on; decode() ignores it for BPE models."""
    tokenizer = tiny_tokenizer("byte-level")
    expected = read_vocabulary(tokenizer)
    tokenizer.clean_up_tokenization_spaces = True
    assert read_vocabulary(tokenizer) == expected


def test_a_decode_that_disagrees_is_refused_with_the_ids() -> None:
    class Shouting:
        def __init__(self) -> None:
            self.backend_tokenizer = tiny_tokenizer().backend_tokenizer

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            return str(self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)).upper()

    with pytest.raises(TokenizerError, match=r"ids \["):
        read_vocabulary(Shouting())


def test_decoders_without_strip_keep_the_first_space() -> None:
    """Gemma's decoder: byte fallback, nothing stripped."""
    tokenizer = tiny_tokenizer("byte-fallback")
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    vocabulary = read_vocabulary(tokenizer)
    assert not vocabulary.strips_first_space
    assert vocabulary.text_of(tokenizer("the", add_special_tokens=False).input_ids) == " the"


def test_parts_are_checked() -> None:
    with pytest.raises(TokenizerError, match="special_ids"):
        Vocabulary.build([b"a"], special_ids=[1])
