"""Wrong input to every command: a documented exit code and a message that names the input and the next step, without Python terms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import callgate
from callgate.cli._app import app
from callgate.cli._error_advice import ADVICE
from tests.cli.mcp_server_programs import SHOP, write_servers
from tests.cli.shell import shell

MODEL = ("--model", "x", "--base-url", "http://127.0.0.1:9/v1")
RUN = ("run", "hi", *MODEL)
WRONG: tuple[tuple[tuple[str, ...], str], ...] = (
    (RUN, "could not be reached"),
    (("run", "hi"), "--model"),
    (("run", "hi", "--model", "nope:x"), "nope"),
    (("run", "hi", "--model", "openai"), "openai:NAME"),
    (("run", "hi", "--model", "openai:gpt-5"), "OPENAI_API_KEY"),
    (("run", "hi", "--model", "bedrock:x"), "AWS_ACCESS_KEY_ID"),
    (("run", "hi", "--model", "openai-compatible:x"), "--base-url"),
    (("run", "hi", "--model", "x", "--base-url", "ftp://a"), "--base-url"),
    (("run", "", *MODEL), "task is empty"),
    ((*RUN, "--tools", "boom.py"), "boom.py:1"),
    ((*RUN, "--tools", "syntax.py"), "syntax.py"),
    ((*RUN, "--tools", "none.py"), "none.py"),
    ((*RUN, "--tools", "folder"), "folder"),
    ((*RUN, "--rules", "bad.toml"), "bad.toml"),
    ((*RUN, "--rules", "folder"), "folder"),
    ((*RUN, "--rules", "none.toml"), "none.toml"),
    ((*RUN, "--record", "folder"), "folder"),
    ((*RUN, "--record", "random.db"), "random.db"),
    ((*RUN, "--record", "text.txt/journal.db"), "text.txt"),
    ((*RUN, "--memory", "folder"), "folder"),
    ((*RUN, "--memory", "random.db"), "random.db"),
    ((*RUN, "--workspace", "text.txt"), "text.txt"),
    ((*RUN, "--system", "@folder"), "folder"),
    ((*RUN, "--max-iterations", "many"), "--max-iterations"),
    ((*RUN, "--preset", "none"), "--preset"),
    ((*RUN, "--chat"), "--chat"),
    ((*RUN, "--mcp", "none.json"), "none.json"),
    ((*RUN, "--mcp", "bad.json"), "bad.json"),
    ((*RUN, "--mcp", ""), "--mcp"),
    ((*RUN, "--mcp", "node 'x"), "--mcp"),
    ((*RUN, "--mcp", "node x.js", "--mcp", "node x.js"), "--mcp"),
    (("call",), "TOOL"),
    (("approve",), "APPROVAL. The approval's id, as `callgate approvals` shows it, or its beginning."),
    (("stop",), "`callgate log list`"),
    (("call", "list_files", "word"), "word"),
    (("call", "list_files", "@none.json"), "none.json"),
    (("call", "list_files", "@folder"), "folder"),
    (("call", "list_files", "--timeout", "nan"), "--timeout"),
    (("call", "list_files", "--policy", "bad.toml"), "bad.toml"),
    (("call", "list_files", "--journal", "folder"), "folder"),
    (("call", "list_files", "--journal", "text.txt"), "text.txt"),
    (("call", "list_files", "--workspace", "none"), "none"),
    (("tools", "list", "--tools", "none_such"), "none_such"),
    (("tools", "show", "nope"), "nope"),
    (("log", "list", "--journal", "none.db"), "none.db"),
    (("log", "list", "--journal", "folder"), "folder"),
    (("log", "list", "--journal", "random.db"), "random.db"),
    (("log", "list", "--since", "soon"), "--since"),
    (("log", "list", "--limit", "0"), "--limit"),
    (("log", "show", "x"), "x"),
    (("log", "result", "x"), "x"),
    (("log", "result", "case"), "2 calls"),
    (("log", "tree", "99999"), "99999"),
    (("log", "follow", "--journal", "none.db"), "none.db"),
    (("log", "stats", "--run", "none"), "none"),
    (("log", "export", "--to", "folder"), "folder"),
    (("log", "export", "--to", "none/file.jsonl"), "none/file.jsonl"),
    (("log", "verify", "--tail", "-1"), "tail"),
    (("memory", "search", "x", "--memory", "none.db"), "none.db"),
    (("memory", "search", "x", "--memory", "folder"), "folder"),
    (("memory", "status", "--memory", "none.db"), "none.db"),
    (("memory", "rebuild", "--memory", "folder"), "folder"),
    (("rules", "check", "none.toml"), "none.toml"),
    (("mcp", "add", "x"), "--"),
    (("mcp", "add", "x", "--config", "folder", "--", "y"), "folder"),
    (("mcp", "add", "x", "--config", "text.txt", "--", "y"), "text.txt"),
    (("mcp", "add", "x", "--", "no-such-program"), "no-such-program"),
    (("mcp", "list"), ".mcp.json"),
    (("mcp", "list", "--config", "text.txt"), "text.txt"),
    (("mcp", "remove", "x"), ".mcp.json"),
    (("mcp", "test", "x", "--config", "good.json"), "It has: git"),
    (("mcp", "test", "git", "--config", "good.json", "--tool", "x", "--arguments", "[5"), "no-such-program"),
    (("mcp", "diff", "--config", "folder"), "folder"),
    (("mcp", "accept", "x", "--config", "good.json"), "It has: git"),
    (("replay", "none"), "none"),
    (("replay", "case", "--policy", "bad.toml"), "bad.toml"),
    (("resume", "none", *MODEL), "none"),
    (("resume", "case", *MODEL), "case"),
    (("resume", "case", "--record", "text.txt", *MODEL), "text.txt"),
    (("approvals", "--journal", "folder"), "folder"),
    (("approve", "none"), "none"),
    (("deny", "none", "--journal", "text.txt"), "text.txt"),
    (("settle", "none", "--happened"), "none"),
    (("settle", "case/0/0"), "--happened"),
    (("stop", "none"), "none"),
    (("kill", "case", "--wait", "-1"), "--wait"),
    (("undo", "none"), "Nothing is kept of"),
    (("undo", "last", "--workspace", "none"), "none"),
    (("redo",), "Nothing is kept of"),
    (("diff", "none"), "Nothing is kept of"),
    (("plugin", "new", "a b"), "a b"),
    (("plugin", "check", "no-such-plugin"), "no-such-plugin"),
    (("plugin", "install", "no-such-plugin"), "no-such-plugin"),
    (("plugin", "uninstall"), "plugin"),
    (("plugin", "prune", "extra"), "extra"),
    (("serve", "--http", "127.0.0.1:0", "--config", "none.toml"), "none.toml"),
    (("serve", "--http", "everywhere", "--tools", "builtin"), "everywhere"),
    (("serve", "check", "--config", "bad.toml"), "bad.toml"),
    (("serve", "--config", "a", "--config=b"), "--config is given more than once. Give it once."),
    (("log", "list", "--json", "--limit", "2", "--json"), "--json is given more than once. Give it once."),
    (("serve", "check", "--mcp", "good.json", "--rules", "none.toml"), "none.toml"),
    (("plugin", "list", "no-such-plugin"), "no-such-plugin"),
    (("checkpoint", "add", "a b"), "a b"),
    (("checkpoint", "drop", "none"), "none"),
    (("checkpoint", "prune", "--keep-days", "-1"), "--keep-days"),
    (("completion", "tcsh"), 'Choose from: "bash"'),
    (("demo", "nope"), "nope"),
    (("demo", "--dir", "none"), "none"),
    (("doctor", "--jsn"), "--jsn"),
    (("nope",), "nope"),
)
PYTHON = re.compile(
    r"Traceback|\[Errno|Error\(|\bNone\b|\w+=\.\.\.|api_key|(?<!-)\bbase_url\b|\b(?:Engine|Agent|Scope|Limits|Memory|McpServer|AcceptedTools)[.(]|\b(?:model|mcp)\("
    r"|object at 0x|<class"
)
"""Terms that only have a meaning in a Python program."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "folder").mkdir()
    (folder / "bad.toml").write_text("x = [")
    (folder / "text.txt").write_text("hello\n")
    (folder / "bad.json").write_text('{"mcpServers": {"git": {"command": 5}}}')
    (folder / "good.json").write_text('{"mcpServers": {"git": {"command": "no-such-program"}}}')
    (folder / "random.db").write_bytes(bytes(range(256)) * 2)
    (folder / "boom.py").write_text("raise ValueError('boom')\n")
    (folder / "syntax.py").write_text("def\n")
    for _ in range(2):
        assert shell(folder, "call", "list_files", "--run", "case").code == 0
    return folder


