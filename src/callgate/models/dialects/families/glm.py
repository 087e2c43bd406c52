"""GLM 4.5 to 4.7, Ling 3, Poolside: the name, then keys and values in turn.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

Source: the chat template of GLM-4.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.json_calls import argument_text
from callgate.models.dialects.names import MAX_NAME, ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.typed import as_object, parameter_schema, typed
from callgate.models.dialects.values import AFTER_A_CALL, ValueTags, read_value

__all__ = ["GLM", "PairReader"]

Schema = Mapping[str, object]
_WORD = re.compile(r"[\w.\-/:]+")
_NAME = re.compile(r"[^<{\n]*")


class PairReader:
    """Reads keys and values whose tags begin, or end, with something of the family's own."""

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
            followers=(self._begin, *AFTER_A_CALL),
        )
        self._separator = f"<tool_sep{suffix}>"

    def __call__(self, cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
        spaced = yield from cursor.at(" ")
        yield from cursor.white()
        name = tools.written((yield from cursor.run(_NAME)))
        yield from cursor.take(self._separator)
        yield from cursor.white()
        if not name or len(name) > MAX_NAME:
            raise NoCall
        if (yield from cursor.peek()) == "{":
            if not _WORD.fullmatch(name):
                raise NoCall
            yield (yield from self._json(cursor, name))
            return
        members = yield from self._members(cursor, tools.schema(name))
        if not members and (spaced or not (tools.has(name) or (tools.unknown and _WORD.fullmatch(name)))):
            raise NoCall
        if (yield from cursor.take(self._end)) or (members and (yield from cursor.at(self._begin))):
            yield Found(name=name, arguments=as_object(members))
        elif members and not cursor.cut and not (yield from cursor.peek()):
            yield Found(name=name, arguments=as_object(members), closed="finished")
        else:
            raise NoCall

    def _json(self, cursor: Cursor, name: str) -> Wait[Found]:
        text = yield from cursor.value()
        yield from cursor.white()
        yield from cursor.expect(self._end)
        return Found(name=name, arguments=argument_text(text))

    def _members(self, cursor: Cursor, schema: Schema | None) -> Wait[dict[str, str]]:
        """The keys and their values as JSON. Of two equal keys the last one counts; a tag that is not closed ends at the next."""
        members: dict[str, str] = {}
        while (yield from cursor.take(self._key)):
            key, mark = yield from cursor.until(self._end_key, self._value)
            if mark == self._end_key:
                yield from cursor.white()
                yield from cursor.take("\\n")
                yield from cursor.expect(self._value)
            members[key.strip()] = typed((yield from read_value(cursor, self._tags, schema)), parameter_schema(schema, key.strip()), schema)
            yield from cursor.white()
        return members


GLM = Dialect(
    name="glm",
    families="GLM 4.5 to 4.7, Ling 3, Poolside",
    example="<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
    openers=("<tool_call>",),
    read=PairReader("</tool_call>"),
    silent=("<|observation|>", "<|role_end|>"),
)
