"""`callgate diff` prints a patch: `patch` and `git apply` turn the earlier state into the later one, and back."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import shell

BEFORE: dict[str, bytes | str] = {
    "in.txt": b"".join(b"line %d\n" % number for number in range(400)),
    "no end.txt": b"one\ntwo",
    "gone.txt": b"a\n\n",
    "empty gone": b"",
    "mode.sh": b"echo\n",
    "dos.txt": b"one\r\ntwo\r\n",
    "dashes": b"-- x\n++ y\n@@ z\n",
    "folder/deep.txt": b"deep\n",
    "only mode": b"x\n",
    "Gr\u00fc\u00dfe, \u65e5\u672c.txt": b"Gr\xc3\xbc\xc3\x9fe\n",
    'odd "name"\t\\.txt': b"odd\n",
    "- dash": b"d\n",
    "points.txt": "in.txt",
    "separators": "a\u2028b\x0cc\x85d\n".encode(),
}
CHANGE = r"""
sed -i 's/^line 7$/LINE 7/; s/^line 390$/&\nmore/' in.txt
printf 'one\ntwo\n' > 'no end.txt'
rm gone.txt 'empty gone' folder/deep.txt; rmdir folder
chmod +x mode.sh; echo more >> mode.sh
chmod 755 'only mode'
printf 'one\r\nthree\r\n' > dos.txt
printf -- '-- a\n++ y\n@@ b\n' > dashes
echo neu > 'Grüße, 日本.txt'
printf 'odd\nnew' > "$(ls | grep odd)"
echo e > './- dash'
ln -sfn mode.sh points.txt
printf 'a\342\200\250b\014c\302\205e\n' > separators
mkdir -p new/er; echo new > 'new/er/a b.txt'; : > 'new/empty'; printf '#!/bin/sh' > new/run; chmod 755 new/run
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name, content in BEFORE.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
            path.chmod(0o644)
    return folder


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of every file below a folder."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        name, mode = str(path.relative_to(folder)), path.lstat().st_mode
        if not name.startswith(".callgate") and not stat.S_ISDIR(mode):
            found[name] = mode, os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
    return found


def _patched(folder: Path, text: str, *options: str) -> None:
    done = subprocess.run(
        ["patch", "-p0", "--no-backup-if-mismatch", *options], cwd=folder, input=text.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _applied(folder: Path, text: str, *options: str) -> None:
    done = subprocess.run(["git", "apply", "-p0", *options, "-"], cwd=folder, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "apply",
    [
        pytest.param(_patched, marks=pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")),
        pytest.param(_applied, marks=pytest.mark.skipif(shutil.which("git") is None, reason="needs git")),
    ],
    ids=["patch", "git apply"],
)
def test_a_diff_is_a_reversible_patch_from_the_old_to_the_new_state(work: Path, apply: Callable[..., None]) -> None:
    """Both directions: new, deleted, empty and linked files, missing final line ends, modes, names with spaces and quotes."""
    before = state(work)
    earlier = work.parent / "earlier"
    shutil.copytree(work, earlier, symlinks=True)
    assert shell(work, "call", "run_command", "--json", "-", stdin=_command(CHANGE)).code == 0
    after = state(work)
    assert set(before) != set(after)
    patch = shell(work, "diff", "last").out
    apply(earlier, patch)
    assert state(earlier) == after
    apply(earlier, patch, "-R")
    assert state(earlier) == before


def _command(text: str) -> str:

    return json.dumps({"command": text})


def test_lines_written_by_a_call_are_added_lines_in_the_diff(work: Path) -> None:
    shell(work, "call", "run_command", "command=echo more >> dashes; rm gone.txt")
    lines = shell(work, "diff").out.splitlines()
    assert "+more" in lines
    assert "-a" in lines


def test_binary_files_and_folders_are_comments_in_the_patch(work: Path) -> None:
    shell(work, "call", "run_command", "command=head -c 9 /dev/zero > zeros; mkdir made; echo more >> dashes")
    patch = shell(work, "diff").out
    assert "# zeros: the content is binary or not kept, and not in this patch: nothing -> a file of 9 bytes" in patch
    assert "# made: nothing -> a folder" in patch
    assert "+more\n" in patch


def test_a_large_change_is_complete_in_the_patch(work: Path) -> None:
    earlier = work.parent / "earlier"
    shutil.copytree(work, earlier, symlinks=True)
    shell(work, "call", "run_command", "command=seq 1 60000 > in.txt; seq 1 300000 > new.txt")
    _patched(earlier, shell(work, "diff").out)
    assert state(earlier) == state(work)


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@pytest.mark.parametrize(
    "change",
    [
        "rm gone.txt; mkdir -p gone.txt/a; echo new > gone.txt/a/b; echo new > gone.txt/c",
        "rm -r folder; echo file > folder",
        "rm -r folder; ln -s in.txt folder",
        "rm points.txt; mkdir points.txt; echo new > points.txt/a",
        "head -c 9 /dev/zero > zeros; head -c 9 /dev/zero > gone.txt; head -c 9 /dev/zero >> mode.sh",
    ],
    ids=["a file became a folder", "a folder became a file", "a folder became a link", "a link became a folder", "binary files"],
)
def test_changes_that_patch_cannot_apply_are_comments_in_the_patch(work: Path, change: str) -> None:
    """`patch` cannot replace a file by a folder, and would create an empty file for a binary one."""
    untouched = state(work)
    earlier = work.parent / "earlier"
    shutil.copytree(work, earlier, symlinks=True)
    shell(work, "call", "run_command", "--json", "-", stdin=_command(f"echo more >> dashes; {change}"))
    patch = shell(work, "diff", "last").out
    _patched(earlier, patch)
    assert state(earlier) == {**untouched, "dashes": state(work)["dashes"]}
    _patched(earlier, patch, "-R")
    assert state(earlier) == untouched
    for changed in {name for name, now in state(work).items() if untouched.get(name) != now} - {"dashes"}:
        assert f"# {changed}: " in patch or f"# +++ {changed}\n" in patch
