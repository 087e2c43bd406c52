"""Tests of the undo store as a git repository: git may repack it, and a later process reads the same content."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate.undo import ChangeSource, UndoHistory, UndoRefused
from tests.undo.undo_workspace import facts
from tests.waiting import COMMAND_S

MANY = 200


class Store:
    """A workspace with many files and its undo history, which can be reopened."""

    def __init__(self, top: Path) -> None:
        self.root = top / "work"
        self.root.mkdir()
        self.place = top / "kept"
        chance = random.Random(7)
        self.words = [f"line {number} {chance.random()}\n" for number in range(400)]
        old = self.root.stat().st_mtime_ns - 10**12
        for number in range(MANY):
            path = self.root / f"{number % 7}" / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join([f"{number}\n", *self.words]))
            os.utime(path, ns=(old, old))
        self.calls = 0
        self.undo_history = self.opened()

    def opened(self) -> UndoHistory:
        self.undo_history = UndoHistory(self.root, place=self.place, sync=False)
        return self.undo_history

    def call(self, write: Callable[[], object], *, keys: list[str] | None = None, between: Callable[[], object] = lambda: None) -> str:
        """Make a call; `between` runs after the first snapshot and before the write."""
        self.calls += 1
        uid = f"r/0/{self.calls}"
        opened = self.undo_history.capture.begin(ChangeSource(uid=uid, run="r"), keys)
        between()
        write()
        self.undo_history.capture.finish(opened)
        return uid

    def git(self, *words: str) -> str:
        program = shutil.which("git")
        if program is None:
            pytest.skip("there is no git here")
        command = [program, "--git-dir", self.undo_history.folder, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_S)
        return done.stdout + done.stderr

    def packs(self) -> list[str]:
        return sorted(path.name for path in Path(self.undo_history.folder, "objects", "pack").glob("*.pack"))

    def alone(self) -> int:
        """Return the number of loose objects."""
        return sum(len(files) for folder, _, files in os.walk(Path(self.undo_history.folder, "objects")) if len(Path(folder).name) == 2)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


TIDIED = {
    "gc": ["gc", "--quiet", "--prune=now"],
    "repack": ["repack", "-a", "-d", "-f", "-q", "--depth=50", "--window=50"],
    "repack with names of bases": ["-c", "repack.useDeltaBaseOffset=false", "repack", "-a", "-d", "-f", "-q"],
    "loose": ["prune", "--expire=now"],
}


@pytest.mark.parametrize("words", TIDIED.values(), ids=TIDIED)
def test_the_store_works_after_git_gc_repack_or_prune(store: Store, words: list[str]) -> None:
    """git's garbage collection rewrites objects as packs, deltas and packed refs, which the store must read."""
    found = facts(store.root)
    for number in (3, 5):
        path = store.root / f"{number}" / f"{number}.txt"
        store.call(lambda path=path: path.write_text("".join(["changed\n", *store.words])))  # type: ignore[misc]
    left = facts(store.root)
    store.git(*words)
    for undo_history in (store.undo_history, store.opened()):
        assert not undo_history.verify()
        undo_history.undo("r")
        assert facts(store.root) == found
        undo_history.redo("r")
        assert facts(store.root) == left
    last = store.call(lambda: (store.root / "6/6.txt").unlink())
    store.git(*words)
    store.undo_history.undo(last)
    store.undo_history.undo("r")
    assert facts(store.root) == found
    assert "error" not in store.git("fsck", "--full", "--strict")


def test_a_pack_index_with_64_bit_offsets_is_read(store: Store) -> None:
    """Such an index has an extra table; `git index-pack` can write it for a small pack."""
    found = facts(store.root)
    store.call(lambda: (store.root / "3/3.txt").write_text("changed"))
    left = facts(store.root)
    store.git("repack", "-a", "-d", "-f", "-q")
    for beyond in ("0x0", "0x1000"):
        for name in store.packs():
            pack = Path(store.undo_history.folder, "objects", "pack", name)
            pack.with_suffix(".idx").unlink()
            store.git("index-pack", f"--index-version=2,{beyond}", str(pack))
        undo_history = store.opened()
        assert not undo_history.verify()
        undo_history.undo("r")
        assert facts(store.root) == found
        undo_history.redo("r")
        assert facts(store.root) == left


