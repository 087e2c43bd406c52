"""A folder of wheels for tests without a network: what callgate depends on, as it is installed here, and tiny packages."""

from __future__ import annotations

import importlib.metadata
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["EnvironmentPlugin", "fill_wheelhouse", "write_wheel"]

_MAIN = """\
import os, sys
from importlib import metadata, import_module
from callgate import tool
from callgate.plugins.serving import serve

@tool(effect="none")
def look_up(package: str) -> dict:
    '''Say which version of a package is here.'''
    import callgate
    module = import_module(package)
    return {
        "version": metadata.version(package), "of_module": getattr(module, "VERSION", None), "python": "%s.%s" % sys.version_info[:2],
        "callgate": callgate.__version__, "code": os.path.realpath(callgate.__file__), "environment": os.environ.get("VIRTUAL_ENV"),
        "path": sys.path,
    }

if __name__ == "__main__":
    serve([look_up])
"""
BACKEND = """\
import base64, hashlib, json, os, zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    here = os.getcwd()
    with open(os.path.join(here, "seen.json"), "w") as file:
        json.dump(dict(os.environ), file)
    if os.path.exists("hang"):
        with open("hang") as pipe:
            pipe.read()
    about = "kit-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(wheel_directory, "kit-1.0-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("kit.pth", os.path.join(here, "lib"))
        wheel.writestr(about + "/METADATA", "Metadata-Version: 2.1\\nName: kit\\nVersion: 1.0\\n")
        wheel.writestr(about + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(about + "/RECORD", "kit.pth,,\\n")
    return "kit-1.0-py3-none-any.whl"
"""
PROJECT = '[project]\nname = "kit"\nversion = "1.0"\n[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def write_wheel(folder: Path, name: str, version: str) -> Path:
    """Write a wheel of one module whose `VERSION` is its version."""
    return _packed(folder, name, version, {f"{name}.py": f"VERSION = {version!r}\n".encode()}, "py3-none-any")


def fill_wheelhouse(folder: Path) -> None:
    """Write a wheel of each distribution on which callgate depends, from its installed files."""
    for line in importlib.metadata.requires("callgate") or ():
        if "extra ==" not in line:
            _repack(folder, importlib.metadata.distribution(re.split(r"[^\w.\-]", line, maxsplit=1)[0]))


def _repack(folder: Path, found: importlib.metadata.Distribution) -> None:
    tags = re.findall(r"^Tag: (\S+)", found.read_text("WHEEL") or "", re.MULTILINE)
    files = {str(file): Path(str(found.locate_file(file))) for file in found.files or ()}
    kept = {name: path.read_bytes() for name, path in files.items() if not name.startswith("..") and path.suffix != ".pyc"}
    about = next(name.split("/")[0] for name in kept if name.endswith(".dist-info/METADATA"))
    name, version = about.removesuffix(".dist-info").rsplit("-", 1)
    _packed(folder, name, version, kept, tags[0])


def _packed(folder: Path, name: str, version: str, files: Mapping[str, bytes], tag: str) -> Path:
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    every = {
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    } | dict(files)
    every.pop(f"{about}/RECORD", None)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for one, data in every.items():
            wheel.writestr(one, data)
        wheel.writestr(f"{about}/RECORD", "".join(f"{one},,\n" for one in (*every, f"{about}/RECORD")))
    return path


class EnvironmentPlugin:
    """The folder of a plugin in Python with the tool `look_up`, which says which packages its environment has.

    Args:
        head: What its manifest says of the environment.
    """

    def __init__(self, folder: Path, name: str = "kit", head: str = "", tools: str = "") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.tools = tools
        (self.folder / "main.py").write_text(_MAIN, encoding="utf-8")
        self.ask_for(head)

    def requires(self, *entries: str) -> None:
        self.ask_for(f"requires = {json.dumps(entries)}")

    def ask_for(self, head: str) -> None:
        top = f'[plugin]\nname = "{self.name}"\nversion = "1"\nprotocol = 1\ncommand = ["{{python}}", "main.py"]\n{head}\n'
        (self.folder / "callgate-plugin.toml").write_text(top + self.tools, encoding="utf-8")

    def make_project(self) -> None:
        """Make a package of it, whose build writes down its variables, and waits for the pipe `hang` if there is one."""
        (self.folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
        (self.folder / "backend.py").write_text(BACKEND, encoding="utf-8")
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "kit.py").write_text("VERSION = 'of the folder'\n", encoding="utf-8")
