"""Lets the code of a LangChain tool start once in a call, also if middleware inside the route runs the tool again.

The engine does not see what middleware behind `CallgateMiddleware` does, such as the retries of `ToolRetryMiddleware`. A tool tells its
callbacks each start, so a callback can refuse the second one. Must not know of engines.
"""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

__all__ = ["OneStart"]


class OneStart(BaseCallbackHandler):
    """Refuses each start of a tool's code but the first in one call.

    Args:
        request: The request of the call.
    """

    raise_error = True
    run_inline = True

    def __init__(self, request: ToolCallRequest) -> None:
        self._has_started = self._was_refused = False
        self._failed_with: BaseException | None = None
        tool = request.tool
        if tool is not None:
            own = tool.callbacks.handlers if isinstance(tool.callbacks, BaseCallbackManager) else tool.callbacks or []
            request = request.override(tool=tool.model_copy(update={"callbacks": [*own, self]}))
        self.request = request
        """The request with a copy of its tool that has this callback."""

    def on_tool_start(self, *given: Any, **options: Any) -> None:
        """Note the first start, and raise `RuntimeError` for each other one."""
        if self._has_started:
            self._was_refused = True
            raise RuntimeError("The tool was not started again, because its effect is `once` and it may have taken effect.")
        self._has_started = True

    def on_tool_error(self, error: BaseException, **options: Any) -> None:
        self._failed_with = error

    def checked(self, output: Any) -> Any:
        """Return the output of the middleware, unless it only says that later starts have failed: then raise the error of the first one."""
        if self._was_refused and self._failed_with is not None and isinstance(output, ToolMessage) and output.status == "error":
            raise self._failed_with
        return output
