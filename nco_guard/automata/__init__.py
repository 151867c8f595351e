"""Search automata over UTF-8 bytes: everything that can be forbidden, in one form.

Start at `automaton` for the interface. `strings` and `patterns` make automata of what rules say, `combine` makes
automata of automata, `spans` finds matches in text. `folding` is what rules look past, `charsets` and `utf8` are what
all of them read characters by.
"""

from nco_guard.automata.automaton import Automaton
from nco_guard.automata.characters import CharMachine, ClassAutomaton
from nco_guard.automata.combine.borders import BORDER, BorderedAutomaton
from nco_guard.automata.combine.call_dialect import DialectValuesAutomaton
from nco_guard.automata.combine.call_json import CallValuesAutomaton
from nco_guard.automata.combine.call_python import PythonValuesAutomaton
from nco_guard.automata.combine.cutting import (
    Cut,
    Cutter,
    Cutting,
    JsonField,
    Region,
    StringMarks,
    UncutText,
    ValuesIn,
)
from nco_guard.automata.combine.json_values import (
    BESIDE_JSON,
    LITERALS,
    JsonValuesAutomaton,
    differs_alone,
    forbids_literals,
)
from nco_guard.automata.combine.product import ProductMachine
from nco_guard.automata.combine.regions import FieldMark, RegionsAutomaton, ReplyFields
from nco_guard.automata.combine.rewriting import Rewriting, RewrittenAutomaton
from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.checksum import ChecksumMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.fsm import FsmMachine
from nco_guard.automata.patterns.sums import CHECKSUMS, AllOf, Checksum, Repeated, Weighted, WholeNumber
from nco_guard.automata.strings.exact import AhoCorasick
from nco_guard.automata.strings.folded import FoldedAhoCorasick, folds_evenly
from nco_guard.automata.strings.substrings import SubstringSearcher
from nco_guard.automata.well_formed import Utf8Automaton

__all__ = [
    "BESIDE_JSON",
    "BORDER",
    "CHECKSUMS",
    "LITERALS",
    "AhoCorasick",
    "AllOf",
    "AlternatingMachine",
    "Automaton",
    "BorderedAutomaton",
    "CallValuesAutomaton",
    "CharMachine",
    "Checksum",
    "ChecksumMachine",
    "ClassAutomaton",
    "Cut",
    "Cutter",
    "Cutting",
    "DialectValuesAutomaton",
    "FieldMark",
    "FoldSpec",
    "FoldedAhoCorasick",
    "FoldedMachine",
    "FsmMachine",
    "JsonField",
    "JsonValuesAutomaton",
    "ProductMachine",
    "PythonValuesAutomaton",
    "Region",
    "RegionsAutomaton",
    "Repeated",
    "ReplyFields",
    "Rewriting",
    "RewrittenAutomaton",
    "StringMarks",
    "SubstringSearcher",
    "UncutText",
    "Utf8Automaton",
    "ValuesIn",
    "Weighted",
    "WholeNumber",
    "differs_alone",
    "fold_text",
    "folds_evenly",
    "forbids_literals",
]
