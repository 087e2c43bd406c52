"""Install callgate with some of its extras into a virtual environment, and say what is installed while it is.

    python tools/install.py .venv dev

Makes the environment where there is none. The versions are those of `constraints.txt`. pip reports failures on standard error, and its exit
code is this script's.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = ("--disable-pip-version-check", "--progress-bar", "off", "--retries", "10", "--timeout", "60", "--constraint", "constraints.txt")
COLLECTED = re.compile(r"(?:Collecting |Processing .*/)([A-Za-z0-9][\w.-]*?)(?:[ <>=!~,;\[]|-\d|$)")
INSTALLING = re.compile(r"Installing collected packages: (.+)")


def main(folder: str, extras: str) -> int:
    print(f"Installing callgate[{extras}] into {folder}: once, and again when the dependencies change.", flush=True)
    python = Path(folder).absolute() / "bin/python"
    if not python.exists():
        print(f"  making the virtual environment with Python {sys.version.split()[0]}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [python, "-m", "pip", "install", *OPTIONS, "--editable", f".[{extras}]"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as pip:
        assert pip.stdout is not None
        show(pip.stdout)
    print("Installed." if pip.returncode == 0 else f"Not installed: pip ended with exit code {pip.returncode}.", flush=True)
    return pip.returncode


def show(lines: Iterable[str]) -> None:
    """Show each package when pip begins to look for it, and how many packages pip installs in the end."""
    for line in lines:
        if found := COLLECTED.match(line):
            print(f"  finding {found[1]}", flush=True)
        elif found := INSTALLING.match(line):
            print(f"  installing {found[1].count(',') + 1} packages", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
