"""The fact `path.ignored`: rules know whether the project ignores a path, however it is written. If that is unknown, no rule allows the
call.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate import Agent, Engine, RawCall, Rules, Scope, UsageError, tool
from callgate.builtins.files import FileTools
from callgate.testing import Call, ScriptedModel
from tests.engine_calls import call, result_of

DENY = """
[[rule]]
id = "not-ours"
verdict = "deny"
when = { "path.ignored" = true }
"""
ALLOW = """
default = "deny"

[[rule]]
id = "ours"
verdict = "allow"
when = { "path.ignored" = false }
"""
SCRATCH = """
default = "deny"

[[rule]]
id = "scratch"
verdict = "allow"
when = { "path.ignored" = true }
"""


@tool(effect="none")
async def read(path: str) -> str:
    """Read."""
    return "text"


@tool(effect="none")
async def move(path: str, file: str) -> str:
    """Move."""
    return "moved"


async def runs(rules: str, root: Path, **arguments: object) -> bool:
    used = move if "file" in arguments else read
    async with Engine([used], policies=[Rules.parse(rules)]) as engine:
        outcome = await engine.call(RawCall(name=used.name, arguments=arguments), Scope(workspace=str(root)))
    return result_of(outcome).status == "ok"


async def state(root: Path, path: str, **others: object) -> bool | None:
    """Return what rules know: True for ignored, False for not ignored, None for unknown."""
    denied, allowed = not await runs(DENY, root, path=path, **others), await runs(ALLOW, root, path=path, **others)
    scratch = await runs(SCRATCH, root, path=path, **others)
    assert (denied, allowed, scratch) in [(True, False, True), (False, True, False), (True, False, False)]
    return True if scratch else False if allowed else None


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        ".gitignore": "*.log\n!keep.log\n/build/\nsecret*\n",
        "sub/.gitignore": "!important.log\n*.tmp\n",
        "build/.gitignore": "!out.txt\n",
        ".git/info/exclude": "notes.txt\n*.tmp\n",
        "app.py": "",
        "build/out.txt": "",
        "node_modules/x/index.js": "",
        "sub/important.log": "",
    }
    return plant(tmp_path / "project", files)


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("app.py", False),
        ("x.log", True),
        ("keep.log", False),
        ("sub/deep/er/x.log", True),
        ("sub/important.log", False),
        ("sub/x.tmp", True),
        ("notes.txt", True),
        ("build/out.txt", True),
        ("build/any/thing", True),
        ("sub/build/out.txt", False),
        ("node_modules", True),
        ("node_modules/x/index.js", True),
        ("sub/node_modules/y.js", True),
        (".git/config", True),
        (".", False),
        ("sub", False),
        ("secret.txt/below", True),
        ("sub/../x.log", True),
        ("./build//out.txt", True),
        ("node_modules/../app.py", False),
        ("X.LOG", False),
    ],
)
async def test_a_rule_can_test_whether_the_project_ignores_a_path(project: Path, path: str, ignored: bool) -> None:
    assert await state(project, path) is ignored
    assert await state(project, str(project / path)) is ignored


def ignored_by_git(root: Path, names: list[str]) -> set[str]:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    listed = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z"],
        input="\0".join(names).encode(),
        capture_output=True,
        cwd=root,
        check=False,
    )
    return set(listed.stdout.decode().split("\0")) - {""}


@pytest.mark.skipif(shutil.which("git") is None, reason="git says what is right")
async def test_rules_and_git_agree_about_what_is_ignored(tmp_path: Path) -> None:
    ignore = "#c\n\\#d\n!\\!e\na/\n/b\nc/d\n**/f\ng/**\nh/**/i\n*.[oa]\n!k.o\nl?m\n[!x]y\n n\no \n\\ p\nq\\*\n\r\ns\r\n"
    names = [
        "#c",
        "#d",
        "!e",
        "b",
        "x/b",
        "c/d",
        "x/c/d",
        "f",
        "x/f",
        "g/1",
        "h/i",
        "h/1/2/i",
        "j.o",
        "k.o",
        "lnm",
        "l/m",
        "xy",
        "zy",
        " n",
    ]
    names += ["o", " p", "qx", "q*", "s", "a/1", "x/a/1", "x/1"]
    plant(tmp_path, dict.fromkeys((name for name in names), ""))
    (tmp_path / ".gitignore").write_text("\ufeff" + ignore, encoding="utf-8", newline="")
    plant(tmp_path, {"x/.gitignore": "!b\n!f\n/1\n", "g/.gitignore": "!1\n"})
    by_git = ignored_by_git(tmp_path, names)
    assert {name for name in names if await state(tmp_path, name)} == by_git


LINES = [
    *("*", "/*", "**", "/**", "**/", "*/", "!*/", "!*.txt", "!b", "!b/", "b/", "b/*", "!b/c/", "b/**", "a**/b", "**a", "***", "a//b"),
    *(
        "[[:digit:]]",
        "[[:alpha:]]*",
        "[![:alpha:]]",
        "[[:no:]]",
        "[:a:]",
        "[[:a]",
        "[!a]",
        "[^a]",
        "[]a]",
        "[!]a]",
        "[a-",
        "[z-a]",
        "[a-c]",
    ),
    *(
        "[a\\-c]",
        "[\\]]",
        "[a/c]",
        "a[!x]b",
        "[a--]",
        "[--b]",
        "?",
        "a?",
        "\\a",
        "a\\",
        "\\\\",
        "a\\/b",
        "**\\/b",
        "x\t",
        "x ",
        "x\\ ",
        "x\\\\ ",
    ),
    *("!", "/", "//a", "./a", "\r", "x\u00a0", "\u00e9", "#a", "\\#a", "\\!a"),
]
NAMES = [
    "a",
    "c.txt",
    "b/a",
    "b/c/a",
    "b/c/c.txt",
    "x/b",
    "ax/y/b",
    "1",
    "-",
    "]",
    "\\",
    "x ",
    "x\t",
    "x\\",
    "axb",
    "#a",
    "!a",
    "\u00e9",
]


@pytest.mark.skipif(shutil.which("git") is None, reason="git says what is right")
@settings(max_examples=12, deadline=None)
@given(lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=4))
@example(lines=["*", "!*/", "!*.txt"])
@example(lines=["[[:digit:]]"])
@example(lines=["[z-a]"])
@example(lines=["*", "!?"])
def test_any_gitignore_lines_are_read_as_git_reads_them(lines: list[str]) -> None:
    """Folders that a pattern includes again are searched, and no pattern raises an error."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        plant(root, dict.fromkeys(NAMES, ""))
        (root / ".gitignore").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
        names = [str(one.relative_to(root)) for one in root.rglob("*") if ".git" not in one.name]
        found = asyncio.run(states(root, names))
        assert {name for name, ignored in found.items() if ignored} == ignored_by_git(root, names)
        assert None not in found.values()


