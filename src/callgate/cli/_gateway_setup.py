"""Make a gateway from the options of `callgate serve` and its configuration file."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from callgate._engine_limits import Limits
from callgate._journal import is_url
from callgate._terminal_text import one_line, printable
from callgate._tool_loading import load_tools
from callgate._unusable_paths import displayed
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import ServeOptions
from callgate.cli._journal_location import MEMORY, CommandJournal, default_journal
from callgate.cli._named_servers import servers_of, shown_server
from callgate.cli._shared_options import check_workspace
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.gateway import Gateway, GatewayLimits
from callgate.gateway._access.configuration_files import configuration_rules
from callgate.gateway._access.current_rules import CurrentRules
from callgate.gateway._config.kept_secret import exposed_secret, kept_secret
from callgate.gateway._config.listen_address import read_listen_address
from callgate.gateway._config.secret_values import SecretValues
from callgate.gateway._config.unmatched_patterns import refuse_unknown_principals
from callgate.gateway.config import GatewayConfig, HttpConfig
from callgate.gateway.config_file import read_gateway_config, refuse_open
from callgate.mcp import ConfiguredServer, McpServer
from callgate.mcp.config_files import config_beside
from callgate.plugins import Plugin
from callgate.policy import Rules
from callgate.policy.rule_file import rules_text
from callgate.undo import UndoStore

__all__ = [
    "CONFIG",
    "OpenedGateway",
    "config_of",
    "describe_accepted",
    "exposed_key",
    "notes_of_files",
    "open_gateway",
    "rules_of_gateway",
    "servers_to_start",
]

log = logging.getLogger("callgate")

CONFIG: Final = "gate.toml"
"""The configuration file that is used if none is named."""
_REMEMBERED_CALLS: Final = 200
"""Few, because MCP calls have no id by which a client could ask for the result of an earlier call."""


class OpenedGateway(Struct, frozen=True, kw_only=True):
    """A gateway that is not started, and its journal."""

    gateway: Gateway
    engine: Engine
    record: CommandJournal
    rules: CurrentRules


def config_of(options: ServeOptions) -> GatewayConfig:
    """Return what the options and the configuration file say together.

    Raises:
        UsageError: An option or something in the file is wrong, or there is nothing to serve.
    """
    refuse_odd_text(config=options.config, journal=options.journal, workspace=options.workspace)
    path = options.config or (CONFIG if os.path.exists(CONFIG) and not (options.mcp or options.tools) else "")
    config = read_gateway_config(path) if path else GatewayConfig(journal=default_journal(), workspace=os.getcwd())
    config = replace(
        config,
        tools=(*config.tools, *options.tools),
        rules=(*config.rules, *options.rules),
        servers=_combine_servers(config.servers, servers_of(options.mcp), options.mcp),
        journal=options.journal or config.journal,
        workspace=check_workspace(options.workspace) if options.workspace else config.workspace,
        names_workspace=config.names_workspace or bool(options.workspace),
        http=_http_config(config, options.http),
    )
    if not (config.tools or config.plugins or any(one.enabled for one in config.servers)):
        raise UsageError(
            f"There is nothing to serve{f' in {displayed(path)}' if path else ''}. Give MCP servers with --mcp, Python tools with --tools,"
            f" or a configuration file such as {CONFIG} with --config."
        )
    _refuse_same_names(config)
    refuse_open(config, path or "--http")
    return config


def open_gateway(config: GatewayConfig) -> OpenedGateway:
    """Open the journal, and make the engine and the gateway. Starts nothing.

    Raises:
        UsageError: A file cannot be used, or tools or rules are wrong.
    """
    if config.replicas is not None and not config.names_workspace:
        log.warning(
            "[replicas] is configured without `workspace`, which is then the folder of the configuration (%s). Gateways whose workspaces"
            " differ share neither tasks nor approved calls: write the same `workspace` for all of them",
            displayed(Path(config.workspace)),
        )
    rules = CurrentRules(*rules_of_gateway(config))
    record = CommandJournal.open(config.journal)
    tools = load_tools(config.tools, record.blobs, folder=config.folder)
    engine = Engine(
        tools,
        servers=servers_to_start(config),
        policies=(rules,),
        journal=record.journal,
        blobs=record.blobs,
        limits=Limits(remembered_calls=_REMEMBERED_CALLS),
        timeout_s=config.timeout_s,
        redactor=SecretValues(config.secrets) if config.secrets else None,
        undo=UndoStore() if (config.undo is None and tools) or config.undo else None,
    )
    gateway = Gateway(
        engine,
        name=config.name,
        instructions=config.instructions,
        secret=_secret(config),
        replica=config.replicas.name if config.replicas else "",
        replica_url=config.replicas.url if config.replicas and config.http else "",
        workspace=config.workspace,
        limits=GatewayLimits(
            task_after_s=config.tasks.after_s, task_ttl_s=config.tasks.ttl_s, tasks=config.tasks.most, task_bytes=config.tasks.most_bytes
        ),
    )
    return OpenedGateway(gateway=gateway, engine=engine, record=record, rules=rules)


def _secret(config: GatewayConfig) -> bytes | None:
    """Return the secret of all replicas, or the one beside the journal's file; None without a file."""
    if config.replicas is not None:
        return config.replicas.secret
    if config.journal == MEMORY or is_url(config.journal):
        return None
    secret = kept_secret(Path(config.journal).parent)
    if exposed := exposed_key(config):
        log.warning("%s", exposed)
    return secret


