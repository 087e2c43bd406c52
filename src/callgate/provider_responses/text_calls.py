"""Say that a model wrote a call as text, which its server has not made a call of: the host would take it for the answer.

The call is never run. It may be a quotation, such as one of a mail that a tool has returned, which only the agent loop can tell.
"""

from __future__ import annotations

import logging
import re

from callgate.messages import AssistantMessage
from callgate.tools.registry import ToolRegistry

__all__ = ["TextCallWarning"]

log = logging.getLogger("callgate")
_MAY_BE_CALL = re.compile(r'<tool_call>|\[TOOL_CALLS\]|"(?:name|tool|function)"\s*:')
"""Matches in texts that are worth reading: most answers have none of this."""
_MOST_CHARS = 4_096
"""Longer texts are not read, because reading would hold up the event loop."""


class TextCallWarning:
    """Logs, once, a call in a text.

    Args:
        tools: The tools. A call of another tool is not mentioned.
    """

    def __init__(self, tools: ToolRegistry) -> None:
        self._tools = tools
        self._has_warned = False

    def warn_once(self, message: AssistantMessage) -> None:
        """Log that a message without calls, which has ended, has a call in its text."""
        text = message.text
        if self._has_warned or message.calls or len(text) > _MOST_CHARS or not _MAY_BE_CALL.search(text):
            return
        if not any(name in text for name in self._tools.names()):
            return
        from callgate.models.dialects import read_text

        found = read_text(text, {tool.name: tool.schema.source for tool in self._tools}).calls
        name = next((call.name for call in found if self._tools.get(call.name) is not None), None)
        if name is None:
            return
        self._has_warned = True
        log.warning(
            "A message of %s has a call of '%s' as text, which is not run: neither the model nor its server has made a call of it. If the"
            " model often does so, use callgate.agent.Agent(text_calls='fallback'), or read the text with"
            " callgate.models.dialects.read_text and run the call with engine.call_many. This is said once for each engine.",
            message.api,
            name,
        )
