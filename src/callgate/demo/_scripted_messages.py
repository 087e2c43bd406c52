"""Load the demonstrations' scripts: a model's messages, each a choice of an OpenAI chat completion.

`{{name}}` in arguments is replaced by a value of this run: the Python executable, the test command, the hash of an earlier result. A real
model would copy these from its prompt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from msgspec.structs import replace

from callgate.calls import RawCall

__all__ = ["ORIGIN", "Choice", "calls_of", "fill", "script"]

ORIGIN = "scripted model"

Choice = Mapping[str, Any]


def script(name: str) -> list[Choice]:
    """Return the choices of one script."""
    choices: list[Choice] = json.loads(files("callgate.demo").joinpath("_scripts", f"{name}.json").read_text(encoding="utf-8"))
    return choices


def calls_of(choice: Choice, known: Mapping[str, str]) -> list[RawCall]:
    """Return the calls of one message. The message's text becomes the reasoning of the first call."""
    message, calls = choice["message"], list[RawCall]()
    for item in message["tool_calls"]:
        function = item["function"]
        whole = item | {"function": function | {"arguments": fill(function["arguments"], known)}}
        raw = RawCall.from_openai(whole, finish_reason=choice["finish_reason"])
        calls.append(replace(raw, origin=ORIGIN, reasoning="" if calls else message["content"]))
    return calls


def fill(text: str, known: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced."""
    for name, value in {"python": sys.executable, **known}.items():
        text = text.replace("{{" + name + "}}", value)
    return text
