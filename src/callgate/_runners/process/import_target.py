"""Convert between a tool and its import target, `module:qualname`, by which a worker process imports it.

A worker imports the tool again, so it must be reachable by name. Others (lambdas, closures, tools with their own state) are refused at
registration, with advice. Must not know how the target is sent.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from types import ModuleType
from typing import Any

from callgate._worker_import import importing
from callgate.errors import UsageError
from callgate.tools.tool_declaration import Tool
from callgate.tools.tool_decorator import FunctionTool

__all__ = ["load_target", "process_target"]

_MAIN = "__callgate_main__"


def process_target(tool: Tool) -> str:
    """Return the import target of `tool`: `module:qualname`, or `/path/to/script.py:qualname` for a script.

    Raises:
        UsageError: Another process could not import it.
    """
    if _has_other_code(tool):
        raise UsageError(
            f"Tool '{tool.name}' ({tool.where()}) is to run outside this process, but its code belongs to an object of this process. Do the"
            " work in a plain function with @tool(...) and give that the runner; or leave the runner out."
        )
    if isinstance(tool, FunctionTool):
        module, qualname = tool.function.__module__, getattr(tool.function, "__qualname__", "")
        found = _name_in_module(module, tool) or (qualname if _is_reached(module, qualname, tool.function) else "")
    else:
        module, qualname = type(tool).__module__, type(tool).__qualname__
        found = _name_in_module(module, tool) or (qualname if _is_reached(module, qualname, type(tool)) and _is_plain(tool) else "")
    if not found:
        raise UsageError(_refusal(tool, qualname))
    return f"{_importable(module, tool)}:{found}"


def _has_other_code(tool: Tool) -> bool:
    """Return whether a tool that is made like a function's runs something else, as the tools of other frameworks do."""
    return isinstance(tool, FunctionTool) and type(tool).invoke is not FunctionTool.invoke


def _name_in_module(module: str, tool: Tool) -> str:
    """Return the name under which `module` holds this very tool, or ''."""
    names: dict[str, object] = vars(sys.modules[module]) if module in sys.modules else {}
    return next((name for name, value in names.items() if value is tool), "")


def _is_reached(module: str, qualname: str, wanted: object) -> bool:
    try:
        return _walk(sys.modules[module], qualname) is wanted
    except (KeyError, AttributeError):
        return False


def _walk(value: object, qualname: str) -> Any:
    for name in qualname.split("."):
        value = getattr(value, name)
    return value


def _is_plain(tool: Tool) -> bool:
    """Return whether a new instance of the tool's class is equivalent to this one."""
    parameters = [] if type(tool).__init__ is object.__init__ else list(inspect.signature(type(tool)).parameters.values())
    if any(item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD) for item in parameters):
        return False
    return not parameters or not vars(tool)


def _importable(module: str, tool: Tool) -> str:
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name)
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        raise UsageError(
            f"Tool '{tool.name}' was typed in, so a worker process cannot import it. Move it to a file, or use runner='thread'."
        )
    return os.path.abspath(str(path))


def _refusal(tool: Tool, qualname: str) -> str:
    if "<lambda>" in qualname:
        why = "is a lambda. Write it as a function of a module"
    elif "<locals>" in qualname:
        why = "is defined inside a function, so no other process can import it. Move it to the top level of its module"
    elif isinstance(tool, FunctionTool) and inspect.ismethod(tool.function):
        why = "is a method of an object that another process does not have. Write it as a function of a module"
    elif isinstance(tool, FunctionTool):
        why = f"is not what its module has under the name '{qualname}'. Give the tool a name of its own at the top level of its module"
    else:
        why = "has state that another process would not have. Bind it to a name at the top level of its module"
    return f"Tool '{tool.name}' ({tool.where()}) runs in a process, but it {why}; or use runner='thread'."


def load_target(target: str) -> Tool:
    """Import the tool at `target`. Exceptions of the import are not caught."""
    module, _, qualname = target.rpartition(":")
    with importing(module):
        found = _walk(_load_file(module) if module.endswith(".py") else importlib.import_module(module), qualname)
    if isinstance(found, Tool):
        return found
    if isinstance(found, type) and issubclass(found, Tool):
        return found()
    if callable(found):
        return FunctionTool(found)
    raise UsageError(f"{target} is not a tool; got {type(found).__name__}. Restart the program if the file has changed.")


def _load_file(path: str) -> ModuleType:
    """Import a script as a module under a name other than `__main__`, so that its main block does not run."""
    if _MAIN in sys.modules:
        return sys.modules[_MAIN]
    spec = importlib.util.spec_from_file_location(_MAIN, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a module")
    module = sys.modules[_MAIN] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_MAIN]
        raise
    return module
