"""The life of a plugin: its lazy start, its restarts and the open circuit, a change of its files, and its end."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callgate import Engine
from callgate.errors import UsageError
from tests.engine_calls import call, said
from tests.plugins.fakes import ANSWER, FakeFolder, table
from tests.runners.runner_requests import marked
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process

DAEMON = "import os,time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(600)"
"""A program that leaves a daemon behind."""
DESCRIBED = {"name": "work", "description": "w", "input_schema": {"type": "object"}}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart plugins at once."""
    monkeypatch.setattr("callgate.plugins._supervised_plugin._WAITS_S", (0.001,) * 4)
    monkeypatch.setattr("callgate.plugins._supervised_plugin._LOOK_S", 0.02)


async def test_an_engine_starts_no_process_until_a_tool_of_the_plugin_is_called(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER)
    async with Engine(servers=[fake.plugin()]) as engine:
        assert {tool.name for tool in engine.tools} == {"work", "echo"}
        assert fake.pids == []
        assert (await said(engine, call("work"))).data == "done"
        assert len(fake.pids) == 1


async def test_tools_that_a_plugin_describes_are_asked_for_once_and_then_cached(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER, tools="", described=[DESCRIBED])
    async with Engine(servers=[fake.plugin()]) as engine:
        assert {tool.name for tool in engine.tools} == {"work"}
    assert len(fake.seen("describe")) == 1
    async with Engine(servers=[fake.plugin()]) as engine:
        assert {tool.name for tool in engine.tools} == {"work"}
        assert len(fake.pids) == 1
        assert (await said(engine, call("work"))).data == "done"


async def test_a_cached_description_is_not_used_after_a_source_file_has_changed(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER, tools="", described=[DESCRIBED])
    async with Engine(servers=[fake.plugin()]):
        pass
    fake.write(steps=[ANSWER], described=[DESCRIBED | {"name": "other"}])
    (fake.folder / "main.py").touch()
    async with Engine(servers=[fake.plugin()]) as engine:
        assert {tool.name for tool in engine.tools} == {"other"}


def damage_all(cache: Path, text: str) -> None:
    files = list(cache.rglob("*.json"))
    assert files
    for file in files:
        file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("damage", ["", "no JSON", '{"fingerprint": 1}'])
async def test_a_damaged_cache_is_no_error(tmp_path: Path, cache: Path, damage: str) -> None:
    fake = FakeFolder(tmp_path, ANSWER, tools="", described=[DESCRIBED])
    async with Engine(servers=[fake.plugin()]):
        pass
    damage_all(cache, damage)
    async with Engine(servers=[fake.plugin()]) as engine:
        assert {tool.name for tool in engine.tools} == {"work"}


@pytest.mark.parametrize(("head", "manifest", "effect"), [("", "", "once"), ("trust_effects = true", "", "none"), ("", "none", "none")])
async def test_an_effect_that_a_process_describes_counts_only_if_the_manifest_trusts_it_or_declares_it(
    tmp_path: Path, head: str, manifest: str, effect: str
) -> None:
    tools = f'[[tools]]\nname = "work"\neffect = "{manifest}"\n' if manifest else ""
    fake = FakeFolder(tmp_path, ANSWER, tools=tools, head=head, described=[DESCRIBED | {"effect": "none", "cacheable": True}])
    async with Engine(servers=[fake.plugin()]) as engine:
        (bound,) = engine.tools
        assert bound.effect == effect


@pytest.mark.usefixtures("quick")
async def test_a_plugin_whose_manifest_changes_is_started_again_with_its_new_tools(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER)
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).success
        fake.write_manifest(table("work") + table("other"))
        await until(lambda: {tool.name for tool in engine.tools} == {"work", "other"})
        assert (await said(engine, call("other", n=1))).data == {"n": 1}
        gone = await said(engine, call("echo"))
        assert gone.status == "error"
        assert "no longer has this tool" in gone.text
    assert len(fake.pids) == 2


@pytest.mark.usefixtures("quick")
async def test_tools_that_a_running_plugin_describes_again_are_offered(tmp_path: Path) -> None:
    more = '{"kind": "tools", "tools": [{"name": "later", "description": "l", "input_schema": {"type": "object"}}]}\n'
    fake = FakeFolder(tmp_path, {"raw": more}, ANSWER, tools="", described=[DESCRIBED])
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "done"
        await until(lambda: {tool.name for tool in engine.tools} == {"later"})
        assert (await said(engine, call("later", n=2))).data == {"n": 2}
    assert len(fake.pids) == 1


async def test_a_call_during_the_wait_for_a_restart_is_not_started_and_told_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.plugins._supervised_plugin._WAITS_S", (300.0,) * 4)
    fake = FakeFolder(tmp_path, {"exit": 3})
    async with Engine(servers=[fake.plugin(options={"echo": {"retryable": False}})]) as engine:
        assert (await said(engine, call("work"))).status == "unknown"
        refused = await said(engine, call("echo"))
    assert (refused.status, refused.code) == ("error", "not_started")
    assert "it exited with code 3" in refused.text
    assert "It is started again in 300 s" in refused.text


