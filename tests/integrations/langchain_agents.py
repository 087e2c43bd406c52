"""A chat model of LangChain that returns given messages, and agents that use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

__all__ = ["ScriptedChat", "call", "says", "tool_messages", "waiting"]

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


def call(name: str, id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(name=name, args=args, id=id, type="tool_call")


def says(*calls: ToolCall, text: str = "") -> AIMessage:
    return AIMessage(content=text, tool_calls=list(calls))


def tool_messages(result: Any) -> list[ToolMessage]:
    return [one for one in result["messages"] if isinstance(one, ToolMessage)]


def waiting(result: Any) -> list[str]:
    """Return the ids of the calls that the interrupts of a graph are about."""
    return [one["tool_call_id"] for each in result.get("__interrupt__", ()) for one in each.value.get("action_requests", [each.value])]
