"""What a model can say: tokenizers read once into plain bytes.

Nothing here imports torch or transformers; tokenizers are recognised by what they offer.
"""

from nco_guard.tokens.binding import Binding, Borders
from nco_guard.tokens.prefix_tree import PrefixTree
from nco_guard.tokens.sharing import shared_tree, shared_vocabulary, state_of
from nco_guard.tokens.shown_text import ShownText, TextPieces
from nco_guard.tokens.vocabulary import Vocabulary, read_vocabulary

__all__ = [
    "Binding",
    "Borders",
    "PrefixTree",
    "ShownText",
    "TextPieces",
    "Vocabulary",
    "read_vocabulary",
    "shared_tree",
    "shared_vocabulary",
    "state_of",
]
