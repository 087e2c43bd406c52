"""A wheel of callgate as it is installed here, so that the environment of a plugin gets the same version without an index.

Its dependencies are those that the metadata names; pip chooses their versions together with those of the plugin's own requirements. If
callgate is installed from a checkout as editable, the wheel has only the metadata, and the code is linked.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from callgate.errors import UsageError

__all__ = ["OwnWheel", "link_code", "packages_folder", "write_own_wheel"]

_KIND = "Wheel-Version: 1.0\nGenerator: callgate\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class OwnWheel(Struct, frozen=True, kw_only=True):
    path: Path
    linked: Path | None
    """The folder of the package; only for a wheel without code."""


def write_own_wheel(folder: Path) -> OwnWheel:
    """Write the wheel to a folder.

    Raises:
        UsageError: callgate is not installed as a distribution.
    """
    code = Path(__file__).parents[1]
    try:
        about = importlib.metadata.distribution("callgate")
        metadata = about.read_text("METADATA")
    except importlib.metadata.PackageNotFoundError:
        metadata = None
    if metadata is None:
        raise UsageError("callgate is not installed as a package, so no environment can have it. Install it: pip install callgate.")
    linked = None if _is_same(Path(str(about.locate_file("callgate"))), code) else code
    place = f"callgate-{about.version}.dist-info"
    files = {} if linked is not None else dict(_files(code))
    files |= {f"{place}/METADATA": metadata.encode(), f"{place}/WHEEL": _KIND.encode()}
    path = folder / f"callgate-{about.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{place}/RECORD", "".join([*(_row(name, data) for name, data in files.items()), f"{place}/RECORD,,\n"]))
    return OwnWheel(path=path, linked=linked)


def _row(name: str, data: bytes) -> str:
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={found},{len(data)}\n"


def link_code(environment: Path, code: Path) -> None:
    """Link the package of a checkout into an environment, without the other files of the checkout."""
    (packages_folder(environment) / "callgate").symlink_to(code, target_is_directory=True)


def packages_folder(environment: Path) -> Path:
    """Return the folder into which an environment's packages are installed."""
    (folder,) = environment.glob("lib/*/site-packages")
    return folder


def _is_same(one: Path, other: Path) -> bool:
    return one.is_dir() and one.samefile(other)


def _files(code: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(code.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"callgate/{path.relative_to(code).as_posix()}", path.read_bytes()
