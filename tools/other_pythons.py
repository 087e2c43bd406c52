"""Run every test on each Python that callgate supports and this machine has, beside the one that runs this.

Looks for `python3.N` on PATH and for the versions of pyenv. A command that does not start (a shim without its version) and a version that
the dependencies cannot be installed for are named and left out. Tests run as in `run_tests.py`. The environments are kept in the present
folder. `--list` only tells what would run. `--minutes N` runs on each Python as many tests as can begin in that time: a random sample,
another one each time.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from run_tests import run_tests

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
START_S, INSTALL_S, SUITE_S = 30, 900, 3_600
NAME = re.compile(r"python3\.(\d+)t?")
ASK = "import sys; print(sys.implementation.name, *sys.version_info[:2], sys.version.split()[0])"


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every test on each other Python.")
    parser.add_argument("--list", action="store_true", help="only tell what would run")
    parser.add_argument("--minutes", type=float, help="for each Python; whatever has not begun then is not run")
    options = parser.parse_args()
    found, without = pythons(candidates())
    own = sys.version_info[:2]
    others = {version: python for version, python in sorted(found.items()) if version != own}
    print(f"This is Python {'.'.join(map(str, own))}; beside it there are: {named(others) or 'none'}.")
    for python, why in without:
        print(f"Left out: {python} ({why}).")
    if options.list:
        return 0
    passed = "every test passed" if options.minutes is None else f"every test that began within {options.minutes:g} minutes passed"
    ended = {version: tested(version, python, options.minutes) for version, python in others.items()}
    for (major, minor), end in ended.items():
        print(f"Python {major}.{minor}: {end or passed}.")
    return any(end.startswith("failed") for end in ended.values())


def candidates() -> list[Path]:
    """Every command that may be such a Python, those on PATH first."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    found = [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()) if NAME.fullmatch(file.name)]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return [*found, *sorted(versions.glob("3.*/bin/python"))]


def pythons(commands: list[Path]) -> tuple[dict[tuple[int, int], Path], list[tuple[Path, str]]]:
    """The first command of each version that starts and is new enough, and those that do not start, of versions that nothing else has."""
    found: dict[tuple[int, int], Path] = {}
    silent: dict[Path, tuple[int, int]] = {}
    for command in commands:
        named_so = NAME.fullmatch(command.name)
        version = (3, int(named_so[1])) if named_so else None
        if version is not None and (version < OLDEST or version in found):
            continue
        said = started(command)
        if said is not None and said >= OLDEST:
            found.setdefault(said, command)
        elif said is None and version is not None:
            silent[command] = version
    return found, [(command, "it does not start") for command, version in silent.items() if version not in found]


def started(command: Path) -> tuple[int, int] | None:
    """The version that the command says it is; None where it says nothing, or is another implementation."""
    try:
        said = subprocess.run([command, "-c", ASK], capture_output=True, text=True, timeout=START_S, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return (int(said[1]), int(said[2])) if len(said) == 4 and said[0] == "cpython" else None


def named(found: dict[tuple[int, int], Path]) -> str:
    return ", ".join(f"{major}.{minor} ({python})" for (major, minor), python in found.items())


def tested(version: tuple[int, int], python: Path, minutes: float | None) -> str:
    """How the suite ended on this Python, in words; empty where no test failed."""
    major, minor = version
    environment = Path.cwd() / f".venv-{major}.{minor}"
    print(f"== Python {major}.{minor} ({python})", flush=True)
    if (why := install(python, environment)) is not None:
        return f"left out, because its environment could not be made ({why})"
    options = () if minutes is None else (f"--minutes={minutes:g}",)
    return run_tests(environment / "bin/python", "4", environment / "cache", *options, timeout_s=SUITE_S)


def install(python: Path, environment: Path) -> str | None:
    """Make the environment, unless it is there and newer than what it is made from; why it could not be made."""
    ready, sources = environment / "ready", [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    if ready.exists() and all(ready.stat().st_mtime >= source.stat().st_mtime for source in sources):
        return None
    pip = [
        environment / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "10",
        "--timeout",
        "60",
    ]
    for command in ([python, "-m", "venv", "--clear", environment], [*pip, "--constraint", "constraints.txt", "--editable", ".[dev]"]):
        try:
            made = subprocess.run(command, cwd=ROOT, timeout=INSTALL_S, capture_output=True, text=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            return type(error).__name__
        if made.returncode:
            return next((line for line in reversed(made.stderr.splitlines()) if line.strip()), f"exit code {made.returncode}").strip()
    ready.touch()
    return None


if __name__ == "__main__":
    sys.exit(main())
