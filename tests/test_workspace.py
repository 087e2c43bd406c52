"""`Workspace`: what it returns, what it refuses, and that it touches nothing outside its root, whether the kernel or a walk opens the
files.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from callgate._workspace import DirectoryEntry, PathNotFound, PathRefused, Workspace, is_protected, lexical, quoted_path, stamp_of, strength
from callgate._workspace.ignored_files import IgnoredFiles
from callgate._workspace.listing import Glob
from callgate._workspace.open_beneath import Opener, open_by_kernel, open_by_walk, rename_new

OPENERS = [open_by_kernel, open_by_walk] if strength() == "kernel" else [open_by_walk]


@pytest.fixture(params=OPENERS, ids=lambda opener: opener.__name__)
def opener(request: pytest.FixtureRequest) -> Opener:
    found: Opener = request.param
    return found


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "root/a.txt").write_text("a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("CANARY")
    return tmp_path


@pytest.fixture
def workspace(top: Path, opener: Opener) -> Workspace:
    return Workspace(top / "root", opener=opener)


def rule(action: Callable[[], object]) -> str:
    with pytest.raises(PathRefused) as caught:
        action()
    return caught.value.rule


# Path components that may point outside the root; every combination of them must stay inside.
PIECES = st.sampled_from(
    ["..", ".", "", "a.txt", "sub", "out", "up", "loop", "new", "~", "%2e%2e", "..\\", "/", "\0", "é", "x" * 300, "etc"]
)
PATHS = st.lists(PIECES, min_size=1, max_size=7).map("/".join) | st.text(max_size=20)


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150, deadline=None)
@given(path=PATHS, other=PATHS)
@example(path="out/secret.txt", other="up/outside/secret.txt")
@example(path="new/../../outside/x", other="sub/../../outside/y")
def test_no_path_opens_or_changes_anything_outside_the_workspace(
    opener: Opener, tmp_path_factory: pytest.TempPathFactory, path: str, other: str
) -> None:
    """The kernel enforces this where it can."""
    top = tmp_path_factory.mktemp("t")
    (top / "root/sub").mkdir(parents=True)
    (top / "root/a.txt").write_text("a")
    (top / "outside").mkdir()
    (top / "outside/secret.txt").write_text("CANARY")
    for name, target in {"out": "../outside", "up": "..", "loop": "loop", "sub/abs": str(top / "outside")}.items():
        (top / "root" / name).symlink_to(target)
    before = _facts(top)
    with Workspace(top / "root", opener=opener, sync=False) as workspace:
        for action in (
            lambda: workspace.read_bytes(path),
            lambda: workspace.write_bytes(path, b"x"),
            lambda: workspace.append(path, b"x"),
            lambda: workspace.create(path, b"x"),
            lambda: workspace.mkdir(path),
            lambda: workspace.copy(other, path),
            lambda: workspace.rename(path, other),
            lambda: workspace.list_dir(path),
            lambda: workspace.glob(path),
            lambda: workspace.normalise(path),
            lambda: workspace.delete(path),
        ):
            try:
                seen = str(action())
            except PathRefused as error:
                seen = str(error)
            assert "CANARY" not in seen
            assert "secret.txt" not in seen or "secret.txt" in path + other
    assert _facts(top) == before


def _facts(top: Path) -> list[tuple[str, int, int, bytes]]:
    found = [(name, 0, 0, b"") for name in sorted(os.listdir(top))]
    for path in [top, top / "outside", *(top / "outside").rglob("*")]:
        status = path.stat()
        found.append((str(path), status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b""))
    return found


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "sub/../a.txt", "link", "sub/up/a.txt", "{root}/a.txt", "{root}//./a.txt"])
def test_a_path_that_stays_inside_the_workspace_is_followed(top: Path, workspace: Workspace, path: str) -> None:
    (top / "root/link").symlink_to("a.txt")
    (top / "root/sub/up").symlink_to("..")
    spelled = path.format(root=top / "root")
    assert workspace.read_bytes(spelled) == b"a"
    assert workspace.normalise(spelled) == "a.txt"
    assert workspace.inside(spelled)
    assert workspace.size(spelled) == 1


def test_a_write_through_a_link_inside_changes_the_file_and_keeps_the_link(top: Path, workspace: Workspace) -> None:
    (top / "root/link").symlink_to("sub/real.txt")
    assert workspace.write_bytes("link", b"new") is True
    assert (top / "root/link").is_symlink()
    assert (top / "root/sub/real.txt").read_bytes() == b"new"


def test_a_root_given_as_a_symlink_accepts_paths_by_both_names(top: Path, opener: Opener) -> None:
    (top / "alias").symlink_to("root")
    with Workspace(top / "alias", opener=opener) as workspace:
        assert workspace.read_bytes(str(top / "alias/a.txt")) == workspace.read_bytes(str(top / "root/a.txt")) == b"a"


def test_each_refusal_names_its_rule(top: Path, workspace: Workspace) -> None:
    root = top / "root"
    os.link(root / "a.txt", root / "b.txt")
    os.mkfifo(root / "fifo")
    (root / "loop").symlink_to("loop")
    assert rule(lambda: workspace.read_bytes("../outside/secret.txt")) == "outside"
    assert rule(lambda: workspace.read_bytes("/etc/passwd")) == "outside"
    assert rule(lambda: workspace.read_bytes("loop")) == "loop"
    assert rule(lambda: workspace.read_bytes("sub")) == "directory"
    assert rule(lambda: workspace.write_bytes("sub", b"")) == "directory"
    assert rule(lambda: workspace.list_dir("a.txt")) == "not_directory"
    assert rule(lambda: workspace.read_bytes("fifo")) == "special"
    assert rule(lambda: workspace.append("fifo", b"x")) == "special"
    assert rule(lambda: workspace.delete("fifo")) == "special"
    assert rule(lambda: workspace.write_bytes("b.txt", b"x")) == "hard_link"
    assert rule(lambda: workspace.append("b.txt", b"x")) == "hard_link"
    assert rule(lambda: workspace.create("a.txt")) == "exists"
    assert rule(lambda: workspace.mkdir("sub")) == "exists"
    assert rule(lambda: workspace.rename("fifo", "x")) == "special"
    assert rule(lambda: workspace.copy("a.txt", "b.txt")) == "exists"
    assert rule(lambda: workspace.delete(".")) == "directory"
    assert rule(lambda: workspace.read_bytes("a\nb")) == "name"
    assert rule(lambda: workspace.write_bytes("..%2fx", b"")) == "name"
    assert rule(lambda: workspace.write_bytes("x" * 256, b"")) == "too_long"
    assert rule(lambda: workspace.read_bytes("a.txt", limit=0)) == "too_large"
    assert rule(lambda: workspace.read_bytes("absent")) == "not_found"
    workspace.write_bytes("sub/x", b"")
    assert rule(lambda: workspace.delete("sub")) == "not_empty"


def test_an_error_message_names_the_path_as_given_and_escaped(workspace: Workspace) -> None:
    with pytest.raises(PathNotFound, match=r"'gone\\u202e\.txt' does not exist in the workspace"):
        workspace.read_bytes("gone\u202e.txt")
    assert quoted_path("a" * 1000) == "'" + "a" * 80 + "…" + "a" * 80 + "'"


def test_a_file_can_be_created_appended_copied_renamed_and_deleted(top: Path, workspace: Workspace) -> None:
    assert workspace.write_bytes("d/e/f.txt", b"1") is True
    assert workspace.append("d/e/f.txt", b"2") is False
    assert workspace.copy("d/e/f.txt", "d/g.txt") == 2
    workspace.rename("d/g.txt", "h/i.txt")
    workspace.delete("d/e/f.txt")
    workspace.delete("d/e/")
    workspace.mkdir("d/new/")
    assert workspace.kind("d/new") == "directory"
    assert workspace.kind("d/e") is None
    assert workspace.read_bytes("h/i.txt") == b"12"


def test_deleting_a_link_leaves_its_target(top: Path, workspace: Workspace) -> None:
    (top / "root/out").symlink_to("../outside/secret.txt")
    workspace.delete("out")
    assert not (top / "root/out").is_symlink()
    assert (top / "outside/secret.txt").read_text() == "CANARY"


def test_a_write_keeps_mode_and_owner_and_leaves_no_temporary_file(top: Path, workspace: Workspace) -> None:
    path = top / "root/a.txt"
    path.chmod(0o4751)
    before = path.stat()
    workspace.write_bytes("a.txt", b"b" * 100_000)
    after = path.stat()
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (stat.S_IMODE(before.st_mode), before.st_uid, before.st_gid)
    assert sorted(os.listdir(top / "root")) == ["a.txt", "sub"]


@pytest.mark.parametrize("path", ["~/x", "$HOME/x", "C:/x", "file:///tmp/x", "..../x", "%2e%2e/x"])
def test_a_missing_folder_with_an_encoded_or_expandable_name_is_not_created(top: Path, workspace: Workspace, path: str) -> None:
    """Classes `encoded` and `expand` of paths.jsonl: file tools neither decode nor expand a path, and report a mistake in it."""
    assert rule(lambda: workspace.write_bytes(path, b"x")) == "not_found"
    assert sorted(os.listdir(top / "root")) == ["a.txt", "sub"]


def test_listing_shows_links_as_links_and_odd_names_escaped(top: Path, workspace: Workspace) -> None:
    (top / "root/out").symlink_to("../outside/secret.txt")
    with open(os.fsencode(top / "root") + b"/\xff\n", "wb"):
        pass
    entries = {entry.path: entry for entry in workspace.list_dir().entries}
    assert entries["out"] == DirectoryEntry(path="out", kind="link")
    assert (entries["\\udcff\\n"].kind, entries["\\udcff\\n"].size) == ("file", 0)


def test_a_stamp_changes_with_every_write_and_not_with_a_read(top: Path, workspace: Workspace) -> None:
    """Times that are set back do not hide a write."""
    file = top / "root/a.txt"
    stamps = [_stamp(workspace, "a.txt")]
    times = file.stat()
    workspace.read_bytes("a.txt")
    assert _stamp(workspace, "a.txt") == stamps[0] == stamp_of(workspace.stat("a.txt"))
    for content in ("x", "y", "longer"):
        before = file.stat().st_ctime_ns
        while file.stat().st_ctime_ns == before:  # the clock of the file system is coarse
            file.write_text(content)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        stamps.append(_stamp(workspace, "a.txt"))
    assert len(set(stamps)) == 4


def _stamp(workspace: Workspace, path: str) -> str:
    return next(entry.stamp for entry in workspace.list_dir().entries if entry.path == path)


def test_a_walk_is_bounded_ordered_and_follows_no_link(top: Path, workspace: Workspace) -> None:
    (top / "root/loop").symlink_to(".")
    (top / "root/sub/b.txt").write_text("")
    paths = [entry.path for entry in workspace.walk() if entry]
    assert paths == ["a.txt", "loop", "sub", "sub/b.txt"]
    assert list(workspace.walk(limit=2))[-1] is None
    assert workspace.glob("**", limit=1).truncated


def test_ignored_is_true_for_the_paths_that_searches_skip(top: Path, workspace: Workspace) -> None:
    (top / "root/.gitignore").write_text("*.log\n/sub/\n")
    assert workspace.ignored("x.log")
    assert workspace.ignored("sub/deep.txt")
    assert workspace.ignored("a/node_modules/b.js")
    assert not workspace.ignored("a.txt")


def test_a_gitignore_outside_the_root_and_costly_patterns_are_not_used(top: Path, workspace: Workspace) -> None:
    (top / "outside/rules").write_text("a.txt\n")
    (top / "root/.gitignore").symlink_to("../outside/rules")
    assert not workspace.ignored("a.txt")
    ignore = IgnoredFiles(lambda path: "*a" * 60 + "b\n[\n*.log\n" if path == ".gitignore" else "")
    assert not ignore.ignores("a" * 200, directory=False)
    assert ignore.ignores("x.log", directory=False)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("a/**", "a/b/c", True),
        ("a/**/d", "a/d", True),
        ("a/**/d", "a/b/c/d", True),
        ("a/**/d", "a/b/c/e", False),
        ("[ab]?.txt", "ax.txt", True),
        ("*a" * 30 + "b", "a" * 200, False),
        ("/".join(["**"] * 50) + "/x", "/".join(["y"] * 50), False),
    ],
)
def test_a_glob_matches_by_path_components_in_bounded_time(pattern: str, path: str, matches: bool) -> None:
    assert Glob(pattern).matches(path) is matches


@pytest.mark.parametrize(
    "path", [".git/hooks/x", "a/.GIT/config", ".git./x", ".g\u200dit/x", ".env", ".env.local", "sub/.ssh/id_rsa", "x.pth", "\uff0egit/x"]
)
def test_protected_names_are_recognised_in_every_spelling(path: str) -> None:
    """Class `protected` of paths.jsonl."""
    assert is_protected(path)


@pytest.mark.parametrize("path", ["src/app.py", "git/x", "environment.py", ".gitignore", "README.md", "docs/ssh.md"])
def test_ordinary_names_are_not_protected(path: str) -> None:
    assert not is_protected(path)


def test_a_protected_name_behind_a_link_is_recognised(top: Path, workspace: Workspace) -> None:
    (top / "root/.git").mkdir()
    (top / "root/plain").symlink_to(".git")
    assert workspace.protected("plain/config")


def test_inside_is_false_and_size_is_refused_for_a_path_outside(workspace: Workspace) -> None:
    assert not workspace.inside("../outside/secret.txt")
    assert rule(lambda: workspace.size("../outside/secret.txt")) == "outside"


def test_a_lexical_path_is_none_where_the_text_alone_does_not_decide_it() -> None:
    assert [lexical(path) for path in ("a//./b/", ".", "a/../b", "/a")] == ["a/b", "", None, None]


def test_a_rename_never_replaces_an_existing_file(top: Path) -> None:
    folder = os.open(top / "root", os.O_RDONLY)
    try:
        (top / "root/b.txt").write_text("b")
        with pytest.raises(FileExistsError):
            rename_new(folder, "a.txt", folder, "b.txt")
    finally:
        os.close(folder)
    assert (top / "root/b.txt").read_text() == "b"


def test_a_failed_write_leaves_the_old_content_and_no_temporary_file(
    top: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has either its old content or the new one. Here the limit on file sizes is reached."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        assert rule(lambda: workspace.write_bytes("a.txt", b"b" * 5000)) == "too_large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (top / "root/a.txt").read_text() == "a"
    assert sorted(os.listdir(top / "root")) == ["a.txt", "sub"]


def test_a_closed_workspace_and_a_missing_root_are_refused(top: Path, opener: Opener) -> None:
    workspace = Workspace(top / "root", opener=opener)
    workspace.close()
    workspace.close()
    with pytest.raises(PathRefused):
        workspace.read_bytes("a.txt")
    with pytest.raises(PathRefused, match="must be an existing folder"):
        Workspace(top / "absent")


def test_every_file_descriptor_is_closed(top: Path, workspace: Workspace) -> None:
    (top / "root/out").symlink_to("../outside")
    before = _held_below(top)
    for path in ("a.txt", "sub", "out/x", "loop", "n/m", "absent", ".."):
        for action in (
            workspace.read_bytes,
            workspace.list_dir,
            workspace.normalise,
            lambda path: workspace.write_bytes(path, b""),
            workspace.delete,
        ):
            try:
                action(path)
            except PathRefused:
                continue
    assert _held_below(top) == before


def _held_below(top: Path) -> list[str]:
    """Return the files below `top` that this process has open, or none if the system has no list of them."""
    held = []
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        with contextlib.suppress(OSError):
            held.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(target for target in held if target.startswith(str(top)))
