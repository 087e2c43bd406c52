"""Blob stores: one contract for all of them, and what each adds. The PostgreSQL store is also tested in `tests/journals`."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate import DirectoryBlobs, PostgresJournal
from callgate._blob_store import MemoryBlobs
from callgate.protocols import BlobStore

Make = Callable[[], BlobStore]


@pytest.fixture(params=["memory", "directory", "postgres"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    """Yield a function that opens the store anew. Except in memory, a new store has the blobs of the earlier ones."""
    if request.param == "postgres":
        journal = PostgresJournal(request.getfixturevalue("database"))
        yield lambda: journal.blobs
        await journal.close()
    else:
        yield MemoryBlobs if request.param == "memory" else partial(DirectoryBlobs, tmp_path / "blobs")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=30, deadline=None)
@given(data=st.binary(max_size=5_000))
def test_get_returns_the_bytes_that_put_stored_under_their_sha256(make: Make, data: bytes) -> None:
    """The contract of `protocols.BlobStore`."""
    blobs = make()
    digest = blobs.put(data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert blobs.put(data) == digest
    assert blobs.get(digest) == data


@pytest.mark.parametrize("digest", ["", "0" * 64, "../../etc/passwd", "0" * 63 + "G", "A" * 64, "0" * 64 + "\n", "ab/" + "0" * 61])
def test_get_returns_none_for_an_unknown_or_invalid_digest(make: Make, digest: str) -> None:
    assert make().get(digest) is None


def test_a_corrupt_blob_is_not_returned_and_the_next_put_repairs_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`get` compares the content with its hash."""
    blobs = DirectoryBlobs(tmp_path)
    digest = blobs.put(b"the whole result")
    (tmp_path / digest[:2] / digest[2:]).write_bytes(b"the whole resulu")
    with caplog.at_level(logging.WARNING, "callgate.blobs"):
        assert blobs.get(digest) is None
    assert digest in caplog.text
    blobs.put(b"the whole result")
    assert blobs.get(digest) == b"the whole result"


def test_blob_files_are_accessible_only_to_their_owner_and_leave_no_temporary_files(tmp_path: Path) -> None:
    digest = DirectoryBlobs(tmp_path / "b").put(b"x")
    files = [path for path in (tmp_path / "b").rglob("*") if path.is_file()]
    assert [path.name for path in files] == [digest[2:]]
    assert files[0].stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700


def test_a_symbolic_link_in_place_of_a_blob_is_not_followed(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "b")
    digest = blobs.put(b"content")
    place = tmp_path / "b" / digest[:2] / digest[2:]
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert blobs.get(digest) is None


def test_a_directory_store_finds_the_blobs_of_an_earlier_store(tmp_path: Path) -> None:
    digest = DirectoryBlobs(tmp_path).put(b"kept")
    assert DirectoryBlobs(tmp_path).get(digest) == b"kept"


def test_a_bounded_memory_store_drops_the_oldest_and_counts_it() -> None:
    """`max_bytes` limits the total size; a blob above it is not stored at all."""
    blobs = MemoryBlobs(max_bytes=10)
    old, new = blobs.put(b"123456"), blobs.put(b"abcdef")
    assert (blobs.get(old), blobs.get(new), blobs.dropped) == (None, b"abcdef", 1)
    too_large = blobs.put(b"x" * 11)
    assert (blobs.get(too_large), blobs.get(new), blobs.dropped) == (None, b"abcdef", 2)
