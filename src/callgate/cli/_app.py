"""Define the commands for cyclopts; each command calls the module that does the work.

Contains help texts and exit codes only. A callgate error is printed as one sentence on standard error.
"""

from __future__ import annotations

import logging
import shlex
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, RepeatArgumentError

import callgate
from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._command_options import CallOptions
from callgate.cli._console import say, write_text
from callgate.cli._error_advice import at_terminal
from callgate.cli._inbox_commands import add_inbox
from callgate.cli._interrupt_signals import unwinding_on_termination
from callgate.cli._log_commands import log_app
from callgate.cli._mcp_commands import mcp_app
from callgate.cli._memory_commands import memory_app
from callgate.cli._plugin_commands import plugin_app
from callgate.cli._replay_commands import replay as replay_words
from callgate.cli._run_commands import resume as resume_words
from callgate.cli._run_commands import run as run_words
from callgate.cli._serve_commands import serve_app
from callgate.cli._shared_options import AsJson, Tools
from callgate.cli._standard_streams import guard_streams
from callgate.cli._undo_commands import add_undo
from callgate.errors import CallgateError

__all__ = ["app", "run"]

_SQLITE = b"SQLite format 3\0"
_EXITS = """
Exit codes: 0 ok · 1 the call, the run or the check failed · 2 wrong usage · 3 the outcome is unknown, check before you repeat the call ·
4 a human has to decide · 5 the run's budget is used up · 6 a replayed run would have gone differently · 130 interrupted ·
129 or 143 ended by SIGHUP or SIGTERM, after the running calls were ended.
"""

app = App(
    name="callgate",
    help="The tool-call engine for LLM agents: every call checked, stoppable, never twice, all on record.\n\n"
    "Start with `callgate demo`, then `callgate call list_files`, `callgate run TASK`, then `callgate log list`.",
    help_epilogue=_EXITS,
    version=callgate.__version__,
    default_parameter=Parameter(show_default=False),
    help_format="markdown",
    version_format="plaintext",  # printing it as Markdown would import more than the command line needs
)
tools_app = App(name="tools", help="Show the tools that a model can call, and their schemas.")
_RECORDED = (["call"], ["run"], ["resume"])
"""The commands that the journal has a record of."""
rules_app = App(name="rules", help="Check rule files.")
app.command(tools_app)
app.command(rules_app)
app.command(log_app)
app.command(memory_app)
app.command(mcp_app)
app.command(plugin_app)
app.command(serve_app)
add_undo(app)
add_inbox(app)

app.command(run_words, name="run")
app.command(resume_words, name="resume")
app.command(replay_words, name="replay")


def run(words: list[str]) -> int:
    """Run one command line and return its exit code."""
    logging.getLogger("callgate").addHandler(logging.NullHandler())  # the commands print what is logged
    with guard_streams() as (output, _), unwinding_on_termination():
        if output is None:
            say(
                "Standard output is closed, so nothing could be shown. Nothing was done. Leave it open, or redirect it to /dev/null.", "red"
            )
            return _exits.USAGE
        code = _carry_out(words)
        output.flush()
        if output.lost is None or isinstance(output.lost, BrokenPipeError):  # a reader that closes the pipe early is not a failure
            return code
        then = " `callgate log list` shows what was done." if words[:1] in _RECORDED else ""
        say(f"The output could not be written: {output.lost.strerror}.{then}", "red")
        return code or _exits.FAILED


def _carry_out(words: list[str]) -> int:
    try:
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        return int(command(*bound.args, **bound.kwargs) or 0)
    except RepeatArgumentError as error:
        say(_describe_repetition(words, str(error.token.keyword)), "red")
        return _exits.USAGE
    except CycloptsError as error:
        return _usage(words, error)
    except CallgateError as error:
        say(at_terminal(str(error)), "red")
        return _exits.USAGE
    except PermissionError as error:  # in a folder without search permission, even a file's existence cannot be checked
        say(
            f"{error.filename or 'A file'} cannot be used: {error.strerror}. Check the permissions, also of its folder, or give another.",
            "red",
        )
        return _exits.USAGE
    except KeyboardInterrupt:
        return _exits.INTERRUPTED


def _describe_repetition(words: list[str], keyword: str) -> str:
    opposites = {f"--not-{keyword.removeprefix('--')}", f"--no-{keyword.removeprefix('--')}", *_positive(keyword)}
    if other := next((word for word in words if word in opposites), ""):
        return f"{other} and {keyword} exclude each other. Give one of them."
    return f"{keyword} is given more than once. Give it once."


def _positive(keyword: str) -> list[str]:
    return [f"--{keyword.removeprefix(prefix)}" for prefix in ("--not-", "--no-") if keyword.startswith(prefix)]


def _misspelled_command(words: list[str]) -> str:
    """Return a sentence about the first word that has to name a command and does not; empty if there is none."""
    level, path = app, "callgate"
    for word in words:
        if level.default_command is not None or word.startswith("-"):
            return ""
        names = [name for name in level if not name.startswith("-")]
        if word not in names:
            near = get_close_matches(word[:50], names, n=1)
            return f"There is no command `{path} {one_line(word, 80)}`.{f' Did you mean `{path} {near[0]}`?' if near else ''}"
        level, path = level[word], f"{path} {word}"
    return ""


