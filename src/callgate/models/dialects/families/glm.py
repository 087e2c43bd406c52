"""GLM 4.5 to 4.7, Ling 3, Poolside: the name, then alternating keys and values.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

Source: the chat template of GLM-4.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments
from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.tag_values import TURN_ENDS, ValueTags, read_value
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import json_object, parameter_schema, to_typed_json

__all__ = ["GLM", "KeyValueReader"]

Schema = Mapping[str, object]
_WORD = re.compile(r"[\w.\-/:]+")
_NAME = re.compile(r"[^<{\n]*")


class KeyValueReader:
    """Reads alternating keys and values. The family's tags may have a prefix or a suffix."""

    def __init__(self, end: str, *, prefix: str = "", suffix: str = "") -> None:
        self._key, self._end_key = f"<{prefix}arg_key{suffix}>", f"</{prefix}arg_key{suffix}>"
        self._value, self._end_value = f"<{prefix}arg_value{suffix}>", f"</{prefix}arg_value{suffix}>"
        self._end, self._begin = end, f"<{end[2:]}"
        self._tags = ValueTags(
            call=(self._begin,),
            end=(self._end,),
            parameter=(self._key,),
            end_parameter=(self._end_value,),
            end_name=self._end_key,
            call_followers=(self._begin, *TURN_ENDS),
        )
        self._separator = f"<tool_sep{suffix}>"

    def __call__(self, cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
        spaced = yield from cursor.at(" ")
        yield from cursor.skip_space()
        name = tools.clean_name((yield from cursor.take_while(_NAME)))
        yield from cursor.take(self._separator)
        yield from cursor.skip_space()
        if not name or len(name) > MAX_NAME_CHARS:
            raise NotACall
        if (yield from cursor.peek()) == "{":
            if not _WORD.fullmatch(name):
                raise NotACall
            yield (yield from self._read_json_call(cursor, name))
            return
        members = yield from self._read_members(cursor, tools.schema(name))
        if not members and (spaced or not (tools.has(name) or (tools.is_empty and _WORD.fullmatch(name)))):
            raise NotACall
        if (yield from cursor.take(self._end)) or (members and (yield from cursor.at(self._begin))):
            yield FoundCall(name=name, arguments=json_object(members))
        elif members and not cursor.truncated and not (yield from cursor.peek()):
            yield FoundCall(name=name, arguments=json_object(members), closed="finished")
        else:
            raise NotACall

    def _read_json_call(self, cursor: TextCursor, name: str) -> Incremental[FoundCall]:
        text = yield from cursor.read_bracketed()
        yield from cursor.skip_space()
        yield from cursor.expect(self._end)
        return FoundCall(name=name, arguments=normalise_arguments(text))

    def _read_members(self, cursor: TextCursor, schema: Schema | None) -> Incremental[dict[str, str]]:
        """Return the keys and their values as JSON.

        If a key is repeated, its last value counts. A tag that is not closed ends at the next tag.
        """
        members: dict[str, str] = {}
        while (yield from cursor.take(self._key)):
            key, marker = yield from cursor.read_until(self._end_key, self._value)
            if marker == self._end_key:
                yield from cursor.skip_space()
                yield from cursor.take("\\n")
                yield from cursor.expect(self._value)
            members[key.strip()] = to_typed_json(
                (yield from read_value(cursor, self._tags, schema)), parameter_schema(schema, key.strip()), schema
            )
            yield from cursor.skip_space()
        return members


GLM = Dialect(
    name="glm",
    families="GLM 4.5 to 4.7, Ling 3, Poolside",
    example="<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
    openers=("<tool_call>",),
    read=KeyValueReader("</tool_call>"),
    ignored_markers=("<|observation|>", "<|role_end|>"),
)