async def states(root: Path, names: list[str]) -> dict[str, bool | None]:
    return {name: await state(root, name) for name in names}


async def test_an_invalid_gitignore_pattern_does_not_fail_a_search(tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "found", ".gitignore": "[z-a]\n[[:digit:]].py\n", "1.py": "found"})
    async with Engine(FileTools().tools()) as engine:
        result = result_of(await engine.call(call("grep_files", pattern="found"), Scope(workspace=str(tmp_path))))
    assert "a.py" in result.text
    assert "1.py" not in result.text


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("shown", "node_modules/x", "shown/index.js"),
        ("shown.py", "x.log", "shown.py"),
        ("secret.txt", "app.py", "secret.txt"),
        ("build/link", "../app.py", "build/link"),
    ],
    ids=["into what is ignored", "to what is ignored", "itself ignored", "out of what is ignored"],
)
async def test_path_ignored_is_unknown_for_a_link_into_or_out_of_ignored_files(project: Path, link: str, target: str, path: str) -> None:
    (project / link).symlink_to(target)
    assert await state(project, path) is None


async def test_path_ignored_is_known_for_a_link_that_stays_inside_or_outside_ignored_files(project: Path) -> None:
    (project / "also.py").symlink_to("app.py")
    (project / "also.log").symlink_to("build/out.txt")
    assert await state(project, "also.py") is False
    assert await state(project, "also.log") is True


async def test_path_ignored_is_unknown_outside_the_project_and_in_a_link_loop(project: Path) -> None:
    (project / "round").symlink_to("round")
    (project / "away").symlink_to("..")
    for path in ("../other.txt", "/etc/hosts", "round", "round/x", "away/other.txt", "a\0b"):
        assert await state(project, path) is None


