"""`callgate run --plugin`: the tools of a plugin for an agent, with a real plugin and a provider on the loopback interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate.testing import Call
from tests.cli.run_process import DONE, TASK, ran
from tests.cli.shell import shell

pytestmark = pytest.mark.process


async def test_an_agent_uses_the_tools_of_a_plugin(tmp_path: Path) -> None:
    """Its manifest accepts the effect that the tool declares, so no question is asked."""
    assert shell(tmp_path, "plugin", "new", "hello").code == 0
    cache = str(tmp_path / "cache")
    done = await ran(tmp_path, [[Call("greet", {"name": "Ada"})], DONE], "--plugin", "./hello", "--json", XDG_CACHE_HOME=cache)
    assert done.code == 0, done.err
    (ended,) = [line for line in done.lines if line["event"] == "call_ended"]
    assert (ended["tool"], ended["status"], ended["text"].strip()) == ("greet", "ok", "Hello, Ada!")


def test_a_plugin_that_cannot_be_used_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    done = shell(tmp_path, *TASK, "--plugin", "./none")
    assert done.code == 2
    assert "callgate plugin new NAME" in done.err
    assert not (tmp_path / ".callgate").exists()


def test_two_plugins_with_one_name_are_refused(tmp_path: Path) -> None:
    assert shell(tmp_path, "plugin", "new", "hello").code == 0
    done = shell(tmp_path, *TASK, "--plugin", "./hello", "--plugin", "./hello")
    assert done.code == 2
    assert "Two plugins of --plugin are named 'hello'" in done.err
