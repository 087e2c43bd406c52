"""GLM 4.5 to 4.7, Ling 3, Poolside, Spark; Step-Audio 2 with JSON inside: the name, then alternating keys and values.

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
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.schema_matching import peek_known_name
from callgate.models.dialects.tag_values import TURN_ENDS, ValueTags, is_message_end, read_value
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import has_parameter, json_object, parameter_schema, to_typed_json

__all__ = ["GLM", "KeyValueReader"]

Schema = Mapping[str, object]
_WORD = re.compile(r"[\w.\-/:]+")
_WORD_CHARS = re.compile(r"[\w.\-/:]*")
_NAME = re.compile(r"[^<{\n]*")
_SPACE = re.compile(r"\s*")
_CALL_TYPE = "function"


class KeyValueReader:
    """Reads alternating keys and values.

    Args:
        end: The tag that closes a call.
        prefix: What the family's tags begin with.
        suffix: What the family's tags end with.
        is_wrapped: Whether a tag around all calls proves that a word is the name of a tool, even of an unknown one.
    """

    def __init__(self, end: str, *, prefix: str = "", suffix: str = "", is_wrapped: bool = False) -> None:
        self._is_wrapped = is_wrapped
        self._type, self._end_type = f"<{prefix}arg_type{suffix}>", f"</{prefix}arg_type{suffix}>"
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
            value_followers=(self._key, self._end, self._begin, *TURN_ENDS),
        )
        self._separator = f"<tool_sep{suffix}>"

    def __call__(self, cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
        spaced = (yield from cursor.at(" ")) and not self._is_wrapped
        yield from cursor.skip_space()
        name, key = yield from self._read_unopened_key(cursor, tools, (yield from self._read_name(cursor, tools)))
        if not tools.is_name(name):
            raise NotACall
        if (yield from cursor.peek()) == "{":
            if not _WORD.fullmatch(name):
                raise NotACall
            yield (yield from self._read_json_call(cursor, name))
            return
        members = yield from self._read_members(cursor, tools.schema(name), key)
        is_certain = tools.has(name) or self._is_wrapped or (tools.is_empty and _WORD.fullmatch(name))
        if not members and (spaced or not is_certain):
            raise NotACall
        yield from self._read_end(cursor, name, members)

    def _read_name(self, cursor: TextCursor, tools: KnownTools) -> Incremental[str]:
        """Read the name and the space after it.

        A line with the type of the call, `function`, may come before the name, and an angle bracket between it and an object.
        """
        name = tools.clean_name((yield from cursor.take_while(_NAME)))
        if name.endswith(">") and (yield from cursor.at("{")):
            return tools.clean_name(name[:-1])
        yield from cursor.take(self._separator)
        yield from cursor.skip_space()
        if name != _CALL_TYPE or tools.has(name) or (yield from cursor.peek()) in ("{", "<"):
            return name
        name = tools.clean_name((yield from cursor.take_while(_NAME)))
        yield from cursor.skip_space()
        return name

    def _read_unopened_key(self, cursor: TextCursor, tools: KnownTools, name: str) -> Incremental[tuple[str, str]]:
        """Return the tool's name and the first key, if the opening tag between them is missing or is the one of a call; else an empty key.

        Both must be known.
        """
        if (yield from cursor.take(self._begin)):
            pairs = [(name, (yield from cursor.take_while(_WORD_CHARS)))]
        elif len(name) <= MAX_HEADER_CHARS and not tools.has(name) and (yield from cursor.at(self._end_key)):
            pairs = [(name[:end], name[end:].strip()) for end in range(1, len(name)) if name[end - 1] != " "]
        else:
            return name, ""
        known = [(tool, key) for tool, key in pairs if tools.has(tool) and key and has_parameter(tools.schema(tool), key)]
        if len(known) != 1 or not (yield from cursor.at(self._end_key)):
            raise NotACall
        return known[0]

    def read_without_opener(self, cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
        """Read a call whose opening tag is missing: a name that a key follows."""
        yield from cursor.skip_space()
        if not tools.is_empty and not (yield from peek_known_name(cursor, tools)):
            raise NotACall
        name = yield from cursor.take_while(_WORD_CHARS)
        yield from cursor.skip_space()
        if not tools.may_call(name) or not (yield from cursor.at(self._key)):
            raise NotACall
        yield from self._read_end(cursor, tools.clean_name(name), (yield from self._read_members(cursor, tools.schema(name))))

    def _read_end(self, cursor: TextCursor, name: str, members: Mapping[str, str]) -> ParsedCalls:
        if (yield from cursor.take(self._end)) or (members and (yield from cursor.at(self._begin))):
            yield FoundCall(name=name, arguments=json_object(members))
        elif members and (yield from is_message_end(cursor)):
            yield FoundCall(name=name, arguments=json_object(members), closed="finished")
        else:
            raise NotACall

    def _read_json_call(self, cursor: TextCursor, name: str) -> Incremental[FoundCall]:
        text = normalise_arguments((yield from read_arguments(cursor, self._end, stops=(self._begin,))))
        yield from cursor.skip_space()
        if (yield from cursor.take(self._end)) or (yield from cursor.at(self._begin)):
            return FoundCall(name=name, arguments=text)
        if not (yield from is_message_end(cursor)):
            raise NotACall
        return FoundCall(name=name, arguments=text, closed="finished")

    def _read_members(self, cursor: TextCursor, schema: Schema | None, key: str = "") -> Incremental[dict[str, str]]:
        """Return the keys and their values as JSON; `key` is the first one, if it was read.

        If a key is repeated, its last value counts. A tag that is not closed ends at the next tag. A tag around a key may be written twice.
        """
        members: dict[str, str] = {}
        while key or (yield from cursor.take(self._key)):
            marker = self._end_key
            if not key:
                yield from cursor.take(self._key)
                header, marker = yield from cursor.read_until(self._end_key, self._value, limit=MAX_HEADER_CHARS)
                key = header.strip()
            kind, is_open = (yield from self._read_before_value(cursor)) if marker == self._end_key else (None, True)
            value = yield from (read_value(cursor, self._tags, schema, key) if is_open else self._read_unopened_value(cursor))
            members[key] = to_typed_json(value, parameter_schema(schema, key) or kind, schema)
            key = ""
            yield from cursor.skip_space()
        return members

    def _read_before_value(self, cursor: TextCursor) -> Incremental[tuple[Schema | None, bool]]:
        """Read what stands between a key and its value. Return the value's type, and whether the value has its opening tag."""
        yield from cursor.take(self._end_key)
        colon = yield from cursor.take(":")
        space = yield from cursor.take_while(_SPACE)
        yield from cursor.take("\\n")
        kind = yield from self._read_type(cursor)
        is_open = bool((yield from cursor.take(self._value)))
        if not is_open and (colon or space not in ("", "\n")):  # they may belong to the value
            raise NotACall
        return kind, is_open

    def _read_unopened_value(self, cursor: TextCursor) -> Incremental[str]:
        """Read a value whose opening tag is missing. Its closing tag must be the next tag, and be where a value may end."""
        value, marker = yield from cursor.read_until(self._end_value, self._value, self._key, self._end, self._begin)
        if marker != self._end_value or not (yield from cursor.is_followed_by("", *self._tags.value_followers)):
            raise NotACall
        return value

    def _read_type(self, cursor: TextCursor) -> Incremental[Schema | None]:
        """Read the tag with a value's type, if there is one."""
        if not (yield from cursor.take(self._type)):
            return None
        kind, _ = yield from cursor.read_until(self._end_type, limit=MAX_HEADER_CHARS)
        yield from cursor.skip_space()
        return {"type": kind.partition("[")[0].strip()}


_READER = KeyValueReader("</tool_call>")
GLM = Dialect(
    name="glm",
    families="GLM 4.5 to 4.7, Ling 3, Poolside, Spark; Step-Audio 2 with JSON inside",
    example="<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
    openers=("<tool_call>",),
    read=_READER,
    read_first=_READER.read_without_opener,
    ignored_markers=("<|observation|>", "<|user|>", "<|role_end|>"),
)