@pytest.mark.parametrize(("words", "named"), WRONG, ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else None)
def test_wrong_input_is_reported_in_command_line_terms_without_a_traceback(place: Path, words: tuple[str, ...], named: str) -> None:
    done = shell(place, *words)
    assert done.code in (1, 2), done.err
    assert named in done.err
    assert not PYTHON.search(done.err), done.err
    assert len(done.err.strip().splitlines()) < 12


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("lgo", "list"), "There is no command `callgate lgo`. Did you mean `callgate log`?"),
        (("mcp", "lsit"), "There is no command `callgate mcp lsit`. Did you mean `callgate mcp list`?"),
        (("zzzzz",), "There is no command `callgate zzzzz`."),
        (("settle", "x", "--happened", "--not-happened"), "--happened and --not-happened exclude each other. Give one of them."),
        (("settle", "x", "--by", "a", "--by", "b"), "--by is given more than once. Give it once."),
    ],
)
def test_a_mistyped_command_or_option_is_said_as_it_was_typed(place: Path, words: tuple[str, ...], told: str) -> None:
    done = shell(place, *words)
    assert (done.code, told in done.err) == (2, True), done.err


def test_files_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """As editors on Windows save them."""
    write_servers(tmp_path)
    (tmp_path / "gate.toml").write_text(f"[servers.shop]\ncommand = {json.dumps(list(SHOP))}\n", encoding="utf-8-sig")
    (tmp_path / "rules.toml").write_text('[[rule]]\nid = "a"\nverdict = "ask"\ntool = "run_command"\n', encoding="utf-8-sig")
    assert shell(tmp_path, "serve", "check").code == 0
    assert shell(tmp_path, "rules", "check", "rules.toml").code == 0
    shell(tmp_path, "plugin", "new", "hello")
    manifest = tmp_path / "hello" / "callgate-plugin.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert shell(tmp_path, "plugin", "check", "./hello").code == 0


