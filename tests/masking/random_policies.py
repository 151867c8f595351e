"""Random policies and vocabularies for differential tests."""

from __future__ import annotations

import random

import interegular

from nco_guard.automata import Rewriting
from nco_guard.compiler import compile_policy
from nco_guard.errors import PolicyError
from nco_guard.masking import JointTables
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary
from tests.automata import patterns

# Short relatives of what decoders do, in the letters of these tests.
CLEANED = Rewriting(replacements=((b" k", b"k"), (b" 1", b"1"), (b" - ", b"-"), (b" ab", b"ab")))
PIECES = Rewriting(b"bb", CLEANED.replacements[:2])
LETTERS = "aabbkKé1 -_\n"
# Other ways of writing some of them.
EVASIONS = [
    "ß",
    "😀",
    "\u212a",
    "\u200b",
    "*",
    "\u0301",
    "ａ",
    "а",
    "\ufb03",
    "e\u0301",
    "\\",
    "\\u006",
    "1",
    "\\n",
]


def string(rng: random.Random) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 4)))


def folding(rng: random.Random) -> dict[str, object]:
    """Random settings of what counts as the same text; mostly none."""
    options: dict[str, object] = {"case": rng.choice(["exact", "exact", "fold"])}
    if rng.random() < 0.3:
        options["normalize"] = rng.choice(["none", "nfkc"])
        options["ignore"] = tuple(
            rng.sample(
                ["*", "-", "\u200b", "zero-width", "combining", "punctuation", " ", "b"], rng.randint(0, 2)
            )
        )
        options["confusables"] = rng.choice(["none", "letters", "leet"])
        options["json_escapes"] = rng.random() < 0.4
    return options


def rule(rng: random.Random, name: str) -> Rule:
    """A random rule of any kind, hard, soft or monitored."""
    options: dict[str, object] = {}
    kind = rng.random()
    if kind < 0.15:
        options["penalty"] = rng.choice([0.5, 2.0, 16.0])
    elif kind < 0.25:
        options["monitor"] = True
    if rng.random() < 0.2:
        options["context"] = "prompt"
    while True:
        choice = rng.random()
        if choice < 0.5:
            candidate: Rule = StringRule(
                id=name,
                strings=tuple(sorted({string(rng) for _ in range(rng.randint(1, 4))})),
                whole_word=rng.random() < 0.3,
                **folding(rng),
                **options,
            )
        elif choice < 0.6:
            fsm = interegular.parse_pattern(rng.choice(["a(b|k)*1", "[^a]b{2}", "k+1"])).to_fsm()
            return AutomatonRule(id=name, fsm=fsm, **options)
        else:
            pattern, _ = patterns.valid_pattern(rng, 3)
            candidate = RegexRule(id=name, regex=pattern, **folding(rng), **options)
        try:
            compile_policy(Policy(name="probe", rules=(candidate,)))
        except PolicyError:
            continue
        return candidate


def policy(rng: random.Random) -> Policy:
    """One to four random rules."""
    return Policy(name="random", rules=tuple(rule(rng, f"r{i}") for i in range(rng.randint(1, 4))))


def vocabulary(rng: random.Random, *, small: bool = False) -> Vocabulary:
    """Bytes, fragments of characters, words, duplicates, silent and unusable tokens, one or two ends; some decoders
    rewrite.
    """
    text = "".join(rng.choice([*LETTERS, *EVASIONS]) for _ in range(60)).encode()
    tokens = [bytes([b]) for b in (range(256) if not small and rng.random() < 0.3 else sorted(set(text)))]
    for _ in range(rng.randint(5, 10 if small else 60)):
        at = rng.randrange(len(text))
        tokens.append(text[at : at + rng.randint(1, 6)])
    tokens.extend([b"", b"", b"<eos>" if rng.random() < 0.2 else b"", b"", b"x"])
    count = len(tokens)
    return Vocabulary.build(
        tokens,
        eos_ids=[count - 3] if rng.random() < 0.7 else [count - 3, count - 2],
        special_ids=[count - 5, count - 4, count - 3],
        unusable_ids=[count - 1],
        strips_first_space=rng.random() < 0.3,
        rewriting=rng.choice([None, None, None, CLEANED, PIECES]),
    )


def bound(rng: random.Random, *, small: bool = False) -> BoundGuard:
    """A random policy bound to a random vocabulary."""
    return BoundGuard(compile_policy(policy(rng)), vocabulary(rng, small=small))


def rules_completing(tables: JointTables, state: int, token: int) -> tuple[str, ...]:
    """The rules of any mode whose match a token completes."""
    return tables._rules(state, token)[0]
