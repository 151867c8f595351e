"""llguidance and xgrammar behind the interface of the baselines."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.errors import MissingPackageError
from benchmarks.methods.baselines import NCO
from benchmarks.methods.peers import PEERS, LLGuidance, PreparedPeer, XGrammar
from nco_guard.errors import ForbiddenTokenError, PatternError, UnsupportedError
from nco_guard.testing import biased_model, tiny_tokenizer
from nco_guard.tokens import read_vocabulary

STRINGS = ("ass", "fuck", "a.b", "x/y", "café")
PATTERNS = (r"[a-z]+@[a-z]+\.com", r"[0-9]{3}-[0-9]{2}")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    torch.set_num_threads(1)
    return tiny_tokenizer("byte-level")


def installed(name: str) -> Any:
    pytest.importorskip(name)
    return PEERS[name]


def writable(tokenizer: Any) -> np.ndarray:
    """Tokens that add text: what the peers call special they never allow."""
    vocabulary = read_vocabulary(tokenizer)
    return np.array([bool(token) for token in vocabulary.tokens])


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("text", ["", "a clas", "fuc", "caf", "a.", "x", "the end"])
def test_a_peers_masks_of_strings_are_those_of_the_papers_method(
    name: str, text: str, tokenizer: Any
) -> None:
    """llguidance forbids more: special tokens, and tokens that leave UTF-8."""
    ready = installed(name).setup(STRINGS, (), tokenizer)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    ours, theirs = NCO().setup(STRINGS, (), tokenizer).forbidden(ids), ready.forbidden(ids)
    tokens = read_vocabulary(tokenizer).tokens
    compared = writable(tokenizer) & np.array([token.isascii() for token in tokens])
    assert compared.sum() > 200
    assert (ours == theirs)[compared].all()
    assert name == "llguidance" or (ours == theirs).all()
    matcher = ready.matcher()
    for token in ids:
        matcher.advance(token)
    assert (matcher.forbidden() == theirs).all()


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("name", PEERS)
def test_what_is_forbidden_is_never_generated(name: str, sampling: bool, tokenizer: Any) -> None:
    peer = installed(name)
    patterns = PATTERNS if name == "llguidance" else ()
    ready = peer.setup(STRINGS, patterns, tokenizer)
    model = biased_model(tokenizer, ("fuck", "ass ", "jo@enron.com"))
    prompts = tokenizer(["The quick", "a class of", "x"], return_tensors="pt", padding=True)
    prompts.pop("token_type_ids", None)
    torch.manual_seed(0)
    ids = ready.generate(model, **prompts, max_new_tokens=40, do_sample=sampling)
    texts = tokenizer.batch_decode(ids[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True)
    assert any(len(text) > 20 for text in texts)
    for text in texts:
        assert not any(string in text for string in STRINGS)
        assert not any(re.search(pattern, text) for pattern in patterns)


@pytest.mark.parametrize("name", PEERS)
def test_rows_of_a_batch_are_those_of_single_sequences(name: str, tokenizer: Any) -> None:
    ready = installed(name).setup(STRINGS, (), tokenizer)
    assert isinstance(ready, PreparedPeer)
    ready.reserve(3)
    eos = tokenizer.eos_token_id
    rows = [tokenizer(text).input_ids[-3:] for text in ("a clas", "the fuc")]
    processor, width = ready.logits_processor(), ready.width
    ids = torch.tensor([[1, *rows[0][:2]], [1, *rows[1][:2]], [1, *rows[0][:1], eos]])
    for length in (1, 2, 3):
        scores = processor(ids[:, :length], torch.zeros(3, width))
    for row in (0, 1):
        expected = ready.forbidden(ids[row, 1:].tolist())
        assert (torch.isneginf(scores[row]).numpy() == expected).all()
    assert not torch.isneginf(scores[2]).any(), "a row that has ended is left alone"


@pytest.mark.parametrize("name", PEERS)
def test_a_token_that_is_refused_is_an_error(name: str, tokenizer: Any) -> None:
    ready = installed(name).setup(("a",), (), tokenizer)
    token = read_vocabulary(tokenizer).tokens.index(b"a")
    with pytest.raises(ForbiddenTokenError, match=name):
        ready.matcher().advance(token)
    with pytest.raises(UnsupportedError, match="beam"):
        ready.reorder(ready.start(1), torch.tensor([0]))


def test_what_a_peer_cannot_do_is_refused(tokenizer: Any) -> None:
    with pytest.raises(UnsupportedError, match="patterns"):
        installed("xgrammar").setup((), ("a+",), tokenizer)
    with pytest.raises(PatternError, match="llguidance"):
        installed("llguidance").setup((), (r"\bass\b",), tokenizer)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_not_installed_is_named_with_what_brings_it(
    name: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=rf"{name}.*benchmarks/requirements\.txt"):
        PEERS[name].setup(("a",), (), tokenizer)


def test_sizes_are_told_where_the_library_tells_them(tokenizer: Any) -> None:
    assert installed("llguidance").setup(STRINGS, (), tokenizer).nbytes is None
    assert installed("xgrammar").setup(STRINGS, (), tokenizer).nbytes > 0


def test_a_view_of_the_tokenizer_is_used_again(tokenizer: Any) -> None:
    vocabulary = read_vocabulary(tokenizer)
    for kind in (LLGuidance, XGrammar):
        installed(kind.name)
        peer = kind(view=kind.read(tokenizer, vocabulary.width))
        fresh = kind().setup(STRINGS, (), tokenizer)
        reused = peer.setup(STRINGS, (), None, vocabulary=vocabulary)
        assert (fresh.forbidden([]) == reused.forbidden([])).all()
