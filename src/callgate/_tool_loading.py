"""Load tools from `builtin`, `module:attribute`, `path/to/file.py` or `path/to/file.py:attribute`.

A file is loaded as a module of its own name, with its folder on the import path, so that a worker process finds it too. Errors
in the user's code are reported with file and line, without a stack trace.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from callgate.errors import CallgateError, UsageError
from callgate.protocols import BlobStore
from callgate.tools import Tool
from callgate.tools.registry import instance_of

if TYPE_CHECKING:
    from callgate.memory import Memory

__all__ = ["FORMS", "load_tools"]

FORMS = "builtin, module:attribute, path/to/file.py or path/to/file.py:attribute"


def load_tools(specs: Iterable[str], blobs: BlobStore, memory: Memory | None = None, *, folder: str = "") -> list[Tool]:
    """Load the tools that these specs name, each once.

    Args:
        memory: Its tools are part of `builtin`, and its index serves their searches.
        folder: Where modules are found besides those that are installed. Default: the current folder.

    Raises:
        UsageError: A spec cannot be loaded, or names no tool.
    """
    tools: list[Tool] = []
    _look_in(folder or os.getcwd())
    for spec in specs:
        for tool in _load_builtin(blobs, memory) if spec == "builtin" else _load_named(spec):
            if not any(tool is other for other in tools):
                tools.append(tool)
    return tools


def _load_builtin(blobs: BlobStore, memory: Memory | None) -> list[Tool]:
    from callgate.builtins import command_tools, fetch_tool, result_tools, workspace_tools

    index, more = (memory.index, memory.tools()) if memory is not None else (None, [])
    return [*workspace_tools(index=index), *command_tools(), fetch_tool(), *result_tools(blobs), *more]


def _load_named(spec: str) -> list[Tool]:
    place, attribute = _split(spec)
    module = _import_file(place, spec) if place.endswith(".py") else _import_module(place, spec)
    value: object = module
    for name in filter(None, attribute.split(".")):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise UsageError(f"{spec}: {place} has no '{attribute}'. {_offer(module)}") from None
    found = _tools_in(value)
    if not found:
        what = f"'{attribute}' is neither a tool nor a list of tools" if attribute else "it holds no tools"
        raise UsageError(f"{spec}: {what}. Decorate a function with @tool. {_offer(module)}")
    return found


def _split(spec: str) -> tuple[str, str]:
    place, colon, attribute = spec.rpartition(":")
    return (place, attribute) if colon and place else (spec.rstrip(":"), "")


def _tools_in(value: object) -> list[Tool]:
    if isinstance(value, Tool) or (isinstance(value, type) and issubclass(value, Tool)):
        return [instance_of(value)]
    items = list(vars(value).values()) if isinstance(value, ModuleType) else list(value) if isinstance(value, (list, tuple)) else []
    tools = [item for item in items if isinstance(item, Tool)]
    return tools if isinstance(value, ModuleType) or len(tools) == len(items) else []


def _offer(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Tool)]
    return f"Tools there: {', '.join(names[:20])}." if names else "There are no tools in it."


def _import_module(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"There is no module '{name}' for the tools '{spec}'. Give {FORMS}.") from None
        raise _loading_error(spec, error) from error
    except (TypeError, ValueError):
        raise UsageError(f"'{spec}' does not name tools. Give {FORMS}.") from None
    except CallgateError:
        raise
    except (Exception, SystemExit) as error:
        raise _loading_error(spec, error) from error


def _import_file(place: str, spec: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise UsageError(f"There is no file {place} for the tools '{spec}'. Give {FORMS}.")
    _look_in(str(path.parent))
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    named = importlib.util.find_spec(path.stem) if loaded is None else None
    if named is None or named.loader is None or named.origin != str(path):
        raise UsageError(f"{place} cannot be loaded: '{path.stem}' is the name of another module here. Rename the file.")
    return _run(importlib.util.module_from_spec(named), spec)


def _run(module: ModuleType, spec: str) -> ModuleType:
    assert module.__spec__ is not None
    assert module.__spec__.loader is not None
    sys.modules[module.__name__] = module
    try:
        module.__spec__.loader.exec_module(module)
    except CallgateError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _loading_error(spec, error) from error
    return module


def _look_in(folder: str) -> None:
    """Append the folder to the import path, so that installed modules take precedence."""
    if folder not in sys.path:
        sys.path.append(folder)


def _loading_error(spec: str, error: BaseException) -> UsageError:
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}:{error.lineno})"
    else:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return UsageError(f"The tools '{spec}' cannot be loaded: {type(error).__name__}: {error}{where}. Correct the file and try again.")