async def test_path_ignored_works_in_a_workspace_named_by_a_link(project: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(project)
    assert await state(tmp_path / "node_modules", str(tmp_path / "node_modules/app.py")) is False


async def test_path_ignored_is_unknown_when_several_paths_of_a_call_disagree(project: Path) -> None:
    assert await state(project, "app.py", file="x.log") is None
    assert await state(project, "y.log", file="x.log") is True


async def test_path_ignored_is_unknown_for_a_new_path_ignored_only_as_a_directory(project: Path) -> None:
    """Whether the path is ignored depends on whether the call makes a file or a folder."""
    plant(project, {"lib/.gitignore": "out/\n"})
    assert await state(project, "lib/out") is None
    assert await state(project, "lib/out/x") is True


def _unreadable(file: Path) -> None:
    file.write_bytes(b"#" * 1_100_000)


def _folder(file: Path) -> None:
    file.mkdir()


def _outside(file: Path) -> None:
    file.symlink_to("/etc/hostname")


def _pipe(file: Path) -> None:
    os.mkfifo(file)


def _slow(file: Path) -> None:
    file.write_text("*a*a*a/*b*b*b*c\n")


def _many(file: Path) -> None:
    file.write_text("x\n" * 3_000)


def _wrong(file: Path) -> None:
    file.write_text("a\0b\n")


@pytest.mark.parametrize("hostile", [_unreadable, _folder, _outside, _pipe, _slow, _many, _wrong])
async def test_path_ignored_is_unknown_below_an_unusable_gitignore_file(tmp_path: Path, hostile: object) -> None:
    plant(tmp_path, {"app.py": "", "lib/a.py": "", "other/a.py": ""})
    hostile(tmp_path / "lib/.gitignore")  # type: ignore[operator]
    assert await state(tmp_path, "lib/a.py") is None
    assert await state(tmp_path, "lib/" + "a" * 250 + "/" + "b" * 250) is None
    assert await state(tmp_path, "lib/node_modules/a.js") is True
    assert await state(tmp_path, "other/a.py") is False


async def test_gitignore_patterns_that_are_too_expensive_are_skipped_by_a_search(tmp_path: Path) -> None:
    """Otherwise one such pattern in an untrusted repository could block the whole process."""
    name = "a" * 250 + "/" + "b" * 250 + ".txt"
    plant(tmp_path, {name: "found", ".gitignore": "*a*a*a/*b*b*b*c\n" + "x/**/" * 60 + "y\n", "/".join("a" * 200): "found"})
    (tmp_path / "b/.gitignore").parent.mkdir(exist_ok=True)
    (tmp_path / "a/.gitignore").write_text("a/**/a/**/a/**/b\n" * 50)
    async with Engine(FileTools().tools()) as engine:
        result = result_of(await engine.call(call("grep_files", pattern="found"), Scope(workspace=str(tmp_path))))
    assert name in result.text


async def test_path_ignored_is_unknown_for_a_path_that_is_nested_too_deeply(tmp_path: Path) -> None:
    assert await state(tmp_path, "/".join("a" * 64)) is False
    assert await state(tmp_path, "/".join("a" * 70)) is None


async def test_files_found_by_a_listing_are_judged_by_path_ignored(project: Path) -> None:
    plant(project, {"sub/plain.txt": "needle", "x.log": "needle", "sub/y.log": "needle"})
    async with Engine(FileTools().tools(), policies=[Rules.parse(DENY)]) as engine:
        result = result_of(await engine.call(call("list_files", depth=3), Scope(workspace=str(project))))
    assert "sub/plain.txt" in result.text
    assert "x.log" not in result.text
    assert "y.log" not in result.text


async def test_an_agent_can_unignore_a_path_by_writing_gitignore_unless_a_rule_denies_it(project: Path) -> None:
    """The fact describes the files at the time the call is judged."""
    rules = (
        DENY
        + """
[[rule]]
id = "ignore-files-stay"
verdict = "deny"
tool = ["write_file", "edit_file"]
when = { path = { glob = "*.gitignore" } }

[[rule]]
id = "own-git-stays"
verdict = "deny"
tool = ["write_file", "edit_file"]
when = { path = { prefix = ".git/" } }
"""
    )
    script = [Call("write_file", {"path": ".gitignore", "content": ""}), Call("read_file", {"path": "secret.txt"})]
    plant(project, {"secret.txt": "hidden"})

    async def ends(policy: str) -> list[str]:
        agent = Agent(ScriptedModel([*script, "done"]), Engine(FileTools().tools(), policies=[Rules.parse(policy)]))
        run = await agent.run("go", scope=Scope(workspace=str(project)))
        await agent.close()
        await agent.engine.close()
        return [result.status for result in run.results]

    assert await ends(rules) == ["error", "error"]
    assert await ends(DENY) == ["ok", "ok"]


def test_a_rule_may_compare_path_ignored_only_with_true_or_false() -> None:
    with pytest.raises(UsageError, match=r"path\.ignored"):
        Rules.parse(DENY.replace("true", '"yes"'))