@pytest.mark.usefixtures("quick")
async def test_the_circuit_of_a_plugin_that_fails_again_and_again_stays_open_until_a_file_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeFolder(tmp_path, exit_at_start=3)
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine(servers=[fake.plugin()]) as engine:
            await said(engine, call("work"))
            await until(lambda: caplog.text.count("exited with code 3") == 5)
            refused = await said(engine, call("work", again=True))
            assert (refused.status, refused.code) == ("error", "not_started")
            assert "not tried again until one of its files changes" in refused.text
            assert "this plugin does not start" not in refused.text
            assert len(fake.pids) == 5
            fake.write(steps=[ANSWER])
            (fake.folder / "fixed.py").touch()
            assert (await said(engine, call("work", fixed=True))).data == "done"


@pytest.mark.usefixtures("quick")
async def test_a_plugin_whose_manifest_is_put_back_as_it_was_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeFolder(tmp_path, ANSWER)
    manifest, earlier = fake.folder / "callgate-plugin.toml", tmp_path / "earlier.toml"
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine(servers=[fake.plugin()]) as engine:
            assert (await said(engine, call("work"))).data == "done"
            manifest.rename(earlier)
            fake.write_manifest("", head="oops = 1\n")
            await until(lambda: caplog.text.count("this is not known: 'oops'") == 5)
            earlier.replace(manifest)
            assert (await said(engine, call("echo", n=1))).data == {"n": 1}


async def test_a_silent_plugin_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOOK_S", "_PING_S", "_PONG_S"):
        monkeypatch.setattr(f"callgate.plugins._supervised_plugin.{name}", 0.05)
    monkeypatch.setattr("callgate.plugins._supervised_plugin._WAITS_S", (0.001,) * 4)
    fake = FakeFolder(tmp_path, ANSWER, deaf_to=["ping"])
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "done"
        await until(lambda: len(fake.pids) >= 2)


async def test_a_plugin_that_answers_pings_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOOK_S", "_PING_S"):
        monkeypatch.setattr(f"callgate.plugins._supervised_plugin.{name}", 0.01)
    fake = FakeFolder(tmp_path, ANSWER)
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "done"
        await until(lambda: len(fake.seen("ping")) >= 3)
    assert len(fake.pids) == 1


async def test_an_engine_does_not_start_without_a_plugin_that_it_requires(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, tools="", exit_at_start=3)
    with pytest.raises(UsageError) as caught:
        await Engine(servers=[fake.plugin(required=True)]).__aenter__()
    assert caught.value.code == "server_unavailable"
    assert "it exited with code 3" in str(caught.value)


async def test_a_plugin_is_asked_to_end_when_its_engine_is_closed(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER)
    async with Engine(servers=[fake.plugin()]) as engine:
        await said(engine, call("work"))
    assert len(fake.seen("shutdown")) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(fake.pids[0], 0)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
async def test_processes_of_a_plugin_that_does_not_end_are_ended_with_the_engine(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, {"spawn": DAEMON}, ANSWER, stays=True)
    async with Engine(servers=[fake.plugin(env={"FAKE_MARK": str(tmp_path)})]) as engine:
        assert (await said(engine, call("work"))).data == "done"
        assert len(marked(str(tmp_path))) >= 2
    assert marked(str(tmp_path)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
def test_no_process_of_a_plugin_outlives_an_engine_that_is_killed(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, {"spawn": DAEMON}, ANSWER, stays=True)
    program = (
        "import asyncio, sys; sys.path[:] = sys.argv[2:]\n"
        "from callgate import Engine, RawCall\nfrom callgate.plugins import plugin\n"
        "async def main():\n"
        "  async with Engine(servers=[plugin(sys.argv[1], env={'FAKE_MARK': sys.argv[1]})]) as engine:\n"
        "    await engine.call(RawCall(name='work', arguments='{}')); print('ready', flush=True); await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(fake.folder), *sys.path], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "ready\n"
        mark = f"FAKE_MARK={fake.folder}"
        assert len(marked(mark)) >= 2
        engine.kill()
        end = time.monotonic() + PATIENCE_S
        while marked(mark) and time.monotonic() < end:
            time.sleep(0.02)
        assert marked(mark) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks in /proc")
async def test_a_plugin_sees_only_the_variables_that_its_manifest_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_ENGINE", "hunter2")
    monkeypatch.setenv("NAMED", "yes")
    fake = FakeFolder(tmp_path, ANSWER, head='env = ["NAMED", "NOT_SET"]')
    async with Engine(servers=[fake.plugin(env={"ITS_OWN": "too"})]) as engine:
        await said(engine, call("work"))
        assert fake.pids[0] in marked("NAMED=yes")
        assert fake.pids[0] in marked("ITS_OWN=too")
        assert fake.pids[0] not in marked("hunter2")
