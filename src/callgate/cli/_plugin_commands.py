"""Define `callgate plugin` for cyclopts; modules whose names begin with `_plugin_` do the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._shared_options import AsJson, Flag

__all__ = ["plugin_app"]

plugin_app = App(name="plugin", help="Write, check, install and list plugins: tools in a process of their own.")


@plugin_app.command(name="new")
def plugin_new(
    name: str, /, *, js: Annotated[bool, Flag] = False, requires: Annotated[tuple[str, ...], Parameter(negative="")] = ()
) -> int:
    """Make a folder with a working plugin of one tool, in Python or in JavaScript.

    ```
    callgate plugin new invoices
    callgate plugin new invoices --js
    callgate plugin new invoices --requires 'httpx>=0.28'
    ```

    Exit codes: 0 made · 2 the name or a requirement cannot be used, or there is such a folder; nothing is written.

    Parameters
    ----------
    name
        The name of the plugin and of the folder, which is made here.
    js
        Write it in JavaScript.
    requires
        A requirement of the plugin, which gets a virtual environment of its own. May be repeated.
    """
    from callgate.cli._plugin_new import new_plugin

    return new_plugin(name, javascript=js, requires=requires)


@plugin_app.command(name="install")
def plugin_install(
    *paths: str,
    upgrade: Annotated[bool, Flag] = False,
    offline: Annotated[bool, Flag] = False,
    find_links: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    json: AsJson = False,
) -> int:
    """Build the virtual environments that plugins ask for in their manifests. Nothing else builds them.

    This downloads packages, and may run their code: read the manifest first. pip's own variables and configuration apply, such as
    `PIP_INDEX_URL`, and `PIP_ONLY_BINARY=:all:`, with which no code runs before the plugin does.

    ```
    callgate plugin install ./invoices
    callgate plugin install ./invoices --upgrade
    callgate plugin install ./invoices --offline --find-links ./wheels
    ```

    Exit codes: 0 every environment is there · 1 one could not be built; an earlier one stays · 2 a manifest cannot be used.

    Parameters
    ----------
    paths
        Folders of plugins, folders whose subfolders are plugins, and names of installed packages.
    upgrade
        Build new environments, with the newest versions that fit, although there are some.
    offline
        Use no package index.
    find_links
        A folder or a page with packages. May be repeated.
    """
    from callgate.cli._plugin_install import install_plugins

    return install_plugins(paths, upgrade=upgrade, offline=offline, find_links=find_links, as_json=json)


@plugin_app.command(name="uninstall")
def plugin_uninstall(*paths: str, json: AsJson = False) -> int:
    """Remove the virtual environments of plugins. The plugins themselves stay.

    ```
    callgate plugin uninstall ./invoices
    ```

    Exit codes: 0 none is left · 1 one is in use, and stays.

    Parameters
    ----------
    paths
        Folders of plugins, which may be gone, and names of installed packages.
    """
    from callgate.cli._plugin_prune import uninstall_plugins

    return uninstall_plugins(paths, as_json=json)


@plugin_app.command(name="prune")
def plugin_prune(*, json: AsJson = False) -> int:
    """Remove the virtual environments that no plugin would use now, and what is left of builds that were killed.

    An environment is not used any more if its plugin is gone or requires something else, and with another version of callgate or Python.

    ```
    callgate plugin prune
    ```

    Exit codes: 0 none is left · 1 one is in use, and stays.
    """
    from callgate.cli._plugin_prune import prune_environments

    return prune_environments(as_json=json)


@plugin_app.command(name="check")
def plugin_check(
    path: str,
    /,
    *,
    tool: str = "",
    arguments: Annotated[str, Parameter(allow_leading_hyphen=True)] = "{}",
    timeout: float | None = None,
    json: AsJson = False,
) -> int:
    """Check the manifest, start the plugin, and check its tools; with `--tool`, also make one call. Exit code 1 if anything is wrong.

    ```
    callgate plugin check ./invoices
    callgate plugin check ./invoices --tool greet --arguments '{"name": "Ada"}'
    ```

    Exit codes: 0 ok · 1 the plugin does not start or a tool cannot be used, or the call failed · 2 the manifest cannot be used ·
    3 the outcome of the call is unknown · 4 the tool needs approval, so it was not called.

    Parameters
    ----------
    path
        The folder of the plugin, or the name of an installed package or of its entry point.
    tool
        Also call this tool. It runs, whatever its effect is.
    arguments
        The arguments of that call: one JSON object, `@file`, or `-` for standard input. Default: none.
    timeout
        Seconds for that call. Default: `TOOL_EXECUTION_TIMEOUT_MS`, or 300. A tool's own limit takes precedence.
    """
    from callgate.cli._plugin_check import check_plugin

    return check_plugin(path, tool, arguments, timeout, as_json=json)


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
