"""The commands and their words, as cyclopts reads them; each hands over to the module that does the work.

Here are help texts and exit codes, nothing else. A callgate error becomes one sentence on standard error.
"""

from __future__ import annotations

import logging
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

import callgate
from callgate.cli import _exit_codes as _exits
from callgate.cli._advice import at_terminal
from callgate.cli._console import say
from callgate.cli._inbox_commands import add_inbox
from callgate.cli._interrupt_signals import unwinding_on_termination
from callgate.cli._log_commands import log_app
from callgate.cli._memory_commands import memory_app
from callgate.cli._options import CallOptions
from callgate.cli._replay_commands import replay as replay_words
from callgate.cli._run_commands import resume as resume_words
from callgate.cli._run_commands import run as run_words
from callgate.cli._shared_options import AsJson, Tools
from callgate.cli._standard_streams import guarded
from callgate.cli._undo_commands import add_undo
from callgate.errors import CallgateError

__all__ = ["app", "run"]

_EXITS = """
Exit codes: 0 ok · 1 the call or run failed, or what was checked does not hold · 2 wrong usage · 3 the outcome is unknown, check before
you repeat it · 4 a human has to decide · 5 the run's budget is used up · 6 a recorded run would have gone another way · 130 interrupted ·
129 or 143 ended by SIGHUP or SIGTERM, after what ran was ended.
"""

app = App(
    name="callgate",
    help="The tool-call engine for LLM agents: every call checked, stoppable, never twice, all on record.\n\n"
    "Begin with `callgate demo`, then `callgate call list_files`, `callgate run TASK`, then `callgate log list`.",
    help_epilogue=_EXITS,
    version=callgate.__version__,
    default_parameter=Parameter(show_default=False),
    help_format="markdown",
)
tools_app = App(name="tools", help="What a model could call: the tools, and their schemas.")
rules_app = App(name="rules", help="Rules: whether a file of them is valid and names what there is.")
app.command(tools_app)
app.command(rules_app)
app.command(log_app)
app.command(memory_app)
add_undo(app)
add_inbox(app)

app.command(run_words, name="run")
app.command(resume_words, name="resume")
app.command(replay_words, name="replay")


def run(words: list[str]) -> int:
    """Carry out one command line; the exit code."""
    logging.getLogger("callgate").addHandler(logging.NullHandler())  # the screen says it already
    with guarded() as (output, _), unwinding_on_termination():
        if output is None:
            say("Standard output is closed, so nothing could be shown. Nothing was done. Leave it open, or send it to /dev/null.", "red")
            return _exits.USAGE
        code = _carry_out(words)
        output.flush()
        if output.lost is None or isinstance(output.lost, BrokenPipeError):  # a reader who has seen enough is no failure
            return code
        say(f"The output could not be written: {output.lost.strerror}. What was done is in the journal: `callgate log list`.", "red")
        return code or _exits.FAILED


def _carry_out(words: list[str]) -> int:
    try:
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        return int(command(*bound.args, **bound.kwargs) or 0)
    except CycloptsError as error:
        say(f"{error}".strip(), "red")
        say("`callgate --help` and `callgate COMMAND --help` show what there is.")
        return _exits.USAGE
    except CallgateError as error:
        say(at_terminal(str(error)), "red")
        return _exits.USAGE
    except PermissionError as error:  # a folder that nobody may look into hides even whether a file is there
        say(f"{error.filename or 'A file'} cannot be used: {error.strerror}. Check the rights, of its folder too, or give another.", "red")
        return _exits.USAGE
    except KeyboardInterrupt:
        return _exits.INTERRUPTED


@app.command
def call(tool: str, /, *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)], options: CallOptions | None = None) -> int:
    """Make one call, through the whole route: checked, judged, run, recorded.

    The result's text goes to standard output; progress and everything about the result go to standard error.

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
        One JSON object, or `key=value` (made what the schema asks for, where nothing is lost), or `key:=JSON`, or `@file`, or `-`.
    """
    from callgate.cli._arguments import read_arguments
    from callgate.cli._call import call as make

    return make(tool, read_arguments(arguments), options or CallOptions())


@tools_app.command(name="list")
def tools_list(*, tools: Tools = ("builtin",), json: AsJson = False) -> int:
    """List tools: name, effect, category, runner, whether they declare what they touch.

    ```
    callgate tools list --tools builtin --tools crm.py
    ```
    """
    from callgate.cli._tools import list_tools

    return list_tools(tools, as_json=json)


@tools_app.command(name="show")
def tools_show(name: str, /, *, tools: Tools = ("builtin",), json: AsJson = False) -> int:
    """Show one tool: what the engine knows of it, and the schema that a model gets.

    ```
    callgate tools show run_command
    ```
    """
    from callgate.cli._tools import show_tool

    return show_tool(name, tools, as_json=json)


@rules_app.command(name="check")
def rules_check(file: str, /, *, tools: Tools = ("builtin",), json: AsJson = False) -> int:
    """Check a rule file: that it can be read, and that every tool, argument and value in it exists; 1 if not.

    ```
    callgate rules check rules.toml --tools builtin --tools crm.py
    ```
    """
    from callgate.cli._rules import check_rules

    return check_rules(file, tools, as_json=json)


@app.command
def doctor(*, json: AsJson = False) -> int:
    """Show what this machine has and how far each guarantee holds on it; 1 if something needed is broken.

    ```
    callgate doctor
    ```
    """
    from callgate.cli._doctor import doctor as examine

    return examine(as_json=json)


@app.command
def demo(
    name: str = "",
    /,
    *,
    dir: Annotated[str | None, Parameter(name="--dir")] = None,
    list: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json: AsJson = False,
) -> int:
    """Watch it work: a small repository with a failing test is repaired by tool calls, and everything that goes wrong on the way.

    ```
    callgate demo
    callgate demo stop
    callgate demo --dir ~/my-project
    ```

    Parameters
    ----------
    name
        One demonstration; `--list` names them. Default: the main one.
    dir
        Run the read-only part on this folder. Changes nothing in it.
    list
        Name the demonstrations.
    """
    from callgate.cli._demo import demo as show
    from callgate.cli._demo import list_demos

    return list_demos(as_json=json) if list else show(name or ("folder" if dir else "repair"), dir, as_json=json)
