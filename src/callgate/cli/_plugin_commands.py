"""Define `callgate plugin` for cyclopts; `_plugin_new`, `_plugin_check` and `_plugin_list` do the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._shared_options import AsJson, Flag

__all__ = ["plugin_app"]

plugin_app = App(name="plugin", help="Write, check and list plugins: tools in a process of their own.")


@plugin_app.command(name="new")
def plugin_new(name: str, /, *, js: Annotated[bool, Flag] = False) -> int:
    """Make a folder with a working plugin of one tool, in Python or in JavaScript.

    ```
    callgate plugin new invoices
    callgate plugin new invoices --js
    ```

    Exit codes: 0 made · 2 the name cannot be used, or there is such a folder; nothing is written.

    Parameters
    ----------
    name
        The name of the plugin and of the folder, which is made here.
    js
        Write it in JavaScript.
    """
    from callgate.cli._plugin_new import new_plugin

    return new_plugin(name, javascript=js)


@plugin_app.command(name="check")
def plugin_check(
    path: str,
    /,
    *,
    tool: str = "",
    arguments: Annotated[str, Parameter(allow_leading_hyphen=True)] = "{}",
    json: AsJson = False,
) -> int:
    """Check the manifest, start the plugin, and check its tools; with `--tool`, also make one call. Exit code 1 if anything is wrong.

    ```
    callgate plugin check ./invoices
    callgate plugin check ./invoices --tool greet --arguments '{"name": "Ada"}'
    ```

    Exit codes: 0 ok · 1 the plugin does not start or a tool cannot be used, or the call failed · 2 the manifest cannot be used ·
    3 the outcome of the call is unknown.

    Parameters
    ----------
    path
        The folder of the plugin, or the name of an installed package.
    tool
        Also call this tool. It runs, whatever its effect is.
    arguments
        The arguments of that call: one JSON object, `@file`, or `-` for standard input. Default: none.
    """
    from callgate.cli._plugin_check import check_plugin

    return check_plugin(path, tool, arguments, as_json=json)


@plugin_app.command(name="list")
def plugin_list(*paths: str, start: Annotated[bool, Parameter(negative="--no-start")] = True, json: AsJson = False) -> int:
    """List plugins with their tools, the effects, and whether they start: those of installed packages, and those in folders.

    ```
    callgate plugin list
    callgate plugin list ./invoices ./units --no-start
    ```

    Parameters
    ----------
    paths
        Folders of plugins, and folders whose subfolders are plugins.
    start
        Start the plugins. With `--no-start`, only the manifests and the cache are read.
    """
    from callgate.cli._plugin_list import list_plugins

    return list_plugins(paths, start=start, as_json=json)
