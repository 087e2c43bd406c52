"""One execution of a tool node of LangGraph, which is one task of the graph: its calls, and what they ask a human.

The tools of a node run in threads or tasks of their own, and find the execution in a context variable. Must not know the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt.tool_node import ToolCallRequest

from callgate.calls import Suspended
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.integrations._langgraph_calls import GraphCalls
from callgate.integrations._langgraph_order import MessageOrder, place_of
from callgate.integrations._langgraph_questions import AskedCall, TaskAnswers
from callgate.integrations.journaled_calls import recorded_call_id
from callgate.integrations.open_questions import find_paused_and_asked

__all__ = ["NodeExecution", "new_execution", "running"]

_MIXED = (
    "These calls of one message ask for answers in one task of the graph, and a tool of theirs calls interrupt(): %s. LangGraph hands out"
    " the answers of a task in order, so a call would read the answer to another one. Run each call in a task of its own: with an edge that"
    " returns [Send(node, [call]) for call in message.tool_calls], or with create_agent and CallgateMiddleware. This thread has the one"
    " task in its checkpoint: with the new edge, graph.update_state(config, None, as_node=NAME) plans its tasks again, with the name of the"
    " node from which the edge leads here; then go on with graph.invoke(None, config)."
)


class NodeExecution:
    """One execution of a node.

    Args:
        engine: The engine of the node.
        calls: Makes the calls of the node.
    """

    def __init__(self, engine: Engine, calls: GraphCalls) -> None:
        self._engine, self._calls = engine, calls
        self.answers = TaskAnswers(calls.messages_key)
        self.order = MessageOrder((), lambda name: False)
        self._waiting: list[AskedCall] = []
        """The calls that a human has to decide about."""
        self._requests: dict[str, ToolCallRequest] = {}
        self._paused: dict[str, GraphInterrupt] = {}
        """The interrupts by which tools have paused the graph, by the ids of their calls."""

    def take_questions(self) -> list[AskedCall]:
        """Return the calls that a human has to decide about, and forget all calls, because they are made again."""
        waiting, self._waiting, self._requests, self._paused = self._waiting, [], {}, {}
        return waiting

    @property
    def must_ask(self) -> bool:
        """Whether a call waits for a human, or its tool has paused the graph."""
        return bool(self._waiting or self._paused)

    def take_output(self, request: ToolCallRequest, output: Any) -> Any:
        """Return the output of a call. Keep the question of one that waits for a human, and return a placeholder for it."""
        call_id = str(request.tool_call["id"])
        self._requests[call_id] = request
        if isinstance(output, Suspended):
            self._waiting.append(AskedCall(request, output, self._calls.scope_of_request(request), self._calls.final_arguments(request)))
        elif isinstance(output, GraphInterrupt):
            self._paused[call_id] = output
        else:
            return output
        return ToolMessage(content="", tool_call_id=call_id)

    def raise_interrupt_of_a_tool(self) -> None:
        """Raise the interrupt with which a tool has paused the graph, if one has.

        LangGraph hands the answers of a task out in order, and a call with a stored result does not ask for its answer again. So only one
        call of a message can have interrupts of its own, and only if no other call asks a human.

        Raises:
            UsageError: Another call of the message has such interrupts, too, or asks a human, now or in an earlier execution.
        """
        if len(self._requests) > 1:
            request = next(iter(self._requests.values()))
            paused, asked = find_paused_and_asked(self._engine.journal, self._calls.scope_of_request(request))
            paused |= {recorded_call_id(one) for one in self._paused}
            involved = paused | asked.keys() | {recorded_call_id(str(one.call["id"])) for one in self._waiting}
            if paused and len(involved) > 1:
                made = [one.tool_call for one in sorted(self._requests.values(), key=lambda one: place_of(one, self._calls.messages_key))]
                calls = [one for one in made if recorded_call_id(str(one["id"])) in involved]
                raise UsageError(_MIXED % ", ".join(f"{one['name']} ({one['id']})" for one in calls))
        for pause in self._paused.values():
            raise pause


running: ContextVar[NodeExecution] = ContextVar("callgate execution of a tool node")


@contextmanager
def new_execution(engine: Engine, calls: GraphCalls) -> Iterator[NodeExecution]:
    """Return an execution that the tools of the node find in `running` until the block ends."""
    execution = NodeExecution(engine, calls)
    token = running.set(execution)
    try:
        yield execution
    finally:
        running.reset(token)
