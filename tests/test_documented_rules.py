"""Every rule file in the documentation: each attempt at a forbidden call is stopped, and the other calls run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from callgate import Engine, RawCall, Rules, Scope, Suspended, Tool, tool
from callgate.builtins import command_tools, fetch_tool, symbol_tools, workspace_tools
from callgate.calls import Outcome
from callgate.protocols import JudgeContext, Judgment
from callgate.stage_types import ValidatedCall
from tests.engine_calls import call, result_of

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_TEXT = re.compile(r'^```toml[^\n]*\n(?P<toml>.*?)^```|"""(?P<python>[^"]*?\[\[rule\]\].*?)"""', re.MULTILINE | re.DOTALL)
SECRET = "the-secret-of-this-file"


def documented() -> dict[str, str]:
    """Return every rule file of the documentation, by page and number."""
    found: dict[str, str] = {}
    for page in PAGES:
        texts = [match["toml"] or match["python"] for match in _TEXT.finditer(page.read_text(encoding="utf-8"))]
        for number, text in enumerate(text for text in texts if "[[rule]]" in text):
            found[f"{page.name}:{number}"] = text
    return found


@tool
def refund(order: str, cents: int = 0) -> str:
    """Pay money back."""
    return "paid"


@tool
def publish(page: str) -> str:
    """Publish a page."""
    return "published"


@tool
def order(item: str) -> str:
    """Order an item."""
    return "ordered"


@tool(effect="none")
def order_status(order: str) -> str:
    """Look an order up."""
    return "sent"


@tool(effect="none")
def read_record(kind: str) -> str:
    """Read a record."""
    return kind


TOOLS: Sequence[Tool] = [
    *workspace_tools(),
    *symbol_tools(),
    *command_tools(),
    fetch_tool(),
    refund,
    publish,
    order,
    order_status,
    read_record,
]


class Denying:
    """A judge that denies every call it is asked about."""

    timeout_s, title = 1.0, "denying"

    def wants(self, call: ValidatedCall) -> bool:
        return False

    async def judge(self, call: ValidatedCall, context: JudgeContext) -> Judgment:
        return Judgment(verdict="deny", reason="no")


class Tried(NamedTuple):
    forbidden: Sequence[RawCall]
    """Calls that must not run without a human's approval."""
    allowed: Sequence[RawCall]


def command(line: str | list[str], **more: object) -> RawCall:
    return RawCall(name="run_command", arguments=json.dumps({"command": line, **more}))


_SHELLS: list[str | list[str]] = [
    "git -c alias.x='!sh' x",
    ["git", "-c", "alias.x=!touch pwned", "x"],
    ["git", "-c", "core.pager=touch pwned", "-p", "status"],
    ["git", "-c", "core.sshCommand=touch pwned", "fetch"],
    ["git", "-c", "core.fsmonitor=touch pwned", "status"],
    ["git", "-c", "core.hooksPath=hooks", "status"],
    ["git", "-c", "diff.external=touch pwned", "diff"],
    ["git", "--config-env=alias.x=SHELL", "x"],
    ["git", "--exec-path=.", "status"],
    ["git", "--exec-path", ".", "status"],
    ["git", "-C", "/", "status"],
    ["git", "--git-dir=evil", "status"],
    ["git", "--work-tree=/", "status"],
    ["git", "-p", "status"],
    ["git", "x"],
    ["git", "fetch", "--upload-pack=touch pwned", "."],
    ["git", "ls-remote", "--upload-pack", "touch pwned", "."],
    ["git", "clone", "ext::sh -c touch% pwned", "x"],
    ["git", "clone", "-c", "core.hooksPath=x", ".", "y"],
    ["git", "clone", "--template=hooks", ".", "y"],
    ["git", "grep", "-Otouch", "x"],
    ["git", "grep", "--open-files-in-pager=touch pwned", "x"],
    ["git", "grep", "-nOtouch", "x"],
    ["git", "diff", "--ext-diff"],
    ["git", "diff", "--output=x"],
    ["git", "diff", "--no-index", "/etc/passwd", "x"],
    ["git", "rebase", "--exec", "touch pwned", "HEAD"],
    ["git", "rebase", "-x", "touch pwned"],
    ["git", "bisect", "run", "sh"],
    ["git", "submodule", "foreach", "sh"],
    ["git", "config", "alias.x", "!sh"],
    ["git", "difftool", "-x", "sh"],
    ["git", "status\nsh"],
    ["git status"],
    ["git", "status", "--", "x"],
    ["sh", "-c", "git status"],
    ["env", "git", "status"],
    ["./git", "status"],
    ["GIT", "status"],
    [" git", "status"],
    ["git", "status", ""],
    ["pytest", "-q", "-p", "evil"],
    ["pytest", "--rootdir=/", "-q"],
    "git status; sh",
    "git status && sh",
    "git status || sh",
    "git status | sh",
    "git status &",
    "git status\nsh",
    "git status\r\nsh",
    "git $(sh)",
    "git `sh`",
    "git status > x",
    "git status < x",
    "git ${IFS}status",
    "git st?tus",
    "git {status,x}",
    "git ~",
    "git status #x",
    "git status \\\n; sh",
    'git "status"',
    "GIT_PAGER=sh git status",
    "GIT_SSH_COMMAND=sh git fetch",
    "PATH=. git status",
    "git status\u2028sh",
    "git\u00a0status",
    "git\x0bstatus",
    "git\x00status",
    "",
    "   ",
    [],
    [""],
]
_OUTSIDE = ["../x", "/etc/passwd", "link", "sub/../../x", "sub/link/x", ".//..//x", "a/" * 3_000, "~/x\x00"]
_SECRETS = ["prod.env", "./prod.env", "sub/../prod.env", "sub/.env", "to_env", ".env.local", "sub//.env", "prod.env/", ".env.local/."]

TRIED: dict[str, Tried] = {
    "write-rules.md:0": Tried(
        forbidden=[
            *[command(line) for line in _SHELLS],
            command(["git", "status"], cwd="../"),
            *[call("read_file", path=path) for path in [*_OUTSIDE, *_SECRETS]],
            *[
                call(name, **{"path": path, **more})
                for name, more in (("grep_files", {"pattern": "x"}), ("list_files", {}))
                for path in _OUTSIDE
            ],
            *[call("grep_files", pattern=SECRET, path=path) for path in _SECRETS],
            *[call("glob_files", pattern="*", path=path) for path in _OUTSIDE],
            call("write_file", path="a.txt", content="x"),
            call("edit_file", path="a.txt", old="a", new="b"),
            call("find_symbol", name="x"),
            call("fetch_url", url="http://example.com"),
            *[call("refund", order="A7", cents=cents) for cents in (5001, 70_000, 10**30)],
            RawCall(name="refund", arguments='{"order": "A7", "cents": 5e3000}'),
            RawCall(name="refund", arguments='{"order": "A7", "cents": "70000"}'),
        ],
        allowed=[
            command("git status"),
            command(["git", "status"]),
            command(" git  log\t--oneline "),
            command(["pytest", "-q"]),
            call("read_file", path="a.txt"),
            call("read_file", path="./sub/../a.txt"),
            call("list_files"),
            call("list_files", path="sub", depth=3),
            call("glob_files", pattern="**/*.txt"),
            call("glob_files", pattern="*.txt", path="sub"),
            call("grep_files", pattern="text"),
            call("grep_files", pattern="t.xt", regex=True, path="sub"),
            call("refund", order="A7", cents=5000),
            call("refund", order="A7"),
        ],
    ),
    "run-the-gateway.md:0": Tried([call("order", item="lamp")], []),
    "ask-a-human.md:0": Tried([call("refund", order="A7", amount=20), call("Refund", order="A7", amount=20)], []),
    "first-agent.md:0": Tried([call("refund", order="A7", cents=1)], [call("order_status", order="A7")]),
    "first-call.md:0": Tried(
        [call("refund", order="A7", cents=cents) for cents in (5001, 10_001, 10**30)], [call("refund", order="A7", cents=5000)]
    ),
    "ignored-paths.md:0": Tried(
        [
            call("read_file", path="node_modules/x.js"),
            call("read_file", path="kept.key"),
            call("read_file", path="to_key"),
            call("read_file", path="sub/../kept.key"),
            call("write_file", path=".gitignore", content=""),
            call("write_file", path="sub/.gitignore", content="!*"),
            call("write_file", path="to_ignore", content=""),
            call("write_file", path=".git/info/exclude", content=""),
            call("list_files", path="node_modules"),
        ],
        [call("read_file", path="a.txt"), call("read_file", path=".gitignore"), call("write_file", path="sub/new.txt", content="")],
    ),
    "have-a-model-judge-calls.md:0": Tried(
        [call("read_record", kind="customer"), call("refund", order="A7", cents=10001)],
        [call("read_record", kind="order"), call("refund", order="A7", cents=10000)],
    ),
    "test-a-policy-against-the-log.md:0": Tried([call("refund", order="A7", cents=5001)], [call("refund", order="A7", cents=5000)]),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "x").write_text("outside", encoding="utf-8")
    for name in ("prod.env", "sub/.env", ".env.local"):
        (root / name).write_text(f"KEY={SECRET}\n", encoding="utf-8")
    for name in ("a.txt", "sub/b.txt"):
        (root / name).write_text("a text\n", encoding="utf-8")
    (root / "sub/code.py").write_text("def found():\n    return 1\n", encoding="utf-8")
    (root / "to_env").symlink_to("prod.env")
    (root / "link").symlink_to(tmp_path / "x")
    (root / "sub/link").symlink_to(tmp_path)
    return root


def ran(outcome: Outcome) -> bool:
    """Return whether a policy let the call run, whatever the result of the tool."""
    if isinstance(outcome, Suspended):
        return False
    return result_of(outcome).failure_class not in ("denied", "invalid_parameters", "malformed_arguments", "unknown_tool")


def test_every_documented_rule_file_is_tested() -> None:
    assert documented().keys() == TRIED.keys()


@pytest.mark.parametrize("name", TRIED)
async def test_a_documented_rule_file_stops_forbidden_calls_and_allows_the_others(name: str, workspace: Path) -> None:
    (workspace / ".gitignore").write_text("*.key\n", encoding="utf-8")
    (workspace / "kept.key").write_text("a key\n", encoding="utf-8")
    (workspace / "to_key").symlink_to("kept.key")
    (workspace / "to_ignore").symlink_to(".gitignore")
    scope = Scope(workspace=str(workspace))
    async with Engine(TOOLS, policies=[Rules.parse(documented()[name]), Denying()]) as engine:
        got_through = [raw.arguments for raw in TRIED[name].forbidden if ran(await engine.call(raw, scope))]
        kept_back = [raw.arguments for raw in TRIED[name].allowed if not ran(await engine.call(raw, scope))]
    assert (got_through, kept_back) == ([], [])
    assert "pwned" not in os.listdir(workspace)


@pytest.mark.parametrize(
    "raw",
    [
        call("grep_files", pattern=SECRET),
        call("grep_files", pattern="KEY", glob="**/.env"),
        call("grep_files", pattern="KEY=.*", regex=True),
        call("grep_files", pattern=SECRET, path="sub"),
        call("list_files", depth=5),
        call("list_files", path="sub"),
        call("glob_files", pattern="**"),
        call("glob_files", pattern="**/*env*"),
        call("glob_files", pattern="*.env"),
        call("glob_files", pattern="[.]env*", path="sub"),
    ],
    ids=lambda raw: str(raw.arguments),
)
async def test_searches_and_listings_omit_files_that_the_no_secrets_rule_denies(raw: RawCall, workspace: Path) -> None:
    """The call names only the workspace; each file that the search finds is judged as well."""
    async with Engine(TOOLS, policies=[Rules.parse(documented()["write-rules.md:0"])]) as engine:
        result = result_of(await engine.call(raw, Scope(workspace=str(workspace))))
    assert result.success
    given = json.dumps(result.structured)
    assert SECRET not in given
    assert '"prod.env"' not in given
    assert ".env" not in given.replace(json.dumps(json.loads(str(raw.arguments)).get("pattern", "")), "")
    assert result.structured["files_withheld"] >= 1  # type: ignore[index]


async def test_symbols_in_files_that_rules_deny_are_not_found(workspace: Path) -> None:
    rules = Rules.parse('[[rule]]\nid = "x"\nverdict = "deny"\nwhen = { path = { glob = "sub/*" } }\n')
    async with Engine(TOOLS, policies=[rules]) as engine:
        result = result_of(await engine.call(call("find_symbol", name="found"), Scope(workspace=str(workspace))))
    assert result.structured["symbols"] == []  # type: ignore[index]


@pytest.mark.parametrize(
    ("rules", "given"),
    [
        ('[[rule]]\nid = "x"\nverdict = "ask"\nwhen = { path = { suffix = ".env" } }\n', ["a.txt", "to_env", ".env.local"]),
        ('[[rule]]\nid = "x"\nverdict = "deny"\nwhen = { "path.bytes" = { above = 10 } }\n', ["a.txt", "to_env"]),
        ('default = "deny"\n[[rule]]\nid = "x"\nverdict = "allow"\nwhen = { path = [".", "a.txt"] }\n', ["a.txt"]),
        (
            '[[rule]]\nid = "x"\nverdict = "deny"\ntool = "read_file"\nwhen = { path = "a.txt" }\n',
            [".env.local", "a.txt", "prod.env", "to_env"],
        ),
    ],
    ids=["ask", "size", "only", "another tool"],
)
async def test_files_found_by_a_search_are_judged_like_the_path_argument_of_a_call(rules: str, given: list[str], workspace: Path) -> None:
    async with Engine(TOOLS, policies=[Rules.parse(rules)]) as engine:
        result = result_of(await engine.call(call("glob_files", pattern="*"), Scope(workspace=str(workspace))))
    paths = result.structured["paths"]  # type: ignore[index]
    assert sorted(path for path in paths if path != "link") == sorted(given)


async def test_an_approved_search_asks_no_further_questions_but_omits_denied_files(workspace: Path) -> None:
    ask = '[[rule]]\nid = "search"\nverdict = "ask"\ntool = "grep_files"\n'
    rules = ask + '[[rule]]\nid = "x"\nverdict = "deny"\nwhen = { path = "prod.env" }\n'
    scope, raw = Scope(workspace=str(workspace), run="r"), call("grep_files", pattern=SECRET)
    async with Engine(TOOLS, policies=[Rules.parse(rules)]) as engine:
        asked = await engine.call(raw, scope)
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True)
        result = result_of(await engine.call(raw, scope))
    found = [match["path"] for match in result.structured["matches"]]  # type: ignore[index]
    assert found == [".env.local", "sub/.env"]