def test_nobody_is_advised_to_delete_a_file_that_is_no_journal(place: Path) -> None:
    (place / "gate.toml").write_text('name = "shop"\n', encoding="utf-8")
    done = shell(place, "call", "list_files", "--journal", "gate.toml")
    assert (done.code, "Give another file." in done.err, "delete" in done.err) == (2, True, False), done.err


def test_every_command_is_tested_with_wrong_input() -> None:
    def paths(root: object, before: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        found: set[tuple[str, ...]] = set()
        for name in root:  # type: ignore[attr-defined]
            if not name.startswith("-"):
                command = root[name]  # type: ignore[index]
                found |= {(*before, name)} if command.default_command is not None else paths(command, (*before, name))
        return found

    tried = {words[: len(path)] for words, _ in WRONG for path in paths(app) if words[: len(path)] == path}
    assert paths(app) - tried == {("checkpoint", "list")}  # `checkpoint list` takes no input


def test_every_reworded_advice_exists_in_the_library() -> None:
    """An entry whose text no longer exists in the library would have no effect."""
    source = Path(callgate.__file__).parent
    files = [path for path in source.rglob("*.py") if path.parent != source / "cli"]
    library = "".join(re.sub(r'"\s*f?"', "", path.read_text(encoding="utf-8")) for path in files)  # joins literals split over lines
    assert [said for said in ADVICE if said.strip(":").strip() not in library] == []
