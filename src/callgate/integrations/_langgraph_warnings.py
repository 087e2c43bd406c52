"""Warnings about graphs of LangGraph that may repeat an effect: of messages without ids, and of journals that a thread survives.

Each is logged once for a middleware or tool node, and only if a call of a tool with an effect is made. Must not know how calls are made.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt.tool_node import ToolCallRequest

from callgate.engine import Engine
from callgate.integrations._langgraph_order import message_of

__all__ = ["GraphWarnings", "checkpointer_of"]

log = logging.getLogger("callgate")
_CHECKPOINTER = "__pregel_checkpointer"
"""The key of the checkpointer of a running graph, and of the graph that it is a part of. LangGraph has no public name for it."""
_NO_MESSAGE_ID = (
    "A message without an id made a call of %s in the node %s, and the tool has an effect but no key. If the graph makes the call again"
    " after update_state or from an earlier checkpoint, the engine takes it for a new call, and the tool runs again. Declare the"
    " messages of the state with the reducer add_messages, which gives them ids, as MessagesState does; or give the tool a key."
)
_LOST_RECORD = (
    "The threads of this graph survive the process (%s), but the journal of its engine is in memory. If the process ends while %s or"
    " another tool with an effect runs, the graph that resumes the thread runs the tool again, also with a key, and nobody is told. Give"
    " the engine a journal that survives: Engine(tools, journal=SqliteJournal('calls.db'))."
)


def checkpointer_of(configurable: Mapping[str, Any]) -> Any:
    """Return the checkpointer of a running graph; None if it has none."""
    return configurable.get(_CHECKPOINTER)


class GraphWarnings:
    """The warnings of one middleware or tool node.

    Args:
        engine: The engine.
        messages_key: The key of the messages in the state.
    """

    def __init__(self, engine: Engine, messages_key: str) -> None:
        self._engine = engine
        self._messages_key = messages_key
        self._has_warned_of_id = False
        self._has_warned_of_record = engine.journal.strength != "memory"

    def warn(self, request: ToolCallRequest) -> None:
        """Log what may repeat the effect of a call, unless it was logged before."""
        tool = self._engine.tools.get(request.tool_call["name"])
        if tool is None or tool.effect == "none":
            return
        config: Mapping[str, Any] = request.runtime.config or {}
        if not self._has_warned_of_record:
            self._warn_of_lost_record(tool.name, checkpointer_of(config.get("configurable", {})))
        if not self._has_warned_of_id and tool.effect_key is None:
            self._warn_of_missing_id(tool.name, request, config)

    def _warn_of_lost_record(self, tool: str, checkpointer: Any) -> None:
        # exactly this class: one that is derived from it may write its checkpoints to a file, as the one of LangGraph's own server does
        if checkpointer is not None and type(checkpointer) is not InMemorySaver:
            self._has_warned_of_record = True
            log.warning(_LOST_RECORD, type(checkpointer).__name__, tool)

    def _warn_of_missing_id(self, tool: str, request: ToolCallRequest, config: Mapping[str, Any]) -> None:
        message = message_of(request, self._messages_key)[0]
        if message is not None and not message.id:
            self._has_warned_of_id = True
            log.warning(_NO_MESSAGE_ID, tool, config.get("metadata", {}).get("langgraph_node", "of the tools"))
