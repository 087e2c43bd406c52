"""Demonstration 6: a result of a megabyte costs a small prompt, loses nothing, and can be read and searched."""

from __future__ import annotations

import hashlib
from typing import Any

from callgate._call_summary import CallSummary
from callgate.builtins import result_tools
from callgate.calls import Scope
from callgate.demo import tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, calls_in, raw, result_of
from callgate.engine import Engine

__all__ = ["large"]

_NEEDLE = "A-04711"


async def large(stage: DemoRun) -> list[Finding]:
    """Fetch a megabyte, find one order in it, and read the text around it. Then read all pages and compare."""
    async with stage.engine([tools.order_history, *result_tools(stage.blobs)]) as engine:
        whole = result_of(await engine.call(raw("order_history", customer="C-17"), stage.scope()))
        digest = whole.metadata.blob if whole is not None else None
        if digest is None:
            return [finding("the whole is kept by its hash", False, "there is no hash")]
        search = raw("search_result", digest=digest, query=_NEEDLE)
        found = _value(result_of(await engine.call(search, stage.scope(iteration=1))))
        matches = found.get("matches") or [{"offset": 0}]
        around = raw("read_result", digest=digest, offset=max(0, matches[0]["offset"] - 20), limit=240)
        await engine.call(around, stage.scope(iteration=2))
        stage.screen.pause()
        text = await _read_all(engine, stage.scope(iteration=3), digest)
    return _findings(calls_in(stage.journal), digest, text)


async def _read_all(engine: Engine, scope: Scope, digest: str) -> str:
    """Read every page of the result and return the texts."""
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = _value(result_of(await engine.call(raw("read_result", digest=digest, offset=offset, limit=12_000), scope)))
        pages.append(str(page.get("text", "")))
        offset = page.get("next_offset")
    return "".join(pages)


def _value(result: Any) -> dict[str, Any]:
    return result.data if result is not None and isinstance(result.data, dict) else {}


def _findings(calls: list[CallSummary], digest: str, text: str) -> list[Finding]:
    whole, search, around, *pages = calls
    shown = sum(len(part["text"].encode()) for part in whole.result["content"])
    found = search.result["structured"]["matches"]
    near = str(around.result["structured"]["text"])
    same = hashlib.sha256(text.encode()).hexdigest() == digest
    return [
        finding("the result has a megabyte", whole.bytes > 1_000_000, f"{whole.bytes:,} bytes"),
        finding("the model is shown a small part of it", shown < 20_000, f"{shown:,} bytes, {shown / whole.bytes:.1%}"),
        finding("head and tail are both there", _has_both_ends(whole), "the first order and the last"),
        finding("one order is found in it", len(found) == 1 and _NEEDLE in found[0]["text"], f"line {found[0]['line']}" if found else "-"),
        finding("and can be read where it stands", "complaint" in near, f"{len(near)} characters around it"),
        finding("nothing is lost", same, f"{len(pages)} pages together have the hash {digest[:12]}…"),
    ]


def _has_both_ends(whole: CallSummary) -> bool:
    text = "".join(part["text"] for part in whole.result["content"])
    return "A-00000" in text and "A-10999" in text
