"""The verifier: finds in finished text what a policy forbids, and what to do about it.

`Verifier` finds it; `definition` is the slow search that tests compare it with. Redaction and what holds back streams
are made of it, so is what reads files and folders (`files`). Masks, tokenizers and sessions are never involved: a
mistake there cannot hide itself here.
"""

from nco_guard.scan.exposures import exposure
from nco_guard.scan.findings import Exposure, Finding, Report
from nco_guard.scan.holding import StreamVerifier
from nco_guard.scan.redaction import Redaction, redact, require
from nco_guard.scan.replacing import REDACTED, Replacement, default_replacement
from nco_guard.scan.safe_ends import SafeEnds
from nco_guard.scan.streams import FindingStream
from nco_guard.scan.verifier import Verifier, verify

__all__ = [
    "REDACTED",
    "Exposure",
    "Finding",
    "FindingStream",
    "Redaction",
    "Replacement",
    "Report",
    "SafeEnds",
    "StreamVerifier",
    "Verifier",
    "default_replacement",
    "exposure",
    "redact",
    "require",
    "verify",
]
