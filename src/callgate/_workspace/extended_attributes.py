"""Extended attributes of a file or folder: what programs note on it, its access list, its capabilities.

Only those that belong to the content: labels that the system gives by its own rules are left to it. Where a system or a file system has
none, nothing is found. Knows nothing of paths.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping

__all__ = ["attributes", "set_attributes"]

_KEPT = ("user.", "system.posix_acl_", "security.capability")
_NONE_HERE = (errno.ENOTSUP, errno.ENOSYS, errno.EPERM, errno.EACCES)


def attributes(fd: int) -> dict[str, bytes]:
    """What the open file or folder has, by name."""
    if sys.platform != "linux":
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in sorted(os.listxattr(fd)) if name.startswith(_KEPT)}
    except OSError as error:
        if error.errno in _NONE_HERE:
            return {}
        raise


def set_attributes(fd: int, wanted: Mapping[str, bytes]) -> None:
    """Give the open file or folder exactly these.

    Raises:
        OSError: The process may not, or there is no room.
    """
    if sys.platform != "linux":
        return
    now = attributes(fd)
    for name in now.keys() - wanted.keys():
        os.removexattr(fd, name)
    for name, value in wanted.items():
        if now.get(name) != value:
            os.setxattr(fd, name, value)
