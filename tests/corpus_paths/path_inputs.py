"""Read the hostile path inputs: their location, their values, and the file tree that a row starts with.

The data is not part of the repository; a checkout without it skips the tests that need it.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "hostile"

Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    """Return every row of one input file, or a single skipped row if the data is missing."""
    file = DATA / name
    if not file.exists():
        return [{"id": "absent", "absent": True}]
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def need(row: Row) -> None:
    if row.get("absent"):
        pytest.skip("the hostile inputs are not beside this checkout")


def value(node: Any) -> Any:
    """Return the text or bytes that a node of the inputs describes."""
    if isinstance(node, str):
        return node
    ((kind, body),) = node.items()
    match kind:
        case "rep":
            return value(body[0]) * body[1]
        case "cp":
            return "".join(map(chr, body))
        case "b64":
            return base64.b64decode(body)
        case "range":
            return body[2].join(body[0].replace("%d", str(number)) for number in range(body[1]))
        case "json":
            return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        case "cat":
            parts = [value(part) for part in body]
            if any(isinstance(part, bytes) for part in parts):
                return b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
            return "".join(parts)
    raise ValueError(kind)


def tree(top: Path) -> Path:
    """Create the file tree of the corpus below `top`; return the root that tools may use."""
    for name in ("root/sub/deep", "root-evil", "secret", "secret-root"):
        (top / name).mkdir(parents=True)
    (top / "root/in.txt").write_text("inside")
    (top / "root/sub/deep/leaf.txt").write_text("leaf")
    for name in ("outside.txt", "root-evil/x.txt", "secret/key.txt", "secret-root/in.txt"):
        (top / name).write_text(f"CANARY {name}")
    return top / "root"


def prepare(top: Path, steps: list[list[Any]]) -> None:
    """Do the steps of a row's `setup`; skip the test if this machine cannot."""
    for word, *rest in steps:
        _step(top, word, *rest)


def _step(top: Path, word: str, name: str, *rest: Any) -> None:
    root = top / "root"
    path = root / name
    match word:
        case "symlink":
            os.symlink(rest[0].replace("{T}", str(top)).replace("{ROOT}", str(root)), path)
        case "hardlink":
            os.link(path.parent / rest[0], path)
        case "file":
            _write(path, value(rest[0]))
        case "ofile":
            _write(top / name, value(rest[0]))
        case "b64file":
            _write(path, base64.b64decode(rest[0]))
        case "rawfile":
            raw = value(name)
            Path(os.fsdecode(os.path.join(os.fsencode(root), raw if isinstance(raw, bytes) else os.fsencode(raw)))).write_bytes(b"raw")
        case "mkdir":
            path.mkdir(parents=True, exist_ok=True)
        case "chmod":
            path.chmod(rest[0])
        case "fifo":
            os.mkfifo(path)
        case "socket":
            _socket(path)
        case "sparse":
            _sparse(path, rest[0])
        case "swap_root_for_symlink":
            root.rename(top / "root.moved")
            root.symlink_to(rest[0] if rest else name)
        case _:
            pytest.skip(f"this test cannot do {word}")


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _sparse(path: Path, size: int) -> None:
    try:
        with path.open("wb") as file:
            file.truncate(size)
    except OSError:
        pytest.skip("this file system has no files of that size")


Facts = dict[str, tuple[int, int, object]]


def outside(top: Path) -> Facts:
    """Return mode, mtime and content of everything below `top` that is not below its root."""
    found: Facts = {}
    for folder, folders, files in os.walk(top):
        if Path(folder) == top:
            folders[:] = [name for name in folders if name not in ("root", "root.moved")]
        for name in [*folders, *files]:
            path = Path(folder, name)
            if path in (top / "root", top / "root.moved"):
                continue
            status = path.lstat()
            body: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(top))] = (status.st_mode, status.st_mtime_ns if not path.is_dir() else 0, body)
    return found
