"""Whether a folder is one's own: what others may read gives away what it holds, what they may write is not to be
believed.

POSIX only. On Windows access is ruled by lists that Python does not read: there nothing is objected to, and the folders
of a user's profile are private by default.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["objection", "readable_by_us_alone"]

_ROOT: Final = 0
_LINKS: Final = 40


def objection(folder: str | os.PathLike[str]) -> str | None:
    """Why a folder cannot be trusted, with the mend; None if it can, or if it is not there and could be made safely.

    It must be a folder of this process's user that nobody else may open, and nobody but this user and root may be able
    to put another in its place: that holds of each folder above it, and of where a symbolic link on the way stands.
    Raises `OSError` where that cannot be found out. Cost: a system call for each part of the path.
    """
    if not hasattr(os, "geteuid"):
        return None
    return _walked(Path.cwd() / folder)


def readable_by_us_alone(about: os.stat_result) -> bool:
    """Whether an open file is a regular one of this user, which nobody else can change."""
    if not hasattr(os, "geteuid"):
        return stat.S_ISREG(about.st_mode)
    return (
        stat.S_ISREG(about.st_mode)
        and about.st_uid == os.geteuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _walked(path: Path) -> str | None:
    """From the root of the file system down: no part of `here` is ever a link, so that `..` is what it says."""
    here, parts, links = Path(path.anchor), list(path.parts[1:]), 0
    about = here.lstat()
    while parts:
        if found := _swappable(here, about):
            return found
        part = parts.pop(0)
        place = here.parent if part == ".." else here / part
        try:
            about = place.lstat()
        except FileNotFoundError:
            return None  # the rest is made by us, for us alone
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if links > _LINKS:
                return f"{place} leads nowhere: too many symbolic links; name another folder"
            # In a folder with the sticky bit anybody may place a link; elsewhere the folder's owner did.
            if about.st_uid not in (_ROOT, os.geteuid()):
                return f"{place} is a symbolic link of somebody else; name a folder of your own"
            target = Path(os.readlink(place))
            parts = [*(target.parts[1:] if target.is_absolute() else target.parts), *parts]
            here = Path(target.anchor) if target.is_absolute() else here
            about = here.lstat()
            continue
        here = place
        if not stat.S_ISDIR(about.st_mode):
            return None  # nothing can be kept there at all
    return _not_private(here, about)


def _not_private(folder: Path, about: os.stat_result) -> str | None:
    if about.st_uid != os.geteuid():
        return (
            f"{folder} belongs to somebody else (user {about.st_uid}), who can change what is kept there; name a "
            "folder of your own"
        )
    mode = stat.S_IMODE(about.st_mode)
    if mode & 0o077:
        return (
            f"{folder} is open to others (mode {mode:03o}): who reads it learns what policies forbid, and who writes "
            f"to it can change masks. If nobody else wrote to it, chmod 700 {folder}; else remove it"
        )
    return None


def _swappable(folder: Path, about: os.stat_result) -> str | None:
    """What lies in this folder could be replaced by somebody who is neither root nor we."""
    if about.st_uid not in (_ROOT, os.geteuid()):
        return (
            f"{folder}, above it, belongs to somebody else (user {about.st_uid}), who can replace what lies there; "
            "name a folder of your own"
        )
    if about.st_mode & stat.S_ISVTX:
        return None  # only owners can remove or rename what is theirs
    others = about.st_mode & stat.S_IWOTH
    if others or (about.st_mode & stat.S_IWGRP and not _own_group(about.st_gid)):
        who = "everybody" if others else "a group"
        return (
            f"{folder}, above it, can be changed by {who} (mode {stat.S_IMODE(about.st_mode):03o}), so that anything "
            f"may be put in its place; chmod {'o' if others else 'g'}-w {folder}, or name a folder elsewhere"
        )
    return None


def _own_group(group_id: int) -> bool:
    """Whether a group is the private one that many systems give each user: of the same name, and nobody else in it."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return user.pw_gid == group_id and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
