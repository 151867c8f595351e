"""Search automata over UTF-8 bytes: everything that can be forbidden, in one form.

Start at `automaton` for the interface, `alternating` for regular expressions, `literals` for strings, `rewriting` for
decoders that change text after joining it, `folding` for what rules look past.
"""

from nco_guard.automata.alternating import AlternatingMachine
from nco_guard.automata.automaton import Automaton, CharMachine, ClassAutomaton, Utf8Automaton
from nco_guard.automata.checksum import CHECKSUMS, ChecksumMachine
from nco_guard.automata.folded import FoldedMachine
from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.automata.fsm import FsmMachine
from nco_guard.automata.literals import AhoCorasick
from nco_guard.automata.product import ProductMachine
from nco_guard.automata.rewriting import Rewriting, RewrittenAutomaton

__all__ = [
    "CHECKSUMS",
    "AhoCorasick",
    "AlternatingMachine",
    "Automaton",
    "CharMachine",
    "ChecksumMachine",
    "ClassAutomaton",
    "FoldSpec",
    "FoldedMachine",
    "FsmMachine",
    "ProductMachine",
    "Rewriting",
    "RewrittenAutomaton",
    "Utf8Automaton",
    "fold_text",
]
