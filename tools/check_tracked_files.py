"""Refuse tracked files that are too large to belong in a source repository."""

import subprocess
import sys
from pathlib import Path

MAX_BYTES = 512 * 1024


def main(root: Path) -> int:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    sizes = {name: (root / name).stat().st_size for name in listed.split("\0") if name and (root / name).is_file()}
    too_large = {name: size for name, size in sizes.items() if size > MAX_BYTES}
    for name, size in sorted(too_large.items()):
        print(f"{name} has {size:,} bytes; the limit for a tracked file is {MAX_BYTES:,}. Remove it, or make it where it is needed.")
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
