"""The paths of the undo repositories: one folder for each workspace, outside of every workspace.

They are outside because a command may remove everything in its workspace, and because file tools cannot reach anything
outside of it. The workspace's path alone determines the repository, so that a user in the workspace's folder can undo
what calls did there.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping

__all__ = ["default_folder", "repository_path"]

_VARIABLE = "CALLGATE_UNDO"
_NAME_CHARS = 40


def default_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return `CALLGATE_UNDO`, or `callgate/undo` in the user's state folder."""
    given = environ.get(_VARIABLE)
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.abspath(given) if given else os.path.join(state, "callgate", "undo")


def repository_path(workspace: str, place: str) -> str:
    """Return the folder of the repository for the workspace at this real path."""
    digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(workspace))[:_NAME_CHARS].strip(".-") or "root"
    return os.path.join(os.path.abspath(place), f"{name}-{digest}.git")
