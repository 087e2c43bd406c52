"""A chat model of LangChain that returns given messages, and a checkpointer that writes to a file."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

__all__ = ["FileSaver", "ScriptedChat", "call", "says", "tool_messages", "waiting"]

Step = AIMessage | Callable[[list[BaseMessage]], AIMessage]


class ScriptedChat(BaseChatModel):
    """Answers the nth message of a conversation with the nth step, counted by its own earlier messages."""

    steps: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        step = self.steps[sum(isinstance(one, AIMessage) for one in messages)]
        message = step.model_copy(deep=True) if isinstance(step, AIMessage) else step(messages)
        return ChatResult(generations=[ChatGeneration(message=message)])


class FileSaver(InMemorySaver):
    """Keeps all checkpoints in a file, too."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._lock = path, threading.Lock()

    def load(self) -> None:
        storage, self_writes, self_blobs = pickle.loads(self._path.read_bytes())
        for thread, spaces in storage.items():
            for space, checkpoints in spaces.items():
                self.storage[thread][space] = checkpoints
        self.writes.update(self_writes)
        self.blobs.update(self_blobs)

    def put(self, *given: Any) -> Any:
        return self._saved(super().put(*given))

    def put_writes(self, *given: Any) -> None:
        self._saved(super().put_writes(*given))

    def _saved(self, value: Any) -> Any:
        new = self._path.with_suffix(".new")
        with self._lock:  # `invoke` writes from several threads
            storage = {thread: {space: dict(one) for space, one in spaces.items()} for thread, spaces in self.storage.items()}
            new.write_bytes(pickle.dumps((storage, dict(self.writes), dict(self.blobs))))
            new.replace(self._path)
        return value


def call(name: str, id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(name=name, args=args, id=id, type="tool_call")


def says(*calls: ToolCall, text: str = "") -> AIMessage:
    return AIMessage(content=text, tool_calls=list(calls))


def tool_messages(result: Any) -> list[ToolMessage]:
    return [one for one in result["messages"] if isinstance(one, ToolMessage)]


def waiting(result: Any) -> list[str]:
    """Return the ids of the calls that the interrupts of a graph are about."""
    return [one["tool_call_id"] for each in result.get("__interrupt__", ()) for one in each.value.get("action_requests", [each.value])]
