"""Read the values of a TOML file, with errors that name the file, the key, the value and the next step.

A value is text, a list, a table and so on because the caller says so. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from callgate._option_checks import refuse_unknown, shown
from callgate._terminal_text import one_line
from callgate._unusable_paths import check_path, displayed, expanded, read_regular_file, refused_paths
from callgate.errors import UsageError
from callgate.mcp._variables import Variables

__all__ = ["TomlFile", "TomlTable", "read_toml"]

_MOST_BYTES: Final = 4 * 1024 * 1024
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class TomlFile:
    """One file: its name for errors, the folder that its paths are relative to, and its variables."""

    def __init__(self, path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.name: Final = displayed(path)
        self.folder: Final = path.absolute().parent
        self.environment: Final = os.environ if environment is None else environment

    def replace_variables(self, text: str, where: str) -> str:
        """Return the text with its variables replaced.

        Raises:
            UsageError: A variable has no value; the message names it.
        """
        variables = Variables(self.folder, self.environment)
        found = variables.replace(text, where)
        if variables.problems:
            raise UsageError(f"{self.name}: {variables.problems[0]} Or write a default: ${{NAME:-default}}.")
        return found

    def path(self, text: str) -> Path:
        """Return a path of the file: `~` is replaced, and a relative path begins in the file's folder."""
        return Path(os.path.normpath(self.folder / expanded(text)))


class TomlTable:
    """One table of a file."""

    def __init__(self, file: TomlFile, keys: tuple[str, ...], entries: Mapping[str, Any]) -> None:
        self.file: Final = file
        self.keys: Final = keys
        self.entries: Final = entries

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    @property
    def header(self) -> str:
        """The table's header as in the file; empty for the root."""
        return f"[{'.'.join(map(_key, self.keys))}]" if self.keys else ""

    def place(self, key: str) -> str:
        return f"{self.header} {_key(key)}".lstrip()

    def wrong(self, key: str, fact: str, then: str) -> UsageError:
        return UsageError(f"{self.file.name}: {self.place(key)} {fact}. {then}")

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raise `UsageError` if the table has other keys; the message has the nearest known one."""
        owner = f"{self.file.name}: {self.header}".rstrip(": ")
        for key in self.entries:
            refuse_unknown(owner, [one_line(key, 80)] if key not in known else [], known)

    def text(self, key: str, default: str = "", *, variables: bool = False, secret: bool = False) -> str:
        value = self.entries.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "is not text" if secret else f"is {_describe(value)}; it must be text", "Write it in quotes.")
        return self.file.replace_variables(value, self.place(key)) if variables else value

    def texts(self, key: str, default: tuple[str, ...] = (), *, variables: bool = False) -> tuple[str, ...]:
        """Return a list of texts. One text counts as a list of one."""
        value = self.entries.get(key, list(default))
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(key, f"is {_describe(value)}; it must be a text or a list of texts", f'Write {_key(key)} = ["...", "..."].')
        return tuple(self.file.replace_variables(one, self.place(key)) if variables else one for one in value)

    def pairs(self, key: str) -> dict[str, str]:
        """Return the texts of a table by name, with variables replaced. Errors show no value, because it may be a secret."""
        given = self.table(key)
        return {} if given is None else {name: given.text(name, variables=True, secret=True) for name in given.entries}

    def flag(self, key: str, default: bool) -> bool:
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"is {_describe(value)}; it must be true or false", f"Write {_key(key)} = true or {_key(key)} = false.")
        return value

    def count(self, key: str, default: int, *, advice: str = "") -> int:
        value = self.entries.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(key, f"is {_describe(value)}; it must be a whole number from 1", advice or f"The default is {default}.")
        return value

    def seconds(self, key: str, *, zero: bool = False, most: float = 1e9) -> float | None:
        value = self.entries.get(key)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not (0 <= value <= most) or (value == 0 and not zero):
            least, up_to = "from 0" if zero else "above 0", f" and at most {most:,.0f}" if most < 1e9 else ""
            raise self.wrong(key, f"is {_describe(value)}; it must be a number of seconds {least}{up_to}", "Write such as 30 or 0.5.")
        return float(value)

    def choice(self, key: str, choices: tuple[str, ...], *, advice: str = "") -> str:
        """Return one of these texts; the first is the default, unless `advice` says what to write."""
        value = self.text(key, choices[0])
        if value not in choices:
            fact = f"is {_describe(value)}; it must be {' or '.join(map(repr, choices))}"
            raise self.wrong(key, fact, advice or f"The default is '{choices[0]}'.")
        return value

    def table(self, key: str) -> TomlTable | None:
        """Return a table in this one; None if there is none."""
        value = self.entries.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            header = TomlTable(self.file, (*self.keys, key), {}).header
            raise self.wrong(key, f"is {_describe(value)}; it must be a table", f"Begin it with a line {header}.")
        return TomlTable(self.file, (*self.keys, key), value)

    def tables(self, key: str) -> dict[str, TomlTable]:
        """Return the tables in the table `key` by name."""
        outer = self.table(key)
        return {} if outer is None else {name: table for name in outer.entries if (table := outer.table(name)) is not None}


def read_toml(path: str | os.PathLike[str], use: str, missing: str, environment: Mapping[str, str] | None = None) -> TomlTable:
    """Return the root table of a file.

    Args:
        use: What the file is for, as in "cannot be used as the configuration of a gateway".
        missing: What to do if there is no such file, as a sentence.
        environment: The environment variables. Default: those of this process.

    Raises:
        UsageError: The file cannot be read, or is not TOML.
    """
    check_path(use, path, in_memory="Give a file.", on_server="Give a file.")
    file = expanded(path)
    if not file.exists():
        raise UsageError(f"There is no file {displayed(file)}, so it cannot be used as {use}. {missing}")
    with refused_paths(file, use):
        data = read_regular_file(file, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{displayed(file)} has more than {_MOST_BYTES:,} bytes, too many for {use}. Give another file.")
    try:
        entries = tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{displayed(file)} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{displayed(file)} is not valid TOML: {error}. Correct that line.") from error
    except (RecursionError, ValueError) as error:  # ValueError: raised by Python's parsers of numbers and dates
        raise UsageError(f"{displayed(file)} cannot be read: it is nested too deeply, or has a number or date out of range.") from error
    return TomlTable(TomlFile(file, environment), (), entries)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else f'"{one_line(key, 80)}"'


def _describe(value: object) -> str:
    """Return a value for an error: as in the file if it is short, otherwise its kind."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    return one_line(shown(value), 80)
