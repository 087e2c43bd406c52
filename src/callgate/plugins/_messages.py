"""The messages of the plugin protocol: one JSON object in each line, whose `kind` says what it is. Pure.

A plugin's messages are untrusted. A kind that is not known is not an error, so that newer plugins work with older engines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from callgate._runners.returned_content import part_data
from callgate._server_processes.content_items import content_part, is_content
from callgate._server_processes.json_lines import UnreadableJson, answered_ids, encoded, read_json
from callgate._server_processes.server_errors import ProtocolError
from callgate.content_parts import Part, Text
from callgate.plugins.manifest import ToolSettings
from callgate.protocols import Execution
from callgate.tools.effect_evidence import Evidence

__all__ = ["Message", "UnreadableFrame", "described_tools", "encoded", "execution_of", "message_id", "read_frame"]

Message = dict[str, Any]
_ANSWER_KEYS = frozenset({b'"value"', b'"content"', b'"message"'})
_MOST_TOOLS = 1_000


class UnreadableFrame(Exception):
    """A line that is not a message.

    Args:
        why: A short text.
        code: The exact reason.
        answers: The ids of the calls that it seems to answer. Without any, it is noise.
    """

    def __init__(self, why: str, code: str = "protocol_error", answers: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.code = code
        self.answers = answers


def read_frame(data: bytes | bytearray) -> Message:
    """Return the message in a line.

    Raises:
        UnreadableFrame: It is none.
    """
    try:
        value = read_json(data)
    except UnreadableJson as error:
        raise UnreadableFrame(str(error), error.code, answered_ids(data, _ANSWER_KEYS)) from None
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise UnreadableFrame("it is not a JSON object with a kind")
    return value


def message_id(message: Message) -> int | None:
    """Return the id of the call that a message belongs to; None if it is not an integer."""
    found = message.get("id")
    return found if type(found) is int else None  # not True, which is equal to 1


def described_tools(plugin: str, given: object) -> tuple[ToolSettings, ...]:
    """Return the tools that a plugin describes. Unknown keys are ignored.

    Raises:
        ProtocolError: The description is none.
    """
    try:
        tools = msgspec.convert(given, tuple[ToolSettings, ...], strict=True)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"The plugin '{plugin}' describes its tools in a form that cannot be used: {error}.") from error
    for tool in tools:
        if not isinstance(tool.input_schema, dict) or isinstance(tool.output_schema, str):
            raise ProtocolError(f"The plugin '{plugin}' describes the tool {tool.name[:128]!r} without an input_schema that is an object.")
    if len(tools) > _MOST_TOOLS:
        raise ProtocolError(f"The plugin '{plugin}' describes {len(tools)} tools; the maximum is {_MOST_TOOLS}.")
    names = set[str]()
    for tool in tools:
        if tool.name in names:
            raise ProtocolError(f"The plugin '{plugin}' describes the tool {tool.name[:128]!r} twice.")
        names.add(tool.name)
    return tools


def execution_of(plugin: str, answer: Message) -> Execution:
    """Return the execution of a call that the plugin has answered.

    Raises:
        ProtocolError: The answer does not have a form that the protocol defines.
    """
    if answer["kind"] == "error":
        return _failure(plugin, answer)
    changes: list[str] = []
    if "content" not in answer:
        if "value" not in answer:
            raise ProtocolError(f"The plugin '{plugin}' sent a result without a value and without content.")
        return Execution(status="returned", value=answer["value"], read=True)
    content = answer["content"]
    if not is_content(content):
        raise ProtocolError(f"The plugin '{plugin}' sent a result whose content is not a list of parts.")
    parts = tuple(content_part(item, changes) for item in content)
    value, parts = (answer["value"], parts) if "value" in answer else _decode_value(parts)
    return Execution(status="returned", value=value, content=parts, read=True, changes=tuple(changes))


def _decode_value(parts: tuple[Part, ...]) -> tuple[object, tuple[Part, ...]]:
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text, ()
    return [part_data(part) for part in parts], parts


def _failure(plugin: str, answer: Mapping[str, Any]) -> Execution:
    """Return the execution of a call whose tool has failed, as if it had raised in the engine's process."""
    text, code, wait_s = answer.get("message"), answer.get("code"), answer.get("retry_after_s")
    if not isinstance(text, str):
        raise ProtocolError(f"The plugin '{plugin}' sent an error without a message.")
    if answer.get("done") is True:
        return Execution(status="returned", failure=text, read=True)
    again_s = float(wait_s) if isinstance(wait_s, (int, float)) and not isinstance(wait_s, bool) and 0 <= wait_s < math.inf else None
    unsent, not_done = answer.get("not_sent") is True, answer.get("not_done") is True
    return Execution(
        status="raised",
        error=text,
        error_type=code if isinstance(code, str) else "",
        evidence=_evidence(unsent=unsent, not_done=not_done, again=again_s is not None),
        not_started=(unsent or not_done) and again_s is not None,
        retryable=again_s is not None,
        retry_after_s=again_s,
    )


def _evidence(*, unsent: bool, not_done: bool, again: bool) -> Evidence:
    """Return what a failure proves: the same as `NotDone` and `Retryable` of a tool in the engine's process."""
    if unsent or (not_done and again):
        return "not_sent"
    if not_done:
        return "not_done"
    return "reply_lost" if again else ""
