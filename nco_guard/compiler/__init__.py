"""From a policy to automata: the only bridge between `policy` and `automata`.

Compiling checks everything that can be checked without a tokenizer (dialect, empty matches, stop points), so that a
policy that compiles is a policy that can be enforced. `compiled_rule` reads one rule; `constraints` are the automata
that masks are made of, `crowds` those of many rules at once; `compiled_policy` puts them together.
"""

from nco_guard.compiler.compiled_policy import CompiledPolicy, arrived, compile_policy, compiled_of
from nco_guard.compiler.compiled_rule import CompiledRule
from nco_guard.compiler.constraints import UTF8_RULE, Constraint
from nco_guard.compiler.crowds import crowds

__all__ = [
    "UTF8_RULE",
    "CompiledPolicy",
    "CompiledRule",
    "Constraint",
    "arrived",
    "compile_policy",
    "compiled_of",
    "crowds",
]
