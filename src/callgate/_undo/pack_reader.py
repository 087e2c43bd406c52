"""Read git packs: those that `pack_writer` writes, and those that `git gc` or `git repack` creates.

Used by `git_objects`. The format is too simple to justify a library as one more dependency, and the git program may not
be installed. Knows nothing of branches or calls.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from callgate._undo.pack_writer import Kind

__all__ = ["PackReader"]

_NAMES: dict[int, Kind] = {1: "commit", 2: "tree", 3: "blob"}
_BY_OFFSET, _BY_NAME = 6, 7
_IDX = b"\xfftOc\0\0\0\2"
_FANOUT = len(_IDX)
_TABLES = _FANOUT + 1024
_FAR = 0x8000_0000
_CHUNK = 65_536


class PackReader:
    """The packs of one repository, written by callgate or by git.

    Args:
        folder: The folder `objects/pack`. It need not exist.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._stamp = 0
        self._packs: dict[str, _Index] = {}
        self.refresh(surely=True)

    def refresh(self, *, surely: bool = False) -> bool:
        """List the packs again if the folder has changed, and return whether it was listed.

        Args:
            surely: Whether to list the folder even if its modification time is unchanged, because two changes may have
                the same time.
        """
        try:
            stamp = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            stamp = 0
        if stamp == self._stamp and not surely:
            return False
        self._stamp, before, self._packs = stamp, self._packs, {}
        for name in os.listdir(self._folder) if stamp else ():
            if name.endswith(".idx"):
                with suppress(OSError):
                    self._packs[name] = before.get(name) or _Index(os.path.join(self._folder, name))
        return True

    def __contains__(self, name: str) -> bool:
        return any(index.find(name) is not None for index in self._packs.values())

    def get(self, name: str) -> tuple[Kind, bytes] | None:
        """Return the kind and the bytes of an object; None if no readable pack has it."""
        for _ in range(2):
            for index in self._packs.values():
                at = index.find(name)
                if at is not None:
                    with suppress(OSError, ValueError, IndexError, zlib.error):
                        return self._read(index, at)
            if not self.refresh():
                return None
        return None

    def names(self) -> Iterator[str]:
        """Yield the names of all objects of all packs."""
        for index in self._packs.values():
            yield from index.names()

    def remove(self) -> None:
        """Delete all packs."""
        for path in [index.path.removesuffix(".idx") for index in self._packs.values()]:
            stem = os.path.basename(path)
            for name in sorted(os.listdir(self._folder)):  # .idx before .pack: no reader finds an index without its pack
                if name.startswith(f"{stem}."):
                    os.unlink(os.path.join(self._folder, name))
        self.refresh(surely=True)

    def _read(self, index: _Index, at: int) -> tuple[Kind, bytes]:
        """Return the kind and the bytes of an object. Apply all deltas between it and its base object."""
        deltas: list[bytes] = []
        with open(index.path.removesuffix(".idx") + ".pack", "rb") as file:
            while True:
                kind, base, data = _entry(file, at)
                if kind in _NAMES:
                    break
                deltas.append(data)
                if isinstance(base, str):
                    found = index.find(base)
                    if found is None:
                        raise ValueError("the base of a delta is in no pack of its own")
                    at = found
                else:
                    at -= base
        for delta in reversed(deltas):
            data = _apply_delta(delta, data)
        return _NAMES[kind], data


class _Index:
    """The index of one pack: the offset of each object."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb") as file:
            self._data = file.read()
        sound = self._data.startswith(_IDX) and hashlib.sha1(self._data[:-20], usedforsecurity=False).digest() == self._data[-20:]
        self._count = struct.unpack_from(">I", self._data, _TABLES - 4)[0] if sound else 0

    def find(self, name: str) -> int | None:
        wanted = bytes.fromhex(name)
        first, last = self._within(wanted[0])
        while first < last:
            middle = (first + last) // 2
            found = self._name(middle)
            if found == wanted:
                return self._offset(middle)
            first, last = (middle + 1, last) if found < wanted else (first, middle)
        return None

    def names(self) -> Iterator[str]:
        return (self._name(number).hex() for number in range(self._count))

    def _within(self, byte: int) -> tuple[int, int]:
        if not self._count:
            return 0, 0
        ends = (
            struct.unpack_from(">256I", self._data, _FANOUT) if byte == 0 else struct.unpack_from(">2I", self._data, _FANOUT + 4 * byte - 4)
        )
        return (0, ends[0]) if byte == 0 else (ends[0], ends[1])

    def _name(self, number: int) -> bytes:
        return self._data[_TABLES + 20 * number : _TABLES + 20 * number + 20]

    def _offset(self, number: int) -> int:
        offsets = _TABLES + 24 * self._count
        at: int = struct.unpack_from(">I", self._data, offsets + 4 * number)[0]
        if at & _FAR:
            far: int = struct.unpack_from(">Q", self._data, offsets + 4 * self._count + 8 * (at ^ _FAR))[0]
            return far
        return at


# The format


def _entry(file: BinaryIO, at: int) -> tuple[int, str | int, bytes]:
    """Return the kind of an entry, the base of a delta, and the unpacked bytes.

    The base is a name or a distance back in bytes. It is empty for other kinds.
    """
    file.seek(at)
    byte = file.read(1)[0]
    kind, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 128:
        byte = file.read(1)[0]
        size |= (byte & 127) << shift
        shift += 7
    base: str | int = ""
    if kind == _BY_NAME:
        base = file.read(20).hex()
    elif kind == _BY_OFFSET:
        byte = file.read(1)[0]
        back = byte & 127
        while byte & 128:
            byte = file.read(1)[0]
            back = (back + 1) << 7 | byte & 127
        base = back
    elif kind not in _NAMES:
        raise ValueError("no kind of object")
    return kind, base, _inflate(file, size)


def _inflate(file: BinaryIO, size: int) -> bytes:
    unpack = zlib.decompressobj()
    pieces: list[bytes] = []
    while not unpack.eof:
        packed = file.read(_CHUNK)
        if not packed:
            raise ValueError("the pack ends in the middle of an object")
        pieces.append(unpack.decompress(packed))
    data = b"".join(pieces)
    if len(data) != size:
        raise ValueError("an object has not the size that the pack says")
    return data


def _apply_delta(delta: bytes, base: bytes) -> bytes:
    """Apply a delta to its base and return the result.

    A delta copies pieces of the base and inserts bytes of its own.
    """
    at = _after_number(delta, _after_number(delta, 0))
    pieces: list[bytes] = []
    while at < len(delta):
        order, at = delta[at], at + 1
        if not order & 128:
            pieces.append(delta[at : at + order])
            at += order
            continue
        fields = [0] * 7
        for bit in range(7):
            if order >> bit & 1:
                fields[bit], at = delta[at], at + 1
        start = int.from_bytes(bytes(fields[:4]), "little")
        size = int.from_bytes(bytes(fields[4:]), "little") or 65_536
        pieces.append(base[start : start + size])
    return b"".join(pieces)


def _after_number(delta: bytes, at: int) -> int:
    while delta[at] & 128:
        at += 1
    return at + 1