def _usage(words: list[str], error: CycloptsError) -> int:
    """Print what is wrong with a command line that cannot be read."""
    unused: list[str] = [*(getattr(error, "unused_tokens", None) or ())]
    options = [word for word in unused if word.startswith("-") and word != "--"]
    missing = error.argument if isinstance(error, MissingArgumentError) else None
    if misspelled := _misspelled_command(words):
        say(misspelled, "red")
    elif without := next((option for option in options if missing is not None and option in missing.names), ""):
        say(f"{without} needs a value after it.", "red")
    elif missing is not None and not unused:
        command = " ".join(("callgate", *(error.command_chain or ())))
        name = missing.name.lstrip("-").upper()
        say(f"{command} needs {name}. {missing.parameter.help or ''}".strip(), "red")
    else:
        say(f"The command takes no {shlex.join(options or unused)}." if unused else f"{error}".strip(), "red")
    for journal in filter(_names_journal, unused):
        say(f"A journal is named by an option. Did you mean --journal {shlex.quote(journal)}?")
    if words[:2] == ["log", "list"] and len(unused) == 1 and not options:
        say(f"A run is named by an option. Did you mean --run {shlex.quote(unused[0])}?")
    say("`callgate --help` and `callgate COMMAND --help` list the commands and options.")
    return _exits.USAGE


def _names_journal(word: str) -> bool:
    """Return whether a word that no command takes looks like a journal."""
    from callgate._journal.journal_reader import is_url

    return is_url(word) or Path(word).suffix in (".db", ".sqlite") or _is_sqlite_file(Path(word))


def _is_sqlite_file(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except (OSError, ValueError):
        return False


@app.command
def call(tool: str, /, *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)], options: CallOptions | None = None) -> int:
    """Make one call through the engine: validate, decide, run, record.

    Prints the result's text to standard output, and progress and details to standard error.

    ```
    callgate call read_file path=README.md limit=20
    callgate call run_command '{"command": ["git", "status"]}' --policy rules.toml
    callgate call remember text="The refund desk closes at five." --memory memory.db
    callgate call refund amount=12 order=A7 --tools crm.py --run case-7 --key refund-A7
    ```

    Parameters
    ----------
    tool
        The tool's name.
    arguments
        One JSON object, or `key=value` (converted to the schema's type if nothing is lost), or `key:=JSON`, or `@file`, or `-` for standard
        input.
    """
    from callgate.cli._call import call as make
    from callgate.cli._call_arguments import read_arguments

    return make(tool, read_arguments(arguments), options or CallOptions())


@tools_app.command(name="list")
def tools_list(*, tools: Tools = ("builtin",), json: AsJson = False) -> int:
    """List tools with their effect, category, runner, and whether they declare what they read and write.

    ```
    callgate tools list --tools builtin --tools crm.py
    ```
    """
    from callgate.cli._tools import list_tools

    return list_tools(tools, as_json=json)


@tools_app.command(name="show")
def tools_show(name: str, /, *, tools: Tools = ("builtin",), json: AsJson = False) -> int:
    """Show one tool's declaration and the schema that a model gets.

    ```
    callgate tools show run_command
    ```
    """
    from callgate.cli._tools import show_tool

    return show_tool(name, tools, as_json=json)


@rules_app.command(name="check")
def rules_check(file: str, /, *, tools: Tools = ("builtin",), json: AsJson = False) -> int:
    """Check that a rule file is valid and that every tool, argument and value in it exists; exit code 1 if not.

    ```
    callgate rules check rules.toml --tools builtin --tools crm.py
    ```
    """
    from callgate.cli._rules import check_rules

    return check_rules(file, tools, as_json=json)


@app.command
def doctor(*, json: AsJson = False) -> int:
    """Show what is installed and how far each guarantee holds on this machine; exit code 1 if a required part is broken.

    ```
    callgate doctor
    ```
    """
    from callgate.cli._doctor import doctor as examine

    return examine(as_json=json)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the script by which a shell completes the commands and options.

    ```
    callgate completion bash > ~/.local/share/bash-completion/completions/callgate
    callgate completion zsh > ~/.zsh/completions/_cyclopts_callgate
    callgate completion fish > ~/.config/fish/completions/callgate.fish
    ```

    Make the folder first. For zsh, it has to be in `fpath` before `compinit` runs.
    """
    write_text(app.generate_completion(shell=shell))
    return _exits.OK


@app.command
def demo(
    name: str = "",
    /,
    *,
    dir: Annotated[str | None, Parameter(name="--dir")] = None,
    list: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json: AsJson = False,
) -> int:
    """Run a demonstration: an agent repairs a small repository with a failing test, while calls fail, hang and are denied.

    ```
    callgate demo
    callgate demo stop
    callgate demo --dir ~/my-project
    ```

    Parameters
    ----------
    name
        The demonstration's name; `--list` shows all. Default: `repair`.
    dir
        Run the read-only demonstration on this folder. Changes nothing in it.
    list
        List the demonstrations.
    """
    from callgate.cli._demo import demo as show
    from callgate.cli._demo import list_demos

    return list_demos(as_json=json) if list else show(name or ("folder" if dir else "repair"), dir, as_json=json)
