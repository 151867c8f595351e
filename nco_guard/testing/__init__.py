"""What users' own tests need: toy vocabularies, tiny tokenizers of every family, tiny models that want
forbidden text.

Nothing is downloaded; everything is made on the spot and is the same for the same arguments. torch,
transformers and tokenizers are imported when a function that needs them is called.
"""

from nco_guard.testing.models import biased_model, random_model
from nco_guard.testing.tokenizers import Family, tiny_tokenizer, toy_vocabulary

__all__ = ["Family", "biased_model", "random_model", "tiny_tokenizer", "toy_vocabulary"]
