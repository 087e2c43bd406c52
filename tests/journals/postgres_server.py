"""A PostgreSQL server of the tests' own: on a socket in a folder that goes with it, never on a port, run by somebody who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["Server", "Unavailable", "running_server"]

_OPTIONS: Final = "-c listen_addresses='' -c fsync=off -c max_connections=60 -c shared_buffers=16MB"
_MOST_S: Final = 120
_EMPTY: Final = """
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public') LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
END $$
"""


class Unavailable(Exception):
    """No server can be had here; the text says why."""


class Server:
    """One server; each test has a database to itself."""

    def __init__(self, socket: Path, user: str) -> None:
        self._socket = socket
        self._user = user
        self._made = 0
        self._free: list[str] = []

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self._user}@/{database}?host={self._socket}"

    def new_database(self) -> str:
        """Its address."""
        self._made += 1
        name = f"test_{self._made}"
        self.ask(f"CREATE DATABASE {name}")
        return self.url(name)

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """The address of an empty database, which is emptied for the next one who asks: that costs less than another one."""
        url = self._free.pop() if self._free else self.new_database()
        yield url
        if self.cut_connections(url):
            self.ask(_EMPTY, url)
            self._free.append(url)

    def ask(self, sql: str, url: str | None = None) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def cut_connections(self, url: str) -> bool:
        """End every connection to this database, as a restart or a broken network does; whether there is such a database."""
        name = url.rpartition("@/")[2].partition("?")[0]
        self.ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        return bool(self.ask(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"))


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server, stop it at the end.

    Raises:
        Unavailable: There are no programs, no user to run them as, or they do not start.
    """
    try:
        import psycopg
    except ImportError:
        raise Unavailable("the package psycopg is not installed") from None
    del psycopg
    programs, user = _programs(), _user()
    folder = Path(tempfile.mkdtemp(prefix="cg-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        name = user or pwd.getpwuid(os.getuid()).pw_name
        _run(programs / "initdb", "-D", folder / "data", "-U", name, "-A", "trust", "-E", "UTF8", "--no-sync", user=user, folder=folder)
        options = f"{_OPTIONS} -c unix_socket_directories='{folder}'"
        control = (programs / "pg_ctl", "-D", folder / "data", "-w")
        _run(*control, "-l", folder / "log", "-o", options, "start", user=user, folder=folder)
        try:
            yield Server(folder, name)
        finally:
            _run(*control, "-m", "immediate", "stop", user=user, folder=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder with the newest `initdb` and `pg_ctl`."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: int(found.parent.name), reverse=True)
    in_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    for folder in (*debian, *in_path):
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise Unavailable("there is no PostgreSQL server here: install the package postgresql")


def _user() -> str | None:
    """Whom to run as; None: ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise Unavailable("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _run(*words: object, user: str | None, folder: Path) -> None:
    command = [str(word) for word in words]
    log = folder / "said"
    with log.open("wb") as said:  # a pipe would stay open in the server
        done = subprocess.run(command, user=user, cwd=folder, stdout=said, stderr=said, timeout=_MOST_S, env={"LC_ALL": "C.UTF-8"})
    if done.returncode != 0:
        raise Unavailable(f"{Path(command[0]).name} failed: {log.read_text(errors='replace')[-300:]}")
