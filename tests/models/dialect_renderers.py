"""One call, written as each family of models writes it, with any arguments."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["RENDERERS"]

Arguments = Mapping[str, Any]
Renderer = Callable[[str, Arguments], str]


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_text(value: Any) -> str:
    """Return text as it is, and any other value as JSON: what stands between tags."""
    return value if isinstance(value, str) else as_json(value)


def tagged(arguments: Arguments, form: str) -> str:
    """Write each argument in `form`, with `KEY` and `VALUE` replaced."""
    return "".join(form.replace("KEY", key).replace("VALUE", as_text(value)) for key, value in arguments.items())


def python_call(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma_value(inner)}" for key, inner in value.items()) + "}"
    return f"[{','.join(map(gemma_value, value))}]" if isinstance(value, list) else as_json(value)


def minimax_tags(value: Any, tag: str) -> str:
    token = "]<]minimax[>["
    if isinstance(value, dict):
        inner = "".join(minimax_tags(one, key) for key, one in value.items())
    else:
        inner = "".join(minimax_tags(one, "item") for one in value) if isinstance(value, list) else as_text(value)
    return f"{token}<{tag}>{inner}{token}</{tag}>"


def kimi_k3(name: str, arguments: Arguments) -> str:
    inner = "".join(
        f'<|open|>argument key="{key}" type="{"string" if isinstance(value, str) else "object"}"<|sep|>'
        f"{as_text(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{inner}<|close|>call<|sep|>'


def json_call(form: str, **keys: str) -> Renderer:
    """Write an object with a name and arguments where `form` has @."""
    name_key, arguments_key = keys.get("name", "name"), keys.get("arguments", "arguments")
    return lambda name, arguments: form.replace("@", as_json({name_key: name, arguments_key: arguments}))


def named_json(form: str) -> Renderer:
    """Write the name where `form` has NAME and the arguments as JSON where it has JSON."""
    return lambda name, arguments: form.replace("NAME", name).replace("JSON", as_json(arguments))


def named_tags(form: str, parameter: str) -> Renderer:
    return lambda name, arguments: form.replace("NAME", name).replace("PARAMETERS", tagged(arguments, parameter))


def in_python(form: str) -> Renderer:
    return lambda name, arguments: form.replace("@", python_call(name, arguments))


INVOKE = '<invoke name="NAME">\nPARAMETERS</invoke>'
PARAMETER = '<parameter name="KEY">VALUE</parameter>\n'
RENDERERS: dict[str, Renderer] = {
    "hermes": json_call("<tool_call>\n@\n</tool_call>"),
    "qwen-xml": named_tags("<tool_call>\n<function=NAME>\nPARAMETERS</function>\n</tool_call>", "<parameter=KEY>\nVALUE\n</parameter>\n"),
    "glm": named_tags("<tool_call>NAME\nPARAMETERS</tool_call>", "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"),
    "granite": json_call("<|tool_call|>[@]"),
    "jamba": json_call("<tool_calls>[@]</tool_calls>"),
    "hunyuan": named_tags(
        "<tool_calls><tool_call>NAME<tool_sep>PARAMETERS</tool_call></tool_calls>", "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>"
    ),
    "mistral": named_json("[TOOL_CALLS]NAME[ARGS]JSON"),
    "deepseek": named_json("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>JSON<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    "deepseek-dsml": lambda name, arguments: (
        f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="{name}">\n'
        + "".join(
            f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{as_text(value)}</｜DSML｜parameter>\n'
            for key, value in arguments.items()
        )
        + "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
    "harmony": named_json("<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>JSON<|call|>"),
    "muse": named_tags(
        '<atem:function_calls><atem:invoke name="NAME">PARAMETERS</atem:invoke></atem:function_calls>',
        '<atem:parameter name="KEY">VALUE</atem:parameter>',
    ),
    "kimi-k2": named_json("<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>JSON<|tool_call_end|>"),
    "kimi-k3": kimi_k3,
    "k2-horizon": named_tags(
        "<ifm|tool_calls><ifm|tool_call>NAMEPARAMETERS</ifm|tool_call></ifm|tool_calls>",
        "<ifm|arg_key>KEY</ifm|arg_key><ifm|arg_value>VALUE</ifm|arg_value>",
    ),
    "minimax-m2": named_tags(f"<minimax:tool_call>\n{INVOKE}\n</minimax:tool_call>", PARAMETER),
    "minimax-m3": lambda name, arguments: (
        f']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="{name}">'
        + "".join(minimax_tags(value, key) for key, value in arguments.items())
        + "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
    ),
    "llama-python-tag": json_call("<|python_tag|>@<|eom_id|>", arguments="parameters"),
    "lfm2": in_python("<|tool_call_start|>[@]<|tool_call_end|>"),
    "olmo-xml": in_python("<function_calls>@</function_calls>"),
    "other-xml": named_tags(f"<function_calls>\n{INVOKE}\n</function_calls>", PARAMETER),
    "minicpm": lambda name, arguments: (
        f'<function name="{name}">'
        + "".join(f'<param name="{key}">{html.escape(as_text(value))}</param>' for key, value in arguments.items())
        + "</function>"
    ),
    "gemma": lambda name, arguments: f"<|tool_call>call:{name}{gemma_value(dict(arguments))}<tool_call|>",
    "gemma-bare": lambda name, arguments: f"call:{name}{gemma_value(dict(arguments))}<tool_call|>",
    "cohere": json_call("<|START_ACTION|>[@]<|END_ACTION|>", name="tool_name", arguments="parameters"),
    "apertus": lambda name, arguments: f"<|tools_prefix|>[{as_json({name: dict(arguments)})}]<|tools_suffix|>",
    "nemotron": json_call("<TOOLCALL>[@]</TOOLCALL>"),
    "internlm": json_call("<|action_start|><|plugin|>@<|action_end|>", arguments="parameters"),
    "gigachat": json_call("<|message_sep|>\n\nfunction call<|role_sep|>\n@"),
    "inkling": json_call("<|content_invoke_tool_json|>@<|end_message|>", arguments="args"),
    "longcat": json_call("<longcat_tool_call>@</longcat_tool_call>"),
    "lm-studio": json_call("[TOOL_REQUEST]@[END_TOOL_REQUEST]"),
    "phi4": json_call("functools[@]"),
    "functionary": named_json("<|recipient|>NAME\n<|content|>JSON<|stop|>"),
    "solar": named_json("<|tool_call:begin|>1<|tool_call:name|>NAME<|tool_call:args|>JSON<|tool_call:end|>"),
    "qwen-agent": named_json("✿FUNCTION✿: NAME\n✿ARGS✿: JSON"),
    "iquest": named_tags(
        "<iquestcoder_tool_call>NAMEPARAMETERS</iquestcoder_tool_call>", "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>"
    ),
    "plamo": named_json(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>NAME<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>JSON<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
    ),
    "hyperclova": json_call("<|im_start|>assistant -> tool/function_call\n[@]<|im_end|>"),
    "bracketed": named_json("[Calling tool: NAME(JSON)]"),
    "react": named_json("Action: NAME\nAction Input: JSON"),
    "tool-code": in_python("```tool_code\n@\n```"),
    "fenced-json": json_call("```json\n@\n```", name="tool", arguments="parameters"),
    "json-in-tags": json_call("<tool>@</tool>"),
    "bare-json": json_call("@", name="tool", arguments="parameters"),
    "pythonic": in_python("[@]"),
    "json-in-text": json_call("Let me look: @"),
}
"""By dialect."""
