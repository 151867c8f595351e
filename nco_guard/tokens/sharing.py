"""Tokenizers are read once: every guard that is bound to one gets the same vocabulary and the same prefix tree.

Tokenizers can be changed while they live: tokens are added, settings switched, decoders replaced. `state_of` is a cheap
sign of all that; what was read goes with it. What is shared is held as long as its tokenizer lives, the newest few
settings of each; trees as long as their vocabulary.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from typing import Any

from nco_guard.storage.store import Store, digest, made_by
from nco_guard.tokens.backend import backend_of
from nco_guard.tokens.binding import Binding
from nco_guard.tokens.prefix_tree import PrefixTree
from nco_guard.tokens.readers import CleanUp
from nco_guard.tokens.vocabulary import Vocabulary, read_vocabulary

__all__ = ["shared_tree", "shared_vocabulary", "state_of", "tokenizer_size"]

_KEPT_SETTINGS = 4

_lock = threading.RLock()
# By the id of the tokenizer, then by its state and the settings it was read with, oldest first.
_read: dict[int, dict[Hashable, Vocabulary]] = {}
# Tokenizers loaded twice give one vocabulary.
_vocabularies: weakref.WeakValueDictionary[str, Vocabulary] = weakref.WeakValueDictionary()
_trees: weakref.WeakKeyDictionary[Vocabulary, PrefixTree] = weakref.WeakKeyDictionary()


def tokenizer_size(tokenizer: Any) -> int:
    """How many tokens a tokenizer has, added ones included; 0 for an object that is none."""
    if hasattr(tokenizer, "__len__"):
        return len(tokenizer)
    backend = backend_of(tokenizer)
    return 0 if backend is None else int(backend.get_vocab_size())


def state_of(tokenizer: Any) -> tuple[Hashable, ...]:
    """What shows that a tokenizer was changed since it was read. Cost: under 0.2 ms.

    Sees added tokens, settings and decoders. Not seen is a model, or an added token's text, that is put in the place of
    another within the same object: load a tokenizer of its own for that.
    """
    backend = backend_of(tokenizer)
    decoder = None if backend is None or backend.decoder is None else bytes(backend.decoder.__getstate__())
    special = getattr(tokenizer, "all_special_ids", ())
    eos = getattr(tokenizer, "eos_token_id", None)
    return (tokenizer_size(tokenizer), decoder, tuple(special), CleanUp.of(tokenizer), repr(eos))


def shared_vocabulary(
    tokenizer: Any,
    binding: Binding = Binding(),  # noqa: B008 (it never changes)
    *,
    store: Store | None = None,
) -> Vocabulary:
    """`read_vocabulary`, once per tokenizer and state. Safe to call from several threads.

    Errors: as `read_vocabulary`.
    """
    key = (state_of(tokenizer), binding)
    with _lock:
        known = _read.get(id(tokenizer), {})
        vocabulary = known.pop(key, None)
        if vocabulary is None:
            fresh = read_vocabulary(tokenizer, binding, store=store)
            vocabulary = _vocabularies.setdefault(fresh.digest, fresh)
            if id(tokenizer) not in _read:
                _read[id(tokenizer)] = known
                # An id may be used again once its object is gone.
                weakref.finalize(tokenizer, _read.pop, id(tokenizer), None)
        known[key] = vocabulary
        while len(known) > _KEPT_SETTINGS:
            del known[next(iter(known))]
    return vocabulary


def shared_tree(vocabulary: Vocabulary, store: Store | None = None) -> PrefixTree:
    """The tokens of a vocabulary that add text and do not end it, as a prefix tree; one for all who ask."""
    with _lock:
        tree = _trees.get(vocabulary)
        if tree is None:
            key = digest(made_by(), vocabulary.digest)
            kept = store.load("tree", key) if store is not None else None
            if kept is not None:
                tree = PrefixTree.from_arrays(kept)
            else:
                outside = {*vocabulary.eos_ids, *vocabulary.unusable_ids}
                ids = [index for index in range(vocabulary.width) if index not in outside]
                tree = PrefixTree(vocabulary.tokens, ids)
                _ = tree.heights_beyond_ascii  # every policy asks for them
                if store is not None:
                    store.save("tree", key, tree.to_arrays())
            _trees[vocabulary] = tree
    return tree
