"""The command line of callgate.

The outermost layer: it reads options, builds an engine, shows what happens and returns an exit code. It makes no
decision about a call. Its dependencies are an extra, so their installation is checked before they are imported. Start
reading at `_app`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]

_NEEDED = ("cyclopts", "rich")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        words: The arguments after the program's name. Default: those of this process.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sentence = f"The command line needs {' and '.join(missing)}. Install them with: python -m pip install 'callgate[cli]'"
        print(sentence, file=sys.stderr)
        return 2
    from callgate.cli._app import run

    return run(sys.argv[1:] if words is None else list(words))
