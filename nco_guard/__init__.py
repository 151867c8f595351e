"""nco-guard: a language model unable to write what its owner forbids.

    from nco_guard import Guard
    guard = Guard.from_presets("pii", "ldnoobw")
    result = guard.generate(model, tokenizer, "Write to", max_new_tokens=64)

Importing this package imports neither torch nor transformers.
"""

from nco_guard.arguments import OnMatch
from nco_guard.errors import (
    ArgumentError,
    ArgumentValueError,
    AuditError,
    CacheError,
    ClosedError,
    ContradictionError,
    DeadEndError,
    ForbiddenTokenError,
    ForcedTokenWarning,
    GenerationError,
    InputError,
    MissingExtraError,
    NCOGuardError,
    PatternError,
    PolicyError,
    PresetError,
    RedactionError,
    ShapeError,
    ShapeLimitError,
    StateLimitError,
    TokenizerError,
    UnsupportedError,
    ViolationError,
)
from nco_guard.guard import Guard
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rewind, StringRule, presets
from nco_guard.scan import Exposure, Finding, Report, Verifier, redact, verify
from nco_guard.session import BoundGuard, Session
from nco_guard.shapes import Shape

__all__ = [
    "ArgumentError",
    "ArgumentValueError",
    "AuditError",
    "AutomatonRule",
    "BoundGuard",
    "CacheError",
    "ClosedError",
    "ContradictionError",
    "DeadEndError",
    "Exposure",
    "Finding",
    "ForbiddenTokenError",
    "ForcedTokenWarning",
    "GenerationError",
    "Guard",
    "InputError",
    "MissingExtraError",
    "NCOGuardError",
    "OnMatch",
    "PatternError",
    "Policy",
    "PolicyError",
    "PresetError",
    "RedactionError",
    "RegexRule",
    "Report",
    "Rewind",
    "Session",
    "Shape",
    "ShapeError",
    "ShapeLimitError",
    "StateLimitError",
    "StringRule",
    "TokenizerError",
    "UnsupportedError",
    "Verifier",
    "ViolationError",
    "presets",
    "redact",
    "verify",
]

__version__ = "0.2.0.dev0"
