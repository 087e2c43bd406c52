"""Texts of models: the tools that they call, one example per dialect, and texts without a call."""

from __future__ import annotations

import json
from typing import Any

from callgate.models.dialects import DIALECTS, ParsedText

__all__ = ["EXAMPLES", "NOTATIONS", "NO_CALLS", "SEARCH", "TOOLS", "WEATHER", "calls_in"]

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "indoors": {"type": "boolean"},
        "tags": {"type": "array"},
        "extra": {"type": "object"},
    },
    "required": ["city"],
}
TOOLS: dict[str, Any] = {
    "get_weather": WEATHER,
    "search": {"type": "object", "properties": {"query": {"type": "string"}}},
    "now": {"type": "object", "properties": {}},
}
SEARCH = '{"name": "search", "arguments": {"query": "x"}}'
NO_CALLS = {
    "a sentence": 'To call it, write {"tool": "search", "parameters": {"query": "x"}} and wait.',
    "a sentence that begins so": '{"tool": "search", "parameters": {"query": "x"}} is what you write.',
    "inline code": 'Write `<tool_call>{"name": "search", "arguments": {}}</tool_call>` for it.',
    "quotes": 'Write "<tool_call>{"name": "search", "arguments": {}}</tool_call>" for it.',
    "another language": '```python\n{"tool": "search", "parameters": {"query": "x"}}\n[search(query="x")]\n```',
    "a shell": '```sh\n<tool_call>{"name": "search", "arguments": {}}</tool_call>\n```',
    "an answer": '{"name": "Alice", "arguments": {"for": "it"}}',
    "an answer with more": '{"name": "search", "arguments": {"query": "x"}, "age": 3}',
    "a tool's definition": '{"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}',
    "a list of definitions": '[{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]',
    "a definition in a fence": '```json\n{"name": "search", "parameters": {"type": "object", "required": ["query"]}}\n```',
    "a name alone": '{"name": "search"}',
    "no tool": "Action: None\nAction Input: {}",
    "another tool": 'Action: dance\nAction Input: {"how": "well"}',
    "a call that a sentence goes on behind": 'search(query="x") is what I would write.',
    "a comment": '<tool_call>so it is called {"name": "search", "arguments": {}}</tool_call>',
    "a call in a list of steps": '1. search(query="x")\n2. now()',
    "a call of what does not fit": 'search(colour="red")',
    "a tool's name and what does not fit": 'search\n{"colour": "red"}',
    "a tool's name and a sentence": "search\nis a tool",
    "an action of another tool": "Action: dance[well]",
    "an action with too little": "Action: get_weather[]",
    "a final answer": 'Final Answer: so it is\nAction: search\nAction Input: {"query": "x"}',
    "an answer in JSON": 'Final Answer:\n{"tool": "search", "parameters": {"query": "x"}}',
    "a thought": '<think><tool_call>{"name": "search", "arguments": {}}</tool_call></think>Rather not.',
    "lists": "[1] says [that](http://x) and [others(etc)] do.",
    "other calls": "[dance(how='well')]",
    "a tag": "Put it into <tool_call> and </tool_call>.",
    "XML of others": '<function name="dance"><param name="how">well</param></function>',
    "XML without an end": '<function name="search"><param name="query">x</param>',
    "XML that does not fit": '<function name="search"><param name="colour">red</param></function>',
    "a line in quotes": f'You would write:\n"{SEARCH}"\nThat is all.',
    "a line in other quotes": f"You would write:\n\u201c{SEARCH}\u201d\nThat is all.",
    "a line in backticks": f"You would write:\n`{SEARCH}`\nThat is all.",
    "a quotation": f"They wrote:\n> {SEARCH}\n\nThat is all.",
    "a quotation of several lines": f'They wrote:\n>{{"name": "search",\n> "arguments": {{}}}}\n> <tool_call>{SEARCH}</tool_call>',
    "a quotation of marks": f"They wrote:\n> <tool_call>{SEARCH}</tool_call>\nThat is all.",
    "lines between quotes": f'The prompt says\n"""\n{SEARCH}\n"""\nand no more.',
    "an example": f"For example:\n{SEARCH}\n\nThat would look for x.",
    "an example in code": f"Here is an example of a call:\n\n    {SEARCH}\n\nThat would look for x.",
    "an example in a fence": f"**Example:**\n```json\n{SEARCH}\n```\nThat would look for x.",
    "two examples": f"Some examples:\n{SEARCH}\n\n{SEARCH}",
    "an example over lines": 'To look for x, for instance, write:\n{\n  "name": "search",\n  "arguments": {"query": "x"}\n}',
    "an example in another language": f"Zum Beispiel:\n{SEARCH}",
    "an example with marks": f"For example:\n\n<tool_call>{SEARCH}</tool_call>\n\nThat would look for x.",
    "an example with marks on its line": f"For example: <tool_call>{SEARCH}</tool_call> would look for x.",
    "an example with marks in a fence": f"Here is an example:\n```xml\n<tool_call>\n{SEARCH}\n</tool_call>\n```\nThat would look for x.",
    "marks in a fence without a language": f"For example:\n```\n<tool_call>{SEARCH}</tool_call>\n```\n",
    "how it is called": f"To call it, use:\n```json\n{SEARCH}\n```\nThen wait.",
    "how you call it": f"It is a tool. You can also call it:\n\n{SEARCH}",
    "how a call looks": f"1. A call looks like this: <tool_call>{SEARCH}</tool_call>",
    "a plan on lines of its own": f'{{\n  "steps": [\n    {SEARCH},\n    {SEARCH}\n  ]\n}}',
    "a plan on one line": f'{{"steps": [1, {SEARCH}]}}',
    "a plan with brackets in its text": f'Here:\n{{\n  "a": "it\\"s {{",\n  "b":\n    {SEARCH}\n}}',
    "a list with other things": f'[\n  "x",\n  {SEARCH}\n]',
    "marks that are spoken of": f"When you write <tool_call>{SEARCH}</tool_call> in a message, it is run.",
    "marks that are spoken of for example": f"It takes JSON, e.g. <tool_call>{SEARCH}</tool_call> for x.",
    "a call that ends a sentence about it": f"It is called with <tool_call>{SEARCH}</tool_call>.",
    "marks between two backticks each": f"Write ``<tool_call>{SEARCH}</tool_call>`` for it.",
    "marks between backticks that hold one": f"Write `` ` <tool_call>{SEARCH}</tool_call>`` for it.",
}
NOTATIONS = {
    "marked": f"\n<tool_call>{SEARCH}</tool_call>",
    "on the same line": f" <tool_call>{SEARCH}</tool_call>",
    "JSON": f"\n{SEARCH}",
    "JSON in a fence": f"\n\n```json\n{SEARCH}\n```\n",
    "marked in a fence": f"\n```xml\n<tool_call>\n{SEARCH}\n</tool_call>\n```",
    "tags in a fence": "\n```\n<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n</tool_call>\n```",
    "Python": '\n\n[search(query="x")]',
    "a marker and a name": '\n[TOOL_CALLS]search[ARGS]{"query": "x"}',
}
"""A call, written in several ways, with the white space before it."""
EXAMPLES = [dialect.example for dialect in DIALECTS.values()]


def calls_in(reading: ParsedText) -> list[tuple[str, Any]]:
    """Return each call's name and its decoded arguments."""
    return [(call.name, json.loads(call.arguments, strict=False)) for call in reading.calls]
