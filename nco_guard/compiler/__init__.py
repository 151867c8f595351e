"""From a policy to automata: the only bridge between `policy` and `automata`.

Compiling checks everything that can be checked without a tokenizer (dialect, empty matches, stop points), so that a
policy that compiles is a policy that can be enforced. `rules` reads one rule; `constraints` are the automata that masks
are made of, `crowds` those of many rules at once; `policies` puts them together.
"""

from nco_guard.compiler.constraints import UTF8_RULE, Constraint
from nco_guard.compiler.crowds import crowds
from nco_guard.compiler.policies import CompiledPolicy, arrived, compile_policy, compiled_of
from nco_guard.compiler.rules import CompiledRule

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
