"""Errors of the benchmarks' own."""

from __future__ import annotations

from nco_guard.errors import NCOGuardError

__all__ = ["MissingPackageError"]


class MissingPackageError(NCOGuardError, ImportError):
    """Something that is measured, or measured with, is not installed; `package` names it."""

    def __init__(self, feature: str, package: str, install: str = "-r benchmarks/requirements.txt") -> None:
        super().__init__(f"{feature} needs {package}: pip install {install}")
        self.package = package
