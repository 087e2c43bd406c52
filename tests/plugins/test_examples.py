"""The plugins of `examples/plugins`, in Python and in JavaScript, with an engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from callgate import Engine
from callgate.plugins import plugin
from tests.engine_calls import call, said

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


async def test_the_python_example_finds_sends_and_counts_invoices(tmp_path: Path) -> None:
    invoices = plugin(EXAMPLES / "python", env={"INVOICES_FILE": str(tmp_path / "invoices.json")})
    async with Engine(servers=[invoices]) as engine:
        assert (await said(engine, call("find_invoice", number="R-7"))).data == {}
        sent = await said(engine, call("send_invoice", number="R-7", amount=12))
        assert (sent.status, sent.data) == ("ok", "sent R-7")
        assert (await said(engine, call("find_invoice", number="R-7"))).data == {"amount": 12}
        assert (await said(engine, call("count_invoices"))).data == 1


async def test_the_python_example_says_that_an_invoice_without_an_amount_was_not_sent(tmp_path: Path) -> None:
    invoices = plugin(EXAMPLES / "python", env={"INVOICES_FILE": str(tmp_path / "invoices.json")})
    async with Engine(servers=[invoices]) as engine:
        refused = await said(engine, call("send_invoice", number="R-8", amount=-1))
    assert refused.status == "error"
    assert "Nothing was sent" in refused.text
    assert not (tmp_path / "invoices.json").exists()


@needs_node
async def test_the_javascript_example_converts_and_shows_its_progress() -> None:
    shown: list[str] = []
    async with Engine(servers=[plugin(EXAMPLES / "javascript")]) as engine:
        engine.bus.subscribe(lambda topic, item: shown.append(getattr(item, "text", "")), "call.progress")
        feet = await said(engine, call("convert_length", value=1, **{"from": "mile", "to": "metre"}))
        assert feet.data == {"value": 1609.344, "unit": "metre"}
        assert (await said(engine, call("count_down", start=2))).data == "zero"
    assert shown == ["2", "1"]
