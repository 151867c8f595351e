"""Search automata over UTF-8 bytes: everything that can be forbidden, in one form.

Start at `automaton` for the interface, `alternating` for regular expressions, `literals` and
`folded_literals` for strings, `rewriting` for
decoders that change text after joining it, `folding` for what rules look past.
"""

from nco_guard.automata.alternating import AlternatingMachine
from nco_guard.automata.automaton import Automaton, CharMachine, ClassAutomaton, Utf8Automaton
from nco_guard.automata.checksum import CHECKSUMS, ChecksumMachine
from nco_guard.automata.folded import FoldedMachine
from nco_guard.automata.folded_literals import FoldedAhoCorasick, folds_evenly
from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.automata.fsm import FsmMachine
from nco_guard.automata.literals import AhoCorasick
from nco_guard.automata.product import ProductMachine
from nco_guard.automata.rewriting import Rewriting, RewrittenAutomaton
from nco_guard.automata.substrings import SubstringSearcher

__all__ = [
    "CHECKSUMS",
    "AhoCorasick",
    "AlternatingMachine",
    "Automaton",
    "CharMachine",
    "ChecksumMachine",
    "ClassAutomaton",
    "FoldSpec",
    "FoldedAhoCorasick",
    "FoldedMachine",
    "FsmMachine",
    "ProductMachine",
    "Rewriting",
    "RewrittenAutomaton",
    "SubstringSearcher",
    "Utf8Automaton",
    "fold_text",
    "folds_evenly",
]
