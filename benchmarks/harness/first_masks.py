"""A process from its start to its first masks, stage by stage: `python first_masks.py FOLDER PRESETS CACHE`.

Nothing of the library, and nothing of the benchmarks, is imported before it is timed: `cache` runs this file by itself.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = (
    "Please write to john.doe@example.com or call (415) 555-0123 before 12/24. The IBAN is DE89 3704 0044 0532 0130 00,"
    " the old key was AKIAIOSFODNN7EXAMPLE, and the server at 192.168.10.7 answers on weekdays; Müller knows the rest. "
    "A class of passengers assessed the cockpit of the Essex, 4111 1111 1111 1112 times."
)


def main(folder: str, presets: str, cache: str) -> None:
    """Time each stage and print it, with a digest of all masks along the text."""
    times: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        started = time.thread_time()
        result = work()
        times[stage] = time.thread_time() - started
        return result

    def libraries() -> Any:
        import nco_guard.session
        import nco_guard.storage.store

        return nco_guard

    library = timed("import_s", libraries)
    from nco_guard.compiler import compile_policy
    from nco_guard.tokens import Binding, shared_tree, shared_vocabulary

    def tokenizer_of() -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))

    tokenizer = timed("tokenizer_s", tokenizer_of)
    end = tokenizer.get_vocab_size() - 1
    store = library.storage.store.Store.chosen(cache or False)
    vocabulary = timed(
        "vocabulary_s", lambda: shared_vocabulary(tokenizer, Binding(eos_token_ids=(end,)), store=store)
    )
    timed("tree_s", lambda: shared_tree(vocabulary, store))
    policy = library.Policy.from_presets(*presets.split(","))
    compiled = timed("compile_s", lambda: compile_policy(policy, store=store))
    bound = timed("bind_s", lambda: library.BoundGuard(compiled, vocabulary, store=store))
    session = bound.session()
    timed("first_mask_s", session.forbidden_ids)
    digest = hashlib.sha256()

    def walk() -> None:
        for token in tokenizer.encode(TEXT, add_special_tokens=False).ids:
            forbidden = session.forbidden_ids()
            digest.update(forbidden.tobytes())
            if token not in forbidden:
                session.advance(token)

    timed("text_s", walk)
    timed("save_s", bound.save)
    print(json.dumps({"times": times, "masks": digest.hexdigest()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