@pytest.mark.parametrize("words", TIDIED.values(), ids=TIDIED)
@pytest.mark.parametrize("keys", [None, ["big.bin"]], ids=["a command", "a large file by name"])
def test_git_gc_repack_and_prune_keep_the_content_stored_for_an_open_call(store: Store, words: list[str], keys: list[str] | None) -> None:
    """No commit refers to this content yet: that of the first snapshot, of a later one, and of a large file."""
    store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    (store.root / "big.bin").write_bytes(os.urandom(1_500_000))
    (store.root / "2/2.txt").write_text("somebody else's")
    found = facts(store.root)

    def write() -> None:
        (store.root / "big.bin").write_bytes(b"")
        if keys is None:
            (store.root / "2/2.txt").write_text("the call's")
            shutil.rmtree(store.root / "4")

    uid = store.call(write, keys=keys, between=lambda: store.git(*words))
    store.undo_history.undo(uid)
    assert facts(store.root) == found


def test_the_first_snapshot_of_many_files_is_one_pack_that_git_can_read(store: Store) -> None:
    """Loose objects would double the number of files on disk."""
    store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    assert len(store.packs()) == 1
    assert store.alone() < 12
    store.git("verify-pack", str(Path(store.undo_history.folder, "objects", "pack", store.packs()[0])))
    assert store.git("count-objects", "-v").count(f"in-pack: {MANY}") == 1


def test_a_file_changed_twice_within_one_file_system_clock_tick_is_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both versions have the same size and times, so a file that changed shortly before a snapshot cannot be trusted."""

    def coarse(found: os.stat_result) -> tuple[int, ...]:
        return found.st_dev, found.st_ino, found.st_mode, found.st_size

    for module in ("snapshot", "path_state"):
        monkeypatch.setattr(f"callgate._undo.{module}.signature", coarse)
    monkeypatch.setattr("callgate._undo.snapshot._FRESH_NS", 10**18)  # on a slow machine too, both writes count as recent
    path = store.root / "1/1.txt"
    store.call(lambda: path.write_text("x"))
    found = facts(store.root)
    store.call(lambda: path.write_text("y"))
    store.undo_history.undo("last")
    assert facts(store.root) == found


def test_a_reopened_store_reads_only_changed_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store keeps the metadata of the files that it has read."""
    monkeypatch.setattr("callgate._undo.snapshot._FRESH_NS", 0)  # as if the files were not recent
    store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    (store.root / "2/2.txt").write_text("somebody else's")
    found = facts(store.root)
    store.opened()
    store.call(lambda: shutil.rmtree(store.root / "2"))
    assert store.undo_history.capture.snapshots.read <= 2
    store.undo_history.undo("last")
    assert facts(store.root) == found