def exposed_key(config: GatewayConfig) -> str:
    """Return a sentence that other users can read the secret beside the journal; empty if they cannot."""
    return "" if config.journal == MEMORY or is_url(config.journal) else exposed_secret(Path(config.journal).parent)


def notes_of_files(config: GatewayConfig) -> list[str]:
    """Return what the files of other clients say that is not used, such as tools that they disable."""
    return [f"The MCP server '{one_line(one.name)}': {printable(note)}" for one in config.servers if one.enabled for note in one.notes]


def describe_accepted(config: GatewayConfig) -> list[str]:
    """Return by which files the tools of MCP servers are accepted, and of which servers nobody has accepted any, as sentences."""
    by_file: dict[Path | None, list[str]] = {}
    for one in config.servers:
        accepted = one.server.accepted if one.enabled else ""
        if accepted is None or (accepted and isinstance(accepted, (str, os.PathLike))):
            by_file.setdefault(None if accepted is None else Path(accepted), []).append(one.name)
    return [_describe_accepted(file, names, config) for file, names in by_file.items()]


def _describe_accepted(file: Path | None, names: Sequence[str], config: GatewayConfig) -> str:
    servers = one_line(", ".join(names), 200)
    if file is None:
        name = shlex.quote(one_line(names[0])) if len(names) == 1 else "NAME"
        option = f" --config {shlex.quote(displayed(Path(config.files[0])))}" if config.files else ""
        return (
            f"Nobody has accepted the MCP tools of {servers}, so they run as they are described at the start. Pin them with"
            f" `callgate mcp accept {name}{option}`."
        )
    beside = config_beside(file)
    look = f"callgate mcp diff --config {'FILE' if beside is None else shlex.quote(displayed(beside))}"
    return f"The MCP tools of {servers} run as accepted in {displayed(file)}; what differs: {look}"


def servers_to_start(config: GatewayConfig) -> tuple[McpServer | Plugin, ...]:
    return (*(one.server for one in config.servers if one.enabled), *config.plugins)


def rules_of_gateway(config: GatewayConfig) -> tuple[Rules, ...]:
    """Return the rules of the files, and the one that keeps the configuration as it is.

    Raises:
        UsageError: A file cannot be read, has the verdict `judge`, which needs a model, or names a principal that does not exist.
    """
    found = tuple(Rules.parse(rules_text(path), where=Path(path).name) for path in config.rules)  # clients see the name
    for rules in found:
        if rules.judge_required_by:
            raise UsageError(f"{rules.judge_required_by} has the verdict judge, but a gateway has no model. Write ask or deny instead.")
    refuse_unknown_principals(config, found)
    return (*found, *configuration_rules(config))


def _combine_servers(
    configured: Sequence[ConfiguredServer], named: Sequence[McpServer], words: Sequence[str]
) -> tuple[ConfiguredServer, ...]:
    for server in named:
        if server.name in (one.server.name for one in configured):
            raise UsageError(f"--mcp gives a server named '{server.name}', and the configuration has one too. Rename one of them there.")
    shown = [shown_server(word) for word in words] if len(words) == len(named) else [""] * len(named)
    return (*configured, *(ConfiguredServer(name=one.name, server=one, target=shown[index]) for index, one in enumerate(named)))


def _refuse_same_names(config: GatewayConfig) -> None:
    names = [one.name for one in servers_to_start(config)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"An MCP server and a plugin have the same name, '{twice}'. Rename one of them, or disable the server.")


def _http_config(config: GatewayConfig, words: tuple[str, ...] | None) -> HttpConfig | None:
    """Return where to listen; None for standard input and output."""
    if words is None:
        return None
    if len(words) > 1:
        raise UsageError(f"--http takes one address, and {words[1]!r:.80} is too much. Write --http HOST:PORT.")
    http = config.http or HttpConfig()
    if not words or not words[0]:
        return http
    host, port = read_listen_address(words[0], "--http")
    return replace(http, host=host, port=port)
