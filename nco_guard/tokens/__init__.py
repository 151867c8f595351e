"""What a model can say: tokenizers read once into plain bytes.

Nothing here imports torch or transformers; tokenizers are recognised by what they offer.
"""

from nco_guard.tokens.vocabulary import Vocabulary, read_vocabulary

__all__ = ["Vocabulary", "read_vocabulary"]
