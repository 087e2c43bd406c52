"""`callgate plugin new`: write the folder of a working plugin."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import say
from callgate.errors import UsageError
from callgate.plugins.environment_requirements import checked_requirements
from callgate.plugins.manifest import MANIFEST

__all__ = ["new_plugin"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]{0,63}")

_PYTHON_MANIFEST = """\
[plugin]
name = "{name}"
version = "0.1"
protocol = 1
description = "Describe the plugin in one sentence."
command = ["{{python}}", "main.py"]
{requires}# The variables that the plugin may see, such as env = ["CRM_TOKEN"].
env = []
# How many calls it handles at the same time.
parallel = 1
# main.py is part of this plugin, so the effects that its tools declare are accepted.
trust_effects = true
"""

_PYTHON = '''\
"""The tools of the plugin {name}."""

from callgate import tool
from callgate.plugins.serving import serve


@tool(effect="none")
def greet(name: str) -> str:
    """Greet a person by name."""
    return f"Hello, {{name}}!"


if __name__ == "__main__":
    serve([greet])
'''

_JS_MANIFEST = """\
[plugin]
name = "{name}"
version = "0.1"
protocol = 1
description = "Describe the plugin in one sentence."
command = ["node", "main.js"]
# The variables that the plugin may see, such as env = ["CRM_TOKEN"].
env = []
# How many calls it handles at the same time.
parallel = 4

[[tools]]
name = "greet"
description = "Greet a person by name."
effect = "none"
input_schema = {{ type = "object", properties = {{ name = {{ type = "string" }} }}, required = ["name"] }}
"""

_JS = """\
"use strict";

const tools = {{
  greet: async ({{ name }}) => `Hello, ${{name}}!`,
}};

const send = (message) => process.stdout.write(JSON.stringify(message) + "\\n");

const handlers = {{
  hello: () => send({{ kind: "ready", name: "{name}", version: "0.1" }}),
  call: async ({{ id, tool, arguments: given }}) => {{
    try {{
      const value = await tools[tool](given);
      send({{ kind: "result", id, value: value ?? null }}); // a result needs a value, also if the tool returns nothing
    }} catch (error) {{
      send({{ kind: "error", id, message: String(error?.message ?? error), code: error?.name }});
    }}
  }},
  ping: () => send({{ kind: "pong" }}),
  shutdown: () => process.exit(0),
}};

require("node:readline")
  .createInterface({{ input: process.stdin }})
  .on("line", (line) => {{
    const message = JSON.parse(line);
    handlers[message.kind]?.(message); // kinds that are not known are ignored
  }})
  .on("close", () => process.exit(0));
"""


_REQUIRES = """\
# What it needs, in a virtual environment of its own: callgate plugin install ./{name}
requires = {requires}
"""


def new_plugin(name: str, *, javascript: bool, requires: Sequence[str] = ()) -> int:
    """Write the folder; return the exit code.

    Raises:
        UsageError: The name or a requirement cannot be used, or there is such a folder.
    """
    _check_requires(requires, javascript=javascript)
    if not _NAME.fullmatch(name):
        raise UsageError(f"A plugin cannot be named {one_line(name, 80)!r}: use at most 64 letters, digits, '_' and '-'.")
    folder = Path(name)
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"There is a file or folder {name} already. Give another name.") from None
    except OSError as error:
        raise UsageError(f"The folder {name} cannot be made: {error.strerror}.") from error
    manifest, (file, text) = (_JS_MANIFEST, ("main.js", _JS)) if javascript else (_PYTHON_MANIFEST, ("main.py", _PYTHON))
    needs = _REQUIRES.format(name=name, requires=json.dumps(list(requires), ensure_ascii=False)) if requires else ""
    (folder / MANIFEST).write_text(manifest.format(name=name, requires=needs), encoding="utf-8")
    (folder / file).write_text(text.format(name=name), encoding="utf-8")
    say(f"Made {name}/{MANIFEST} and {name}/{file}. Try it:")
    if requires:
        say(f"  callgate plugin install ./{name}")
    say(f"""  callgate plugin check ./{name} --tool greet --arguments '{{"name": "Ada"}}'""")
    return _exits.OK


def _check_requires(requires: Sequence[str], *, javascript: bool) -> None:
    if requires and javascript:
        raise UsageError("--requires is for plugins in Python. Leave out --js, or write package.json into the folder.")
    for entry in requires:
        if entry.startswith("."):
            raise UsageError(
                f"--requires {one_line(entry, 80)} is a folder, which a new plugin does not have. Write it into the manifest later."
            )
    try:
        checked_requirements(Path(), requires, None, None)
    except UsageError as error:
        raise UsageError(str(error).replace("plugin.requires has", "--requires has")) from error
