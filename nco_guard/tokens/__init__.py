"""What a model can say: tokenizers read once into plain bytes.

Nothing here imports torch or transformers; tokenizers are recognised by what they offer.
"""

from nco_guard.tokens.binding import Binding
from nco_guard.tokens.prefix_tree import PrefixTree
from nco_guard.tokens.sharing import shared_tree, shared_vocabulary, state_of
from nco_guard.tokens.vocabulary import TextPieces, Vocabulary, read_vocabulary

__all__ = [
    "Binding",
    "PrefixTree",
    "TextPieces",
    "Vocabulary",
    "read_vocabulary",
    "shared_tree",
    "shared_vocabulary",
    "state_of",
]
