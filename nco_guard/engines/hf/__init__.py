"""Hugging Face transformers: a logits processor, guarded `generate` and streaming, and guarded pipelines.

Importing this imports torch and transformers. Continuous batching is in `engines.hf.continuous`, which needs a newer
transformers than the rest.
"""

from nco_guard.engines.calls import GenerationResult, GuardLike
from nco_guard.engines.hf.device import DeviceLogitsProcessor
from nco_guard.engines.hf.generation import generate, stream
from nco_guard.engines.hf.parameters import BatchOptions, GenerationOptions, StreamOptions
from nco_guard.engines.hf.pipeline import WrappedPipeline, wrap
from nco_guard.engines.hf.processor import GuardLogitsProcessor
from nco_guard.engines.hf.streamers import TextStream
from nco_guard.engines.rows import StepReport

__all__ = [
    "BatchOptions",
    "DeviceLogitsProcessor",
    "GenerationOptions",
    "GenerationResult",
    "GuardLike",
    "GuardLogitsProcessor",
    "StepReport",
    "StreamOptions",
    "TextStream",
    "WrappedPipeline",
    "generate",
    "stream",
    "wrap",
]
