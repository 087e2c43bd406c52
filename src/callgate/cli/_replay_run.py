"""`callgate replay`: rebuild a recorded run, judge its calls again, ask another model, or export it as a test.

Only reads the journal; other processes may write it meanwhile. Creates no folder and no engine. Parts of the run that
are not in the journal are reported as gaps.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from callgate._blob_store import MemoryBlobs
from callgate._journal import open_reader
from callgate._tool_loading import load_tools
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import ReplayOptions
from callgate.cli._console import print_json, say
from callgate.cli._journal_location import stored_blobs
from callgate.cli._replay_screen import asked_json, judged_json, made_json, show_asked, show_judged, show_made
from callgate.cli._run_names import LAST, newest_run
from callgate.cli._run_options import named_model
from callgate.errors import UsageError
from callgate.policy import Rules, careful
from callgate.replay import JudgedRun, ModelComparison, Replay, ask_again, judge_again
from callgate.replay.export_as_test import as_test, was_careful
from callgate.replay.run_file import RunFile
from callgate.tools import Tool

__all__ = ["replay_run"]


def replay_run(run: str, options: ReplayOptions) -> int:
    """Replay one run; return the exit code."""
    refuse_odd_text(run=run, journal=options.journal)
    _refuse_together(options)
    policies = (Rules.load(options.policy),) if options.policy else None
    with closing(open_reader(options.journal)) as reader:
        blobs = stored_blobs(reader, options.journal)
        run = newest_run(reader) if run == LAST else run
        made = Replay.of(reader, run, blobs)
        kept = RunFile.of(reader, run, blobs) if options.export and not made.differences else None
    if made.differences:
        return _show_replay(made, options)
    if kept is not None:
        return _export(kept, made, options)
    if options.model:
        return _show_comparison(asyncio.run(_ask(made, options)), options)
    if options.policy or options.tools:
        return _show_judged(asyncio.run(judge_again(made, _tools(options), policies)), options)
    return _show_replay(made, options)


def _refuse_together(options: ReplayOptions) -> None:
    if options.model and options.policy:
        raise UsageError("--model and --policy cannot be combined: replay with one, then with the other.")
    if options.export and options.model:
        raise UsageError("--export and --model cannot be combined: the test contains the recorded model's answers. Leave one out.")
    if options.export and not options.export.endswith(".py"):
        raise UsageError(f"--export {options.export} is not a Python file, so pytest would not find it. Give one like tests/test_run.py.")
    if options.base_url and not options.model:
        raise UsageError("--base-url needs --model. Give both.")


def _tools(options: ReplayOptions) -> list[Tool]:
    return load_tools(options.tools or ("builtin",), MemoryBlobs())


async def _ask(made: Replay, options: ReplayOptions) -> ModelComparison:
    model = named_model(options.model.strip(), options.base_url)
    try:
        return await ask_again(made, model, _tools(options))
    finally:
        await model.close()


def _show_replay(made: Replay, options: ReplayOptions) -> int:
    if options.json:
        print_json(made_json(made))
    else:
        show_made(made)
    for gap in made.gaps if not options.json else ():
        say(gap, "dim")
    return _exits.FAILED if made.differences else _exits.OK


def _show_judged(judged: JudgedRun, options: ReplayOptions) -> int:
    if options.json:
        print_json(judged_json(judged))
    else:
        show_judged(judged)
    return _exits.DIFFERS if judged.differences else _exits.OK


def _export(kept: RunFile, made: Replay, options: ReplayOptions) -> int:
    """Write the run as a test, and run the test once, so that it is known to pass."""
    from callgate.testing import RecordedRun

    test = Path(options.export)
    data = test.with_suffix(".jsonl")
    for path in (test, data):
        if path.exists():
            raise _exists_error(path)
    specs = options.tools or ("builtin",)
    tools, policies = _tools(options), [Rules.load(options.policy)] if options.policy else [careful()] if was_careful(made) else []
    differences = RecordedRun(kept).again(tools, policies).differences
    _write(data, kept.encode())
    _write(test, as_test(made, test, data, tools=specs, policy=options.policy).encode())
    if options.json:
        print_json({"test": str(test), "data": str(data), "passes": not differences, "differences": list(differences)})
        return _exits.DIFFERS if differences else _exits.OK
    say(f"{test} is written, with what was recorded in {data.name}.")
    if not differences:
        say("It passes.", "green")
        return _exits.OK
    say(f"It does not pass with these tools and rules. Are they the ones that the run had? {differences[0]}", "yellow")
    return _exits.DIFFERS


def _exists_error(path: Path) -> UsageError:
    return UsageError(f"{path} exists and was not overwritten. Give another file with --export.")


def _write(path: Path, text: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(text)
    except FileExistsError:
        raise _exists_error(path) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}. Give another file with --export.") from error


def _show_comparison(asked: ModelComparison, options: ReplayOptions) -> int:
    if options.json:
        print_json(asked_json(asked))
    else:
        show_asked(asked)
    if asked.differs:
        return _exits.DIFFERS
    return _exits.FAILED if asked.failed else _exits.OK
