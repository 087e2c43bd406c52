"""Tests of file attributes beyond bytes, mode, owner and time: extended attributes and access control lists."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest

from callgate.undo import UndoRefused
from tests.undo.undo_workspace import Bench, facts

_ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, rights, who)
    for tag, rights, who in [(1, 6, 2**32 - 1), (2, 4, 12345), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)]
)
"""An access control list as `setfacl -m u:12345:r` writes it, which lets one more user read."""


def has_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.probe", b"")
        os.removexattr(folder, "user.probe")
    except OSError:
        return False
    return True


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    if sys.platform != "linux" or not has_attributes(tmp_path):
        pytest.skip("this file system has no extended attributes")
    return Bench(tmp_path / "work")


def noted(root: Path) -> dict[str, dict[str, bytes]]:
    """Return every extended attribute of the files and folders below `root`."""
    paths = [path for path in root.rglob("*") if not path.is_symlink()]
    return {str(path.relative_to(root)): {name: os.getxattr(path, name) for name in os.listxattr(path)} for path in paths}


def test_extended_attributes_are_undone_and_redone_with_their_file_or_folder(bench: Bench) -> None:
    (bench.root / "box").mkdir()
    for name in ("gone", "written", "box/deep", "same"):
        (bench.root / name).write_text("mine")
        os.setxattr(bench.root / name, "user.origin", name.encode())
    os.setxattr(bench.root / "written", "system.posix_acl_access", _ACCESS_LIST)
    os.setxattr(bench.root / "box", "user.colour", b"red\0and blue")
    before = facts(bench.root), noted(bench.root)
    bench.command("rm -r gone box && rm written && echo theirs > written")
    after = facts(bench.root), noted(bench.root)
    bench.undo_history.undo("last")
    assert (facts(bench.root), noted(bench.root)) == before
    bench.undo_history.redo("last")
    assert (facts(bench.root), noted(bench.root)) == after


def test_a_command_that_changes_only_extended_attributes_is_undone(bench: Bench) -> None:
    (bench.root / "box").mkdir()
    (bench.root / "box/a").write_text("mine")
    for name in ("box", "box/a"):
        os.setxattr(bench.root / name, "user.origin", b"mine")
    bench.command("true")
    before = noted(bench.root)
    line = "import os; [(os.setxattr(p, 'user.origin', b'theirs'), os.setxattr(p, 'user.more', b'')) for p in ('box', 'box/a')]"
    bench.command(f'{sys.executable} -c "{line}"')
    assert noted(bench.root) != before
    assert bench.undo_history.undo("last").paths == ("box", "box/a")
    assert noted(bench.root) == before


def test_undo_refuses_a_file_with_an_extended_attribute_set_from_outside_since(bench: Bench) -> None:
    (bench.root / "a").write_text("mine")
    bench.write("a", "the tool's")
    os.setxattr(bench.root / "a", "user.rating", b"5")
    with pytest.raises(UndoRefused, match=r"found a file of .* user\.rating"):
        bench.undo_history.undo("last")
    assert (bench.root / "a").read_text() == "the tool's"
    assert noted(bench.root) == {"a": {"user.rating": b"5"}}


def test_a_write_keeps_the_extended_attributes_of_the_file_it_replaces(bench: Bench) -> None:
    (bench.root / "a").write_text("mine")
    (bench.root / "a").chmod(0o640)
    os.setxattr(bench.root / "a", "user.origin", b"elsewhere")
    os.setxattr(bench.root / "a", "system.posix_acl_access", _ACCESS_LIST)
    before = noted(bench.root), (bench.root / "a").stat().st_mode
    bench.write("a", "the tool's")
    assert (noted(bench.root), (bench.root / "a").stat().st_mode) == before
    assert bench.undo_history.undo("last").paths == ("a",)
    assert (noted(bench.root), (bench.root / "a").stat().st_mode) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to somebody else")
def test_undo_restores_owners_and_file_capabilities(bench: Bench) -> None:
    (bench.root / "box").mkdir(mode=0o750)
    (bench.root / "box/run").write_text("mine")
    os.chown(bench.root / "box/run", 12345, 12346)
    (bench.root / "box/run").chmod(0o4755)
    os.chown(bench.root / "box", 12345, 12346)
    os.setxattr(bench.root / "box/run", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
    before = facts(bench.root), noted(bench.root)
    bench.command("rm -r box")
    bench.undo_history.undo("last")
    assert (facts(bench.root), noted(bench.root)) == before
