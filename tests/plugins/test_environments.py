"""Virtual environments of plugins: built by `callgate plugin install` alone, and used by engines. Without a network."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import callgate
from callgate import Engine
from callgate.errors import UsageError
from callgate.plugins import plugin
from callgate.plugins._own_wheel import write_own_wheel
from tests.cli.shell import Ended, command, environment, shell
from tests.engine_calls import call, said
from tests.plugins.fakes import ANSWER, FakeFolder
from tests.plugins.wheelhouse import EnvironmentPlugin, fill_wheelhouse, write_wheel
from tests.waiting import COMMAND_S, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

OFTEN = "iniconfig"
"""A package that pytest needs, so this process has it, in a newer version than the wheels of these tests."""
OWN_CODE = os.path.realpath(callgate.__file__)
TABLE = '[[tools]]\nname = "look_up"\ninput_schema = {type = "object"}\neffect = "none"\n'


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheels of all that callgate depends on."""
    folder = tmp_path_factory.mktemp("wheels")
    fill_wheelhouse(folder)
    return folder


@pytest.fixture
def wheels(dependencies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for more wheels. pip finds wheels there and among the dependencies, and nowhere else."""
    folder = tmp_path / "more-wheels"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_COMPILE", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{dependencies} {folder}")
    return folder


def installing(place: EnvironmentPlugin, *words: str, **variables: str) -> Ended:
    return shell(place.folder.parent, "plugin", "install", str(place.folder), *words, **variables)


def installed(place: EnvironmentPlugin, *words: str) -> dict[str, Any]:
    done = installing(place, "--json", *words)
    assert done.code == 0, done.err
    (row,) = done.json
    return dict(row)


def kept(cache: Path) -> list[str]:
    """Return what the folder of environments has."""
    folder = cache / "callgate" / "plugin-environments"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def folders(cache: Path) -> list[str]:
    return [name for name in kept(cache) if not name.endswith((".json", ".lock"))]


async def seen_by(engine: Engine, package: str, tool: str = "look_up") -> dict[str, Any]:
    result = await said(engine, call(tool, package=package))
    assert result.success, result.text
    found = result.data
    assert isinstance(found, dict)
    return found


async def test_plugins_have_their_own_versions_of_a_package_and_the_engines_callgate(tmp_path: Path, wheels: Path) -> None:
    for version in ("0.1", "0.2"):
        write_wheel(wheels, OFTEN, version)
    one, other = EnvironmentPlugin(tmp_path, "one"), EnvironmentPlugin(tmp_path, "other")
    one.requires(f"{OFTEN}==0.1")
    other.requires(f"{OFTEN}>0.1")
    for place in (one, other):
        installed(place)
    async with Engine(servers=[plugin(one.folder, prefix=True), plugin(other.folder, prefix=True)]) as engine:
        first = await seen_by(engine, OFTEN, "one.look_up")
        second = await seen_by(engine, OFTEN, "other.look_up")
    assert (first["version"], first["of_module"]) == ("0.1", "0.1")
    assert (second["version"], second["of_module"]) == ("0.2", "0.2")
    assert metadata.version(OFTEN) not in ("0.1", "0.2")
    assert first["callgate"] == callgate.__version__
    assert first["code"] == OWN_CODE
    assert first["environment"] != second["environment"]
    assert not any(folder in first["path"] for folder in sys.path if folder.endswith("site-packages"))


async def test_a_plugin_without_its_environment_is_refused_with_the_command_that_builds_it_and_others_work(
    tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, fake = EnvironmentPlugin(tmp_path, tools=TABLE), FakeFolder(tmp_path, ANSWER)
    place.requires("colours>=1")
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine(servers=[plugin(place.folder), fake.plugin()]) as engine:
            for number in range(3):
                refused = await said(engine, call("look_up", package=str(number)))
                assert refused.status == "error"
                assert "needs an environment (colours>=1) that is not installed" in refused.text
                assert f"callgate plugin install {place.folder}" in refused.text
            assert (await said(engine, call("work"))).data == "done"
            (status,) = [one for one in engine.servers_status() if one.name == "kit"]
            assert "callgate plugin install" in status.problem
    assert caplog.text.count("callgate plugin install") == 1
    assert kept(cache) == []


async def test_an_engine_does_not_start_without_the_environment_of_a_plugin_that_it_requires(tmp_path: Path) -> None:
    place = EnvironmentPlugin(tmp_path, tools=TABLE)
    place.requires("colours>=1")
    with pytest.raises(UsageError, match="callgate plugin install"):
        await Engine(servers=[plugin(place.folder, required=True)]).__aenter__()


async def test_a_running_engine_offers_the_tools_of_a_plugin_whose_environment_is_built_and_follows_its_changes(
    tmp_path: Path, cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.plugins._supervised_plugin._LOOK_S", 0.02)
    write_wheel(wheels, "colours", "1.0")
    place = EnvironmentPlugin(tmp_path)
    place.requires("colours")
    async with Engine(servers=[plugin(place.folder)]) as engine:
        assert engine.tools.names() == []
        installed(place)
        await until(lambda: engine.tools.names() == ["look_up"])
        assert (await seen_by(engine, "colours"))["version"] == "1.0"
        place.requires("colours==2.0")
        await until(lambda: "that is not installed" in engine.servers_status()[0].problem)
        assert "colours==2.0" in (await said(engine, call("look_up", package="colours", n=1))).text
        write_wheel(wheels, "colours", "2.0")
        installed(place)
        await until(lambda: engine.servers_status()[0].state == "ready")
        assert (await seen_by(engine, "colours"))["version"] == "2.0"


async def test_an_upgrade_replaces_the_environment_of_a_running_plugin(
    tmp_path: Path, cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.plugins._supervised_plugin._LOOK_S", 0.02)
    write_wheel(wheels, "colours", "1.0")
    place = EnvironmentPlugin(tmp_path)
    place.requires("colours")
    installed(place)
    async with Engine(servers=[plugin(place.folder)]) as engine:
        assert (await seen_by(engine, "colours"))["version"] == "1.0"
        write_wheel(wheels, "colours", "2.0")
        assert installed(place)["built"] is False
        assert installed(place, "--upgrade")["built"] is True
        await until(lambda: engine.servers_status()[0].restarts == 1)
        assert (await seen_by(engine, "colours"))["version"] == "2.0"
    assert shell(tmp_path, "plugin", "prune").code == 0
    assert len(folders(cache)) == 1


async def test_an_environment_that_is_in_use_is_not_removed(tmp_path: Path, cache: Path, wheels: Path) -> None:
    place = EnvironmentPlugin(tmp_path)
    place.requires()
    installed(place)
    async with Engine(servers=[plugin(place.folder)]) as engine:
        await seen_by(engine, "msgspec")
        refused = shell(tmp_path, "plugin", "uninstall", "kit")
        assert refused.code == 1
        assert "in use" in refused.err
        (place.folder / "callgate-plugin.toml").rename(place.folder / "away")
        assert shell(tmp_path, "plugin", "prune").code == 1
        (place.folder / "away").rename(place.folder / "callgate-plugin.toml")
        assert (await seen_by(engine, "callgate"))["callgate"] == callgate.__version__
    assert shell(tmp_path, "plugin", "uninstall", "kit").code == 0
    assert kept(cache) == []
    assert place.folder.exists()


def test_a_failed_build_tells_what_pip_said_leaves_nothing_and_keeps_the_earlier_environment(
    tmp_path: Path, cache: Path, wheels: Path
) -> None:
    write_wheel(wheels, "colours", "1.0")
    place = EnvironmentPlugin(tmp_path)
    place.requires("colours")
    installed(place)
    before = kept(cache)
    shutil.rmtree(wheels)
    failed = installing(place, "--upgrade")
    assert failed.code == 1
    assert "No matching distribution found for colours" in failed.err
    assert f"callgate plugin install {place.folder}" in failed.err
    assert kept(cache) == before
    assert shell(tmp_path, "plugin", "check", "kit").code == 0
    place.requires("colours", "msgspec<0.1")
    failed = installing(place, "--json")
    assert failed.code == 1
    assert failed.json[0]["problem"]
    assert kept(cache) == before


def test_processes_that_install_at_the_same_time_build_once(tmp_path: Path, cache: Path, wheels: Path) -> None:
    place = EnvironmentPlugin(tmp_path)
    place.requires()
    words = command(["plugin", "install", str(place.folder), "--json"])
    started = [subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(3)]
    rows = [json.loads(process.communicate(timeout=COMMAND_S)[0])[0] for process in started]
    assert sorted(row["built"] for row in rows) == [False, False, True]
    assert len(folders(cache)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_build_that_is_killed_leaves_no_process_and_is_never_used(
    tmp_path: Path, cache: Path, wheels: Path, number: signal.Signals
) -> None:
    place = EnvironmentPlugin(tmp_path, tools=TABLE)
    place.requires(".")
    place.make_project()
    os.mkfifo(place.folder / "hang")
    words = command(["plugin", "install", str(place.folder)])
    builder = await asyncio.create_subprocess_exec(*words, env=environment(), stderr=subprocess.DEVNULL)
    await until((place.folder / "seen.json").exists)
    builder.send_signal(number)
    assert await builder.wait() != 0
    await until(lambda: _of_builds(cache) == [])
    if number != signal.SIGKILL:
        assert kept(cache) == []
        return  # nothing is left that an engine could use
    async with Engine(servers=[plugin(place.folder)]) as engine:
        assert "that is not installed" in (await said(engine, call("look_up", package="kit"))).text
    (place.folder / "hang").unlink()
    assert installed(place)["built"] is True
    assert len(folders(cache)) == 1


def _of_builds(cache: Path) -> list[str]:
    """Return the commands of processes that work at an environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_text(errors="replace")
        except OSError:
            continue
        if str(cache) in text:
            found.append(text)
    return found


async def test_a_package_in_the_folder_is_installed_as_editable_and_its_build_sees_no_secret(tmp_path: Path, wheels: Path) -> None:
    place = EnvironmentPlugin(tmp_path)
    place.requires(".")
    place.make_project()
    assert installing(place, API_TOKEN="hunter2").code == 0
    seen = json.loads((place.folder / "seen.json").read_text(encoding="utf-8"))
    assert "API_TOKEN" not in seen
    assert "PATH" in seen
    async with Engine(servers=[plugin(place.folder)]) as engine:
        assert (await seen_by(engine, "kit"))["of_module"] == "of the folder"


def test_a_requirements_file_may_have_hashes(tmp_path: Path, wheels: Path) -> None:
    wheel = write_wheel(wheels, "colours", "1.0")
    place = EnvironmentPlugin(tmp_path)
    file = place.folder / "requirements.txt"
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    file.write_text(f"colours==1.0 --hash=sha256:{found}\n", encoding="utf-8")
    place.ask_for('requirements_file = "requirements.txt"')
    assert "colours==1.0" in installed(place)["packages"]
    file.write_text(f"colours==1.0 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    (listed,) = shell(tmp_path, "plugin", "list", ".", "--no-start", "--json").json
    assert listed["environment"]["state"] == "not installed"
    failed = installing(place)
    assert failed.code == 1
    assert "DO NOT MATCH THE HASHES" in failed.err


def test_a_check_of_a_gateway_names_the_environment_that_is_missing_and_serves_the_rest(tmp_path: Path) -> None:
    place, _ = EnvironmentPlugin(tmp_path), FakeFolder(tmp_path, ANSWER)
    place.requires("colours")
    (tmp_path / "gate.toml").write_text('plugins = ["./kit", "./fake"]\n', encoding="utf-8")
    done = shell(tmp_path, "serve", "check", "--config", "gate.toml", "--json")
    assert done.code == 1
    kit, fake = done.json["servers"]
    assert (kit["state"], fake["state"], fake["tools"]) == ("cannot start", "ready", ["work", "echo"])
    assert f"callgate plugin install {place.folder}" in kit["problems"][0]


def test_list_and_check_show_the_state_of_an_environment(tmp_path: Path, wheels: Path) -> None:
    write_wheel(wheels, "colours", "1.0")
    place = EnvironmentPlugin(tmp_path)
    place.requires("colours")
    check = shell(tmp_path, "plugin", "check", "kit")
    assert check.code == 1
    assert f"callgate plugin install {place.folder}" in check.err
    installed(place)
    (listed,) = shell(tmp_path, "plugin", "list", ".", "--json").json
    about = listed["environment"]
    assert (listed["state"], about["state"], about["requires"]) == ("starts", "installed", "colours")
    assert "colours==1.0" in about["packages"]


def test_an_environment_whose_python_is_gone_is_told_and_built_again(tmp_path: Path, cache: Path, wheels: Path) -> None:
    place = EnvironmentPlugin(tmp_path)
    place.requires()
    installed(place)
    (folder,) = folders(cache)
    for link in (cache / "callgate" / "plugin-environments" / folder / "bin").glob("python*"):
        link.unlink()
    check = shell(tmp_path, "plugin", "check", "kit")
    assert check.code == 1
    assert "is gone" in check.err
    assert installed(place)["built"] is True
    assert shell(tmp_path, "plugin", "check", "kit").code == 0
    assert folders(cache) != [folder]


def test_prune_removes_what_no_plugin_uses_and_keeps_the_rest(tmp_path: Path, cache: Path, wheels: Path) -> None:
    write_wheel(wheels, "colours", "1.0")
    changed, gone, same = (EnvironmentPlugin(tmp_path, name) for name in ("changed", "gone", "same"))
    for place in (changed, gone, same):
        place.requires("colours")
        installed(place)
    assert shell(tmp_path, "plugin", "prune").code == 0
    assert len(folders(cache)) == 3
    changed.requires("colours>=1")
    shutil.rmtree(gone.folder)
    (cache / "callgate" / "plugin-environments" / "half-0123456789abcdef0123-01234567").mkdir()
    done = shell(tmp_path, "plugin", "prune", "--json")
    assert (done.code, len(done.json["removed"]), done.json["in_use"]) == (0, 3, [])
    (left,) = folders(cache)
    assert left.startswith("same-")
    assert Path(callgate.__file__).is_file()  # what an environment links to is not removed with it


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path, cache: Path, wheels: Path) -> None:
    place = EnvironmentPlugin(tmp_path)
    place.requires()
    installed(place)
    (cache / "callgate" / "plugin-environments").chmod(0o777)
    for words in (("check", "kit"), ("install", "kit"), ("prune",)):
        refused = shell(tmp_path, "plugin", *words)
        assert refused.code in (1, 2)
        assert "can be written by others" in refused.err


def test_packages_are_found_in_a_folder_that_is_named_relative_to_the_current_one(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = [word for folder in os.environ["PIP_FIND_LINKS"].split() for word in ("--find-links", os.path.relpath(folder, tmp_path))]
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    write_wheel(wheels, "colours", "1.0")
    place = EnvironmentPlugin(tmp_path)
    place.requires("colours")
    assert "colours==1.0" in installed(place, "--offline", *links)["packages"]
    wrong = installing(place, "--upgrade", "--find-links", "./no-such-folder")
    assert wrong.code == 2
    assert "no-such-folder" in wrong.err


def test_a_cache_folder_that_cannot_be_used_is_told_in_one_sentence(tmp_path: Path, cache: Path) -> None:
    place = EnvironmentPlugin(tmp_path)
    place.requires()
    cache.write_text("a file", encoding="utf-8")
    for words, code in ((("list", "."), 0), (("check", "kit"), 1), (("prune",), 0), (("uninstall", "kit"), 0), (("install", "kit"), 2)):
        assert shell(tmp_path, "plugin", *words).code == code
    assert "cannot be made" in installing(place).err
    cache.unlink()
    cache.symlink_to(cache)
    for words, code in ((("list", "."), 2), (("prune",), 2), (("install", "kit"), 2)):
        told = shell(tmp_path, "plugin", *words)
        assert (told.code, len(told.err.splitlines())) == (code, 1), told.err


def test_a_version_of_python_that_is_not_there_is_named(tmp_path: Path, cache: Path) -> None:
    place = EnvironmentPlugin(tmp_path, head='python = "==3.99.*"')
    refused = installing(place)
    assert refused.code == 2
    assert "==3.99.*" in refused.err
    assert folders(cache) == []


def test_a_plugin_that_asks_for_no_environment_needs_no_installation(tmp_path: Path, cache: Path) -> None:
    done = installing(EnvironmentPlugin(tmp_path))
    assert done.code == 0
    assert "asks for no environment" in done.err
    assert kept(cache) == []


def test_a_new_plugin_with_a_requirement_is_installed_and_called(tmp_path: Path, wheels: Path) -> None:
    write_wheel(wheels, "colours", "1.0")
    assert shell(tmp_path, "plugin", "new", "hello", "--requires", "colours>=1").code == 0
    assert shell(tmp_path, "plugin", "install", "./hello").code == 0
    done = shell(tmp_path, "plugin", "check", "./hello", "--tool", "greet", "--arguments", '{"name": "Ada"}')
    assert done.code == 0
    assert "Hello, Ada!" in done.out
    for wrong in (("--requires", "-e ."), ("--requires", "."), ("--requires", "x", "--js")):
        assert shell(tmp_path, "plugin", "new", "other", *wrong).code == 2
    assert not (tmp_path / "other").exists()


def test_an_installed_callgate_is_copied_into_environments_with_all_its_code(tmp_path: Path) -> None:
    """Install the wheel of the checkout's metadata beside a copy of the code, as pip does, and let that callgate write its own wheel."""
    site = tmp_path / "site"
    shutil.copytree(Path(callgate.__file__).parent, site / "callgate", ignore=shutil.ignore_patterns("__pycache__"))
    own = write_own_wheel(tmp_path)
    shutil.unpack_archive(own.path, site, "zip")
    program = "import sys, pathlib; from callgate.plugins._own_wheel import write_own_wheel as w; print(w(pathlib.Path(sys.argv[1])).path)"
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out")],
        env=environment(PYTHONPATH=str(site)),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stderr
    target = tmp_path / "target"
    words = ["-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "--target", str(target), done.stdout.strip()]
    subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=COMMAND_S)
    assert (target / "callgate" / "plugins" / "serving.py").read_bytes() == (site / "callgate" / "plugins" / "serving.py").read_bytes()
    assert (target / "callgate" / "py.typed").exists()
