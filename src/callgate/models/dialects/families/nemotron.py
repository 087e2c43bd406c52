"""Nemotron Nano 2 and Llama Nemotron: a list in capital tags.

    <TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>

Source: the chat template of NVIDIA-Nemotron-Nano-9B-v2.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["NEMOTRON"]

NEMOTRON = Dialect(
    name="nemotron",
    families="Nemotron Nano 2, Llama Nemotron",
    example='<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>',
    openers=("<TOOLCALL>",),
    read=MarkedJson("</TOOLCALL>"),
)
