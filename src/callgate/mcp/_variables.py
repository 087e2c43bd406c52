"""Replace variables such as `${TOKEN}` in the values of a configuration file.

The forms are those of the clients that share such files. A variable that has no value is reported with its name; the
values themselves may be secrets and are in no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from callgate._terminal_text import one_line
from callgate._unusable_paths import read_regular_file

__all__ = ["Variables", "read_env_file"]

_VARIABLE: Final = re.compile(r"\$\{([^{}]*)\}|\{(env:[A-Za-z_]\w*|file:[^{}]*)\}")
"""`${...}`, and the forms of opencode without the dollar sign."""
_ENVIRONMENT: Final = re.compile(r"(?:env:)?([A-Za-z_]\w*)(?::-(.*))?", re.DOTALL)
_SOURCE: Final = re.compile(r"([A-Za-z]+):(.*)", re.DOTALL)
_ENV_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")


class Variables:
    """The variables of one file.

    Args:
        workspace: The value of `${workspaceFolder}`.
        environment: The environment variables. Default: those of this process.
    """

    def __init__(self, workspace: Path, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._places = {
            "workspaceFolder": str(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": str(Path.home()),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        self.problems: list[str] = []
        """The variables that could not be replaced, each as a sentence."""

    def replace(self, text: str, where: str) -> str:
        """Return the text with its variables replaced. One that has no value stays, and is added to `problems`.

        Args:
            where: The place of the text, for the problem.
        """
        return _VARIABLE.sub(lambda found: self._value(found, where), text)

    def _value(self, found: re.Match[str], where: str) -> str:
        inside = found[1] if found[1] is not None else found[2]
        if inside in self._places:
            return self._places[inside]
        if named := _ENVIRONMENT.fullmatch(inside):
            value = self._environment.get(named[1])
            if value or (value is not None and named[2] is None):
                return value
            if named[2] is not None:
                return named[2]
            self.problems.append(f"{where} uses the environment variable {one_line(named[1])}, which is not set. Set it before the start.")
        elif named := _SOURCE.fullmatch(inside):
            what = one_line(f"${{{inside}}}", 80)
            self.problems.append(f"{where} uses {what}, which callgate cannot look up. Use an environment variable, as in ${{NAME}}.")
        return found[0]


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file with lines such as `NAME=value`.

    Raises:
        OSError: The file cannot be read.
        UnicodeDecodeError: It is not UTF-8.
    """
    found = dict[str, str]()
    for line in read_regular_file(path).decode("utf-8").splitlines():
        if pair := _ENV_LINE.match(line):
            value = pair[2]
            found[pair[1]] = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
    return found
