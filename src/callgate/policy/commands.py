"""Read commands for rules: the words of a command, and the commands that it may run in turn.

A program such as `timeout` or `sudo` runs another one, which its arguments name. Where in them differs between programs and their versions,
so the options are not read: every later word may be that program. Programs that run what a file or their input says (interpreters, `make`,
`git` with an alias) are not known. Pure. Knows no rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["command_text", "command_words", "possible_commands", "possible_programs", "runs_others"]

_SHELL = frozenset("|&;<>()$`\\\"'\n*?[]{}~!#\r\0")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_ATTACHED = re.compile(r"-[A-Za-z0-9]*?[Sc](?P<text>.+)|--[a-z-]+=(?P<value>.+)", re.DOTALL)
"""An option with a command attached, as in `env -Srm` and `env --split-string=rm`."""
_MOST_WORDS: Final = 100
"""The maximum number of words of a command that runs others, so that all commands that it may run can be judged."""

_SHELL_PROGRAMS: Final = frozenset(("ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"))
_READS_TEXT: Final = _SHELL_PROGRAMS | {"env", "eval", "flock", "parallel", "runuser", "script", "sg", "su", "trap", "watch"}
"""Programs that read a command, options included, from one word of their arguments."""
_RUNS: Final = frozenset(
    (
        *("builtin", "busybox", "bwrap", "caffeinate", "chpst", "chroot", "chrt", "command", "coproc", "dbus-run-session", "doas", "env"),
        *("eval", "exec", "fakeroot", "firejail", "flock", "ionice", "linux32", "linux64", "ltrace", "nice", "nohup", "nsenter", "numactl"),
        *("parallel", "pkexec", "prlimit", "proot", "rlwrap", "runcon", "runuser", "script", "setarch", "setpriv", "setsid", "setuidgid"),
        *("sg", "softlimit", "start-stop-daemon", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout", "toybox"),
        *("trap", "unbuffer", "unshare", "watch", "xargs", "xvfb-run"),
    )
)
"""Programs that run the program which their arguments name."""
_FIND_RUNS: Final = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def command_words(value: object) -> list[str]:
    """Return the command's words, if it is one simple command of literal words.

    Raises:
        ValueError: A shell would do more with it than run one program.
        TypeError: It is neither a text nor a list of texts.
    """
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return value
    if not isinstance(value, str):
        raise TypeError("not text")
    if not _SHELL.isdisjoint(value):
        raise ValueError("not one simple command of literal words")
    words = list(filter(None, value.replace("\t", " ").split(" ")))
    if not words or "=" in words[0]:
        raise ValueError("runs no program, or sets a variable")
    return words


def command_text(words: Sequence[str]) -> str:
    """Return the words separated by spaces, with special ones in quotes, so that different commands have different texts."""
    if "" not in words and _PLAIN.fullmatch("".join(words)):
        return " ".join(words)
    return " ".join(map(_quoted, words))


def runs_others(words: Sequence[str]) -> bool:
    """Return whether a command runs a program that its arguments name."""
    name, others = _name(words[0]), words[1:]
    if name == "find":
        return not _FIND_RUNS.isdisjoint(others)
    if name in _SHELL_PROGRAMS:
        return any(word.startswith("-") and "c" in word for word in others)
    return name in _RUNS and bool(others)


def possible_programs(words: Sequence[str]) -> list[str]:
    """Return the programs that a command may run, as written and without their folders.

    Raises:
        ValueError: It cannot be told which.
    """
    programs = _all_words(words) if runs_others(words) else words[:1]
    return list(dict.fromkeys(name for word in programs for name in (word, _name(word))))


def possible_commands(words: Sequence[str]) -> list[str]:
    """Return the texts of a command and of those that it may run, with their programs as written and without their folders.

    Raises:
        ValueError: It cannot be told which.
    """
    inner = _all_words(words) if runs_others(words) else []
    if len(inner) > _MOST_WORDS:
        raise ValueError("too many words to judge each as a program")
    commands = [words, *(inner[at:] for at in range(1, len(inner)))]
    texts = [text for command in commands for text in (command_text(command), command_text([_name(command[0]), *command[1:]]))]
    return list(dict.fromkeys(texts))


def _all_words(words: Sequence[str]) -> list[str]:
    """Return all words of a command, and for one that reads commands from its arguments also the words of these."""
    if not any(_name(word) in _READS_TEXT for word in words):
        return list(words)
    return [found for word in words for found in _words_within(word)]


def _words_within(word: str) -> Iterator[str]:
    if not word or _PLAIN.fullmatch(word):
        yield word
    else:
        yield from command_words(word)
    attached = _ATTACHED.match(word)
    if attached is not None:
        yield from command_words(attached["text"] or attached["value"])


def _name(word: str) -> str:
    return word.rpartition("/")[2] or word


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "'\"'\"'") + "'"
