"""What copying and pickling do to objects that are shared, and to those that must not leave their process.

Objects that enforce a policy never change, so a copy within the process is the object itself. To another process they
travel as the policy and the settings that they were made of, and are made again there. Sinks and keys do not travel:
a record would be written twice or nowhere, and a key would lie in every queue and file that a pickle passes through.
"""

from __future__ import annotations

from typing import Any, NoReturn, Self

from nco_guard.errors import UnsupportedError

__all__ = ["Begun", "Shared", "Staying"]


class Shared:
    """`copy.copy` and `copy.deepcopy` give the object itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self


class Staying(Shared):
    """Copies are the object itself, and pickling raises `UnsupportedError`: what is in it belongs to its process."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UnsupportedError(
            f"a {type(self).__name__} cannot be pickled: sinks, keys and what records belong to their process; make it "
            "anew where it is used"
        )


class Begun:
    """Copying and pickling raise `UnsupportedError`: what follows a text as it grows cannot be in two places of it."""

    __slots__ = ()

    def __copy__(self) -> NoReturn:
        _refuse(self)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> NoReturn:
        _refuse(self)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        _refuse(self)


def _refuse(reader: Begun) -> NoReturn:
    raise UnsupportedError(
        f"a {type(reader).__name__} cannot be copied or pickled: it follows a text as it grows; make another one "
        "where it is used"
    )