@pytest.mark.parametrize("damage", ["gone", "cut", "altered", "pruned"])
def test_a_missing_damaged_or_pruned_snapshot_cache_is_not_used(store: Store, damage: str) -> None:
    uid = store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    seen = Path(store.undo_history.folder, "callgate.seen")
    data = seen.read_bytes()
    match damage:
        case "gone":
            seen.unlink()
        case "cut":
            seen.write_bytes(data[: len(data) // 2])
        case "altered":
            seen.write_bytes(data[:-9] + b"\0" + data[-8:])
        case "pruned":
            assert store.undo_history.prune(keep_days=0) == 1
    store.opened()
    found = facts(store.root)
    uid = store.call(lambda: list(map(shutil.rmtree, store.root.iterdir())))
    assert store.undo_history.capture.snapshots.read >= MANY
    store.undo_history.undo(uid)
    assert facts(store.root) == found


def test_prune_removes_objects_from_packs(store: Store) -> None:
    """Objects that no change needs are deleted from disk, and the others stay."""
    for content in ("x", "y"):
        store.call(lambda content=content: (store.root / "1/1.txt").write_text(content))  # type: ignore[misc]
    store.git("gc", "--quiet", "--prune=now")
    found = facts(store.root)
    store.undo_history.checkpoint("mark")
    store.call(lambda: shutil.rmtree(store.root / "5"))
    assert store.undo_history.prune(keep_days=0) == 1
    assert store.packs() == []
    assert not store.undo_history.verify()
    store.opened().undo("mark")
    assert facts(store.root) == found
    store.undo_history.checkpoints.drop("mark")
    assert store.undo_history.prune(keep_days=0) == 3
    assert store.alone() == 0
    assert store.opened().changes() == []


@pytest.mark.parametrize("again", [False, True], ids=["a living engine", "the next one"])
def test_content_pruned_by_another_engine_is_stored_again(again: bool, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine must not rely on its cache of stored content after another engine has pruned it."""
    monkeypatch.setattr("callgate._undo.snapshot._FRESH_NS", 0)  # as if the files were not recent
    store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    first = store.undo_history
    assert store.opened().prune(keep_days=0) == 1
    store.undo_history = store.opened() if again else first
    found = facts(store.root)
    store.call(lambda: shutil.rmtree(store.root / "5"))
    assert not store.undo_history.verify()
    store.undo_history.undo("last")
    assert facts(store.root) == found


def test_undo_refuses_content_of_a_damaged_pack(store: Store) -> None:
    uid = store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    pack = Path(store.undo_history.folder, "objects", "pack", store.packs()[0])
    pack.write_bytes(bytes(len(pack.read_bytes())))
    left = facts(store.root)
    with pytest.raises(UndoRefused) as refused:
        store.opened().undo(uid)
    assert {(one.path, one.why) for one in refused.value.conflicts} == {("1/1.txt", "damaged")}
    assert store.undo_history.verify()
    assert facts(store.root) == left


@pytest.mark.parametrize("torn", [b"", b"\0" * 41, b"0123456789abcdef"], ids=["empty", "zeros", "half"])
def test_a_branch_that_a_power_cut_has_torn_loses_no_change(store: Store, torn: bytes) -> None:
    found = facts(store.root)
    for number in (3, 5):
        store.call((store.root / f"{number}" / f"{number}.txt").unlink)
    Path(store.undo_history.folder, "refs/heads/main").write_bytes(torn)
    later = store.opened()
    assert [change.call.uid for change in later.changes()] == ["r/0/1", "r/0/2"]
    later.undo("r")
    assert facts(store.root) == found


def test_a_truncated_pending_change_is_discarded(store: Store) -> None:
    """A power loss while the pending change is written means that the call had not started, and must not block the store."""
    uid = store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    note = Path(store.undo_history.folder, "pending", "0123456789abcdef.json")
    note.write_bytes(b'{"change":{"id":"0123')
    assert [change.call.uid for change in store.opened().changes()] == [uid]
    assert not note.exists()


def test_a_pending_change_that_was_already_committed_is_not_a_second_change(store: Store) -> None:
    """A crash may leave the pending change behind after its commit; the call must be listed once."""
    kept: list[tuple[Path, bytes]] = []

    def keep() -> None:
        (note,) = Path(store.undo_history.folder, "pending").glob("*.json")
        kept.append((note, note.read_bytes()))

    uid = store.call(lambda: (store.root / "1/1.txt").write_text("x"), between=keep)
    kept[0][0].write_bytes(kept[0][1])
    assert [change.call.uid for change in store.opened().changes()] == [uid]
    store.undo_history.undo(uid)


@pytest.mark.parametrize("keys", [None, ["1/1.txt"]], ids=["a command", "a file by name"])
def test_a_store_that_was_deleted_while_in_use_is_created_again(store: Store, keys: list[str] | None) -> None:
    """The earlier changes are lost, and later changes can be undone."""
    store.call(lambda: (store.root / "1/1.txt").write_text("x"))
    shutil.rmtree(store.place)
    found = facts(store.root)
    store.call(lambda: (store.root / "1/1.txt").write_text("y"), keys=keys)
    assert len(store.opened().changes()) == 1
    store.undo_history.undo("last")
    assert facts(store.root) == found


def test_only_the_owner_can_read_the_undo_store(tmp_path: Path) -> None:
    """A snapshot contains the workspace's private files, and the umask of the process may allow others to read new files."""
    before = os.umask(0)
    try:
        store = Store(tmp_path)
        store.call(lambda: [(store.root / f"{n % 7}" / f"{n}.txt").write_text("new") for n in range(MANY)])
        store.call(lambda: (store.root / "0" / "0.txt").write_text("newer"), keys=["0/0.txt"])
        assert store.undo_history.undo("r").paths
    finally:
        os.umask(before)
    kept = [path for path in store.place.rglob("*") if not path.is_symlink()]
    assert len(kept) > 10
    assert [path for path in kept if path.is_file() and path.stat().st_mode & 0o177] == []
    assert [path for path in (store.place.parent, *kept) if path.is_dir() and path.stat().st_mode & 0o077] == []
    assert os.stat(store.undo_history.folder).st_mode & 0o077 == 0
