"""The verifier at scale: the findings of `nco_guard.verify`, in bulk.

`Verifier` is the fast form; `nco_guard.verify.verify` is the definition that tests compare it with. Files, folders and
reports are made of it. Masks, tokenizers and sessions are never involved.
"""

from nco_guard.scan.verifier import FindingStream, Verifier

__all__ = ["FindingStream", "Verifier"]
