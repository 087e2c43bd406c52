"""A PostgreSQL server for the tests: it listens on a socket in a temporary folder, never on a port, and does not run as root."""

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
    """Raised when no server can be started here; the message gives the reason."""


class Server:
    """A running server that gives each test its own database."""

    def __init__(self, socket: Path, user: str) -> None:
        self._socket = socket
        self._user = user
        self._made = 0
        self._free: list[str] = []

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self._user}@/{database}?host={self._socket}"

    def new_database(self) -> str:
        """Create a database and return its address."""
        self._made += 1
        name = f"test_{self._made}"
        self.ask(f"CREATE DATABASE {name}")
        return self.url(name)

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """Provide the address of an empty database. Afterwards it is emptied and reused, which is cheaper than creating another one."""
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
        """End every connection to this database, as a restart or a network failure does, and return whether the database exists."""
        name = url.rpartition("@/")[2].partition("?")[0]
        self.ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        return bool(self.ask(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"))


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server and stop it on exit.

    Raises:
        Unavailable: The server programs or a user to run them are missing, or the server does not start.
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
    """Return the folder of the newest `initdb` and `pg_ctl`."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: int(found.parent.name), reverse=True)
    in_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    for folder in (*debian, *in_path):
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise Unavailable("there is no PostgreSQL server here: install the package postgresql")


def _user() -> str | None:
    """Return the user to run the server as, or None for the current user."""
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
