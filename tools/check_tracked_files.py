"""Refuse files that are too large for a source repository, and top-level entries that ARCHITECTURE.md does not name.

Checks what git tracks and what it would add (`git add -A`).
"""

import re
import subprocess
import sys
from pathlib import Path

MAX_BYTES = 512 * 1024
HEADING = "## The repository"


def main(root: Path) -> int:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    names = sorted({name for name in listed.split("\0") if name and (root / name).is_file()})
    faults = too_large(root, names) + wrong_entries({name.split("/")[0] for name in names}, named_entries(root))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def too_large(root: Path, names: list[str]) -> list[str]:
    sizes = {name: (root / name).stat().st_size for name in names}
    return [
        f"{name} has {size:,} bytes; the limit for a file is {MAX_BYTES:,}. Remove it, or generate it where it is needed."
        for name, size in sizes.items()
        if size > MAX_BYTES
    ]


def named_entries(root: Path) -> set[str]:
    """Names in the first column of the table under `HEADING`; those of folders end in a slash there."""
    _, _, section = (root / "ARCHITECTURE.md").read_text(encoding="utf-8").partition(f"{HEADING}\n")
    section, _, _ = section.partition("\n## ")
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}


def wrong_entries(present: set[str], named: set[str]) -> list[str]:
    unnamed = [
        f"{name} is a top-level entry that ARCHITECTURE.md does not name. Move it, or add it to the table under '{HEADING}'."
        for name in sorted(present - named)
    ]
    gone = [
        f"ARCHITECTURE.md names the top-level entry {name}, which does not exist. Remove it from the table under '{HEADING}'."
        for name in sorted(named - present)
    ]
    return unnamed + gone


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
