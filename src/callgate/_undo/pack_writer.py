"""Write git packs: many objects in one file, with an index file, without deltas.

Used by `git_objects`, which decides when to write a pack. With packs, the first snapshot of a large tree is one file
instead of ten thousand. `pack_reader` reads the packs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import zlib
from contextlib import suppress
from typing import BinaryIO, Literal

__all__ = ["FEW", "Kind", "ObjectBatch", "PackWriter"]

Kind = Literal["blob", "tree", "commit"]
FEW = 64
"""If there are more new objects than this, or more bytes than `_FEW_BYTES`, they are written to a pack."""
_FEW_BYTES = 8_388_608
_KINDS: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3}
_FAR = 0x8000_0000
_KEEP = b"callgate: content that open calls may need; git leaves it alone\n"


class PackWriter:
    """A pack that is being written. It has a temporary name, which readers ignore, until `close` renames it.

    Args:
        folder: The folder `objects/pack` of a repository. It is created if it is missing.
    """

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder = folder
        self._draft = os.path.join(folder, f"tmp_pack_{secrets.token_hex(8)}")
        self._file = open(os.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w+b", buffering=1_048_576)  # noqa: SIM115
        self._file.write(b"PACK" + struct.pack(">II", 2, 0))
        self._at = 12
        self.entries: dict[str, tuple[int, int]] = {}
        """The checksum of the packed bytes and their offset, by the object's name."""

    def add(self, name: str, kind: Kind, data: bytes) -> None:
        if name not in self.entries:
            packed = _head(_KINDS[kind], len(data)) + zlib.compress(data, 1)
            self._file.write(packed)
            self.entries[name] = zlib.crc32(packed), self._at
            self._at += len(packed)

    def close(self, *, sync: bool) -> None:
        """Complete the pack, give it its final name, and write its index. A `.keep` file prevents git from deleting the pack.

        Args:
            sync: Whether to wait for the disk.
        """
        with self._file as file:
            file.seek(8)
            file.write(struct.pack(">I", len(self.entries)))
            digest = _digest(file)
            file.seek(0, os.SEEK_END)
            file.write(digest)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        path = os.path.join(self._folder, f"pack-{digest.hex()}")
        _write_file(f"{path}.keep", _KEEP, sync=False)
        os.rename(self._draft, f"{path}.pack")
        _write_file(f"{path}.idx", _index(self.entries, digest), sync=sync)
        if sync:
            _sync_folder(self._folder)

    def abandon(self) -> None:
        self._file.close()
        with suppress(OSError):
            os.unlink(self._draft)


class ObjectBatch:
    """Collect the objects of one snapshot: in memory while they are few, in a pack when they are many."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._bytes = 0
        self.few: dict[str, tuple[Kind, bytes]] = {}
        self.pack: PackWriter | None = None

    def add(self, name: str, kind: Kind, data: bytes) -> None:
        if self.pack is not None:
            self.pack.add(name, kind, data)
            return
        if name not in self.few:
            self.few[name] = kind, data
            self._bytes += len(data)
        if len(self.few) > FEW or self._bytes > _FEW_BYTES:
            self._pack()

    def close(self, *, sync: bool) -> int:
        """Complete the pack and return how many objects it has."""
        pack = self.pack or self._pack()
        self.pack = None
        try:
            pack.close(sync=sync)
        except BaseException:
            pack.abandon()
            raise
        return len(pack.entries)

    def abandon(self) -> None:
        if self.pack is not None:
            self.pack.abandon()

    def _pack(self) -> PackWriter:
        self.pack = pack = PackWriter(self._folder)
        for name, (kind, data) in self.few.items():
            pack.add(name, kind, data)
        self.few = {}
        return pack


def _head(kind: int, size: int) -> bytes:
    """Return the header of a pack entry.

    The first byte has the kind and four bits of the size; each further byte has seven bits of the size.
    """
    first, size = kind << 4 | size & 15, size >> 4
    more = bytearray()
    while size:
        more.append(size & 127)
        size >>= 7
    numbers = [first, *more]
    return bytes([*(number | 128 for number in numbers[:-1]), numbers[-1]])


def _index(entries: dict[str, tuple[int, int]], pack: bytes) -> bytes:
    names = sorted(entries)
    raw = [bytes.fromhex(name) for name in names]
    counts = [0] * 256
    for name in raw:
        counts[name[0]] += 1
    ends, total = list[int](), 0
    for count in counts:
        total += count
        ends.append(total)
    far = [entries[name][1] for name in names if entries[name][1] >= _FAR]
    places = {at: _FAR | number for number, at in enumerate(far)}
    parts = [
        b"\xfftOc\0\0\0\2",
        struct.pack(">256I", *ends),
        *raw,
        struct.pack(f">{len(names)}I", *(entries[name][0] for name in names)),
        struct.pack(f">{len(names)}I", *(places.get(entries[name][1], entries[name][1]) for name in names)),
        struct.pack(f">{len(far)}Q", *far),
        pack,
    ]
    data = b"".join(parts)
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


def _digest(file: BinaryIO) -> bytes:
    file.seek(0)
    digest = hashlib.sha1(usedforsecurity=False)
    while piece := file.read(1_048_576):
        digest.update(piece)
    return digest.digest()


def _write_file(path: str, data: bytes, *, sync: bool) -> None:
    draft = f"{os.path.dirname(path)}/tmp_idx_{secrets.token_hex(8)}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.rename(draft, path)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
