"""A warning about an approved call of Microsoft Agent Framework that an engine with a journal in memory knows nothing of.

Sessions and the checkpoints of workflows survive a process, and a request for approval in them is answered in another one. The engine
remembers the calls of the model's responses, so that one is recognised that another process, or another engine, may have made already.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from agent_framework import ChatResponse

from callgate.engine import Engine
from callgate.integrations.framework_call import FrameworkCall

__all__ = ["remember_calls", "warn_of_lost_record"]

log = logging.getLogger("callgate")
_LOST_RECORD = (
    "The approved call of %s is from a response of the model that this engine has not seen, such as one of another process, but the journal"
    " of the engine is in memory, so it does not know whether the call was made before: then it is made again, also with a key. Give the"
    " engine a journal that survives: Engine(journal=SqliteJournal('calls.db')). This is said once for each engine."
)
_MOST_CALLS = 100_000
_calls: WeakKeyDictionary[Engine, dict[str, None]] = WeakKeyDictionary()
"""The ids of the latest `_MOST_CALLS` calls in the responses that each engine with a journal in memory has seen."""
_warned: WeakSet[Engine] = WeakSet()


def remember_calls(engine: Engine, response: ChatResponse[Any]) -> None:
    """Remember the calls in a response of the model."""
    if engine.journal.strength != "memory" or engine in _warned:
        return
    contents = [content for message in response.messages for content in message.contents if content.type == "function_call"]
    seen = _calls.setdefault(engine, {})
    seen.update((content.call_id, None) for content in contents if content.call_id)
    for call_id in list(islice(seen, max(0, len(seen) - _MOST_CALLS))):
        del seen[call_id]


def warn_of_lost_record(engine: Engine, call: FrameworkCall) -> None:
    """Log that nothing is known of an approved call, unless it was logged before."""
    if engine.journal.strength != "memory" or engine in _warned or call.id in _calls.get(engine, ()):
        return
    tool = engine.tools.get(call.name)
    if tool is not None and tool.effect != "none":
        _warned.add(engine)
        _calls.pop(engine, None)
        log.warning(_LOST_RECORD, call.name)
