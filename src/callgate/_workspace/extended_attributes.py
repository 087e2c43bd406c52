"""Read and set the extended attributes of a file or folder: attributes set by programs, the access list, capabilities.

Labels that the system sets by its own rules are left out. If the system or file system does not support extended
attributes, there are none. Knows nothing of paths.
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
    """Return the extended attributes of the open file or folder, by name."""
    if sys.platform != "linux":
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in sorted(os.listxattr(fd)) if name.startswith(_KEPT)}
    except OSError as error:
        if error.errno in _NONE_HERE:
            return {}
        raise


def set_attributes(fd: int, wanted: Mapping[str, bytes]) -> None:
    """Replace the extended attributes of the open file or folder with `wanted`.

    Raises:
        OSError: The process has no permission, or there is no space.
    """
    if sys.platform != "linux":
        return
    now = attributes(fd)
    for name in now.keys() - wanted.keys():
        os.removexattr(fd, name)
    for name, value in wanted.items():
        if now.get(name) != value:
            os.setxattr(fd, name, value)
