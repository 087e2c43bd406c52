"""File tools: read, write, edit, list, glob and grep in the scope's workspace.

All file access goes through `Workspace`, so no argument reaches a file outside of it. The tools are plain functions and
run in threads. A call's resources are its normalised paths: calls with `./a.txt` and `a.txt` do not run at the same
time if one of them writes. Knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from glob import escape

from callgate._workspace import Workspace, quoted_path
from callgate.builtins._mime import mime_of
from callgate.builtins._text_pages import TextPage, cut_page, decode_text, is_binary
from callgate.builtins._text_search import Search, TextIndex, describe_withheld
from callgate.builtins._tool_failures import CannotDo, Result, failures_as_results
from callgate.builtins._workspaces import Workspaces, folder_key
from callgate.calls import Scope
from callgate.tools import Tool, ToolContext, tool

__all__ = ["FileTools"]

_READABLE = 16_777_216
"""The largest file that read_file and edit_file accept, in bytes."""
_LISTED = 1_000
_NEAR = 10


class FileTools:
    """The file tools, and the workspaces that they keep open between calls.

    Args:
        index: Makes searches faster. Without it, every file is read.
    """

    def __init__(self, index: TextIndex | None = None) -> None:
        self._workspaces = Workspaces()
        self._index = index

    def tools(self) -> list[Tool]:
        return [
            tool(category="safe_chain", effect="none", reads=self._key, content_key="content")(self.read_file),
            tool(category="dangerous", effect="idempotent", writes=self._key)(self.write_file),
            tool(category="dangerous", effect="once", reads=self._key, writes=self._key)(self.edit_file),
            tool(category="safe_chain", effect="none", reads=self._key)(self.list_files),
            tool(category="safe_chain", effect="none", reads=self._folder_key)(self.glob_files),
            tool(category="safe_chain", effect="none", reads=self._key)(self.grep_files),
        ]

    def _key(self, arguments: Mapping[str, object], scope: Scope) -> tuple[str, ...]:
        """Return the resource of a path with links resolved, so that two spellings of one file have the same key."""
        return (f"file:{self._workspaces.of(scope.workspace).normalise(str(arguments.get('path', '.')))}",)

    def _folder_key(self, arguments: Mapping[str, object], scope: Scope) -> tuple[str, ...]:
        path, pattern = str(arguments.get("path", ".")), arguments.get("pattern")
        folder = "" if path == "." else self._workspaces.of(scope.workspace).normalise(path)
        return (folder_key(f"{escape(folder)}/{pattern}" if folder else pattern),)

    def _workspace(self, context: ToolContext) -> Workspace:
        return self._workspaces.of(context.workspace, context.own_files)

    @failures_as_results
    def read_file(self, context: ToolContext, path: str, offset: int = 0, limit: int = 1000) -> Result:
        """Read a text file, a page at a time.

        Args:
            path: The file, relative to the workspace. Taken literally: no `~`, no wildcards.
            offset: How many lines to skip; continue with the `next_offset` of the page before.
            limit: How many lines to return at most. A page also ends at 12,000 bytes.
        """
        data = self._workspace(context).read_bytes(path, limit=_READABLE)
        if is_binary(data):
            raise CannotDo(
                f"{quoted_path(path)} is not text ({len(data):,} bytes, begins with {data[:8].hex(' ')}). read_file reads text only."
            )
        text, undecodable = decode_text(data)
        lines = text.removeprefix("\ufeff").split("\n")
        lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        start = max(0, offset)
        found = cut_page(lines[start:], max(1, limit))
        after = start + found.lines
        result: Result = {"path": path, "content": found.text, "mime": mime_of(path), "bytes": len(data)}
        result |= {"truncated": found.lines < len(lines) or bool(found.cut_line), "offset": start, "lines": found.lines}
        result |= {"total_lines": len(lines), "next_offset": after if after < len(lines) else None}
        if undecodable:
            result["undecodable"] = undecodable
        note = _note(found, start, len(lines), undecodable)
        return result | ({"note": note} if note else {})

    @failures_as_results
    def write_file(self, context: ToolContext, path: str, content: str) -> Result:
        """Write `content` to a file, replacing its whole content. Missing folders are created.

        Args:
            path: The file, relative to the workspace.
            content: The whole new content.
        """
        workspace, data = self._workspace(context), _encode(content)
        with workspace.editing:
            created = workspace.write_bytes(path, data)
        return {"path": path, "bytes": len(data), "created": created}

    @failures_as_results
    def edit_file(self, context: ToolContext, path: str, old: str, new: str, replace_all: bool = False) -> Result:
        """Replace a piece of text in a file. The piece must occur exactly once, unless `replace_all` is set.

        Args:
            path: The file, relative to the workspace.
            old: The exact text to replace, white space and line ends included. Add lines around it until it is unique.
            new: The text to put in its place. May be empty.
            replace_all: Replace every occurrence.
        """
        before, after = _encode(old), _encode(new)
        if not before or before == after:
            raise CannotDo("`old` is empty or the same as `new`, so there is nothing to replace. Give the exact text to replace.")
        workspace = self._workspace(context)
        with workspace.editing:
            data = workspace.read_bytes(path, limit=_READABLE)
            places = _places(data, before)
            if not places:
                raise CannotDo(f"`old` does not occur in {quoted_path(path)}. {_hint(data, before)}")
            if len(places) > 1 and not replace_all:
                raise CannotDo(
                    f"`old` occurs {len(places)} times in {quoted_path(path)}, at lines {_numbers(places)}. Add lines around it to make it"
                    " unique, or set replace_all."
                )
            size = len(data) + len(places) * (len(after) - len(before))
            if size > _READABLE:
                raise CannotDo(
                    f"{quoted_path(path)} would have {size:,} bytes after {len(places):,} replacements; {_READABLE:,} is the limit."
                    " Nothing was changed. Replace less."
                )
            workspace.write_bytes(path, data.replace(before, after))
        return {"path": path, "replacements": len(places), "lines": places[:100]}

    @failures_as_results
    def list_files(self, context: ToolContext, path: str = ".", depth: int = 1) -> Result:
        """List the names in a folder. Version control folders and installed packages are listed without their contents.

        Args:
            path: The folder, relative to the workspace.
            depth: 1 lists the folder itself, 2 also the contents of its folders, and so on.
        """
        workspace = self._workspace(context)
        if workspace.kind(path) == "file":
            raise CannotDo(f"{quoted_path(path)} is a file, not a folder. Read it with read_file.")
        found: list[Result] = []
        truncated, kept_back = False, 0
        with workspace.folder(path):
            for entry in workspace.walk(path, depth=max(1, min(depth, 20)), limit=_LISTED, shallow=True):
                if entry is None:
                    truncated = True
                    break
                if not context.may_visit(entry.path, entry.size or 0):
                    kept_back += 1
                    continue
                found.append({"path": entry.path, "kind": entry.kind} | ({} if entry.size is None else {"bytes": entry.size}))
        return {"path": path, "entries": found, "truncated": truncated} | describe_withheld(kept_back)

    @failures_as_results
    def glob_files(self, context: ToolContext, pattern: str, path: str = ".") -> Result:
        """Find files by name. Leaves out what .gitignore names, version control and installed packages.

        Args:
            pattern: Relative to `path`: `*` and `?` stay within one name, `**` spans folders, as in `src/**/*.py`.
            path: The folder to search, relative to the workspace.
        """
        workspace = self._workspace(context)
        folder = workspace.normalise(path)
        if folder and pattern.startswith("/"):
            raise CannotDo(f"{quoted_path(pattern)} does not begin in {quoted_path(path)}. Give a pattern that is relative to `path`.")
        found = workspace.glob(f"{escape(folder)}/{pattern}" if folder else pattern, limit=_LISTED)
        paths = [entry.path for entry in found.entries if context.may_visit(entry.path, entry.size or 0)]
        answer: Result = {"pattern": pattern, "paths": paths, "truncated": found.truncated}
        return answer | describe_withheld(len(found.entries) - len(paths))

    @failures_as_results
    def grep_files(
        self,
        context: ToolContext,
        pattern: str,
        path: str = ".",
        glob: str | None = None,
        regex: bool = False,
        ignore_case: bool = False,
        max_matches: int = 100,
    ) -> Result:
        """Find text in files.

        Leaves out files that .gitignore names, version control, installed packages, binary and very large files.

        Args:
            pattern: The text to find, or a regular expression if `regex` is set.
            path: The file or folder to search, relative to the workspace.
            glob: Search only files whose path matches, as in `**/*.py`.
            regex: Treat `pattern` as a Python regular expression; `^` and `$` match at lines. Stopped after 10 seconds
                of matching.
            ignore_case: Ignore the difference between upper and lower case.
            max_matches: The maximum number of matching lines to return, up to 500.
        """
        if not pattern:
            raise CannotDo("`pattern` is empty. Give the text to find; glob_files finds files by name.")
        search = Search(self._workspace(context), stopped=lambda: context.signal.aborted, may_visit=context.may_visit, index=self._index)
        return search.run(pattern, path, glob=glob, regex=regex, ignore_case=ignore_case, most=max(1, min(max_matches, 500)))


def _note(found: TextPage, start: int, total: int, undecodable: int) -> str:
    """Return a note on what the page leaves out or cannot show. Empty if the page is a whole file of valid text."""
    notes = []
    after = start + found.lines
    if not total:
        notes.append("The file is empty.")
    elif start >= total:
        notes.append(f"There is nothing at this offset: the file has {total:,} lines, and offset={start} skips all of them.")
    elif found.lines < total:
        rest = f"continue with offset={after}" if after < total else "this is the end"
        notes.append(f"Lines {start + 1:,} to {after:,} of {total:,}; {rest}.")
    if found.cut_line:
        notes.append(f"Line {start + 1} has {found.cut_line:,} bytes; only its beginning is shown. grep_files finds text further on.")
    if undecodable:
        notes.append(f"{undecodable:,} places are not UTF-8 and are shown as \ufffd.")
    return f"[{' '.join(notes)}]" if notes else ""


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CannotDo(f"The text has a lone surrogate at character {error.start}, which no file can hold. Send it without.") from error


def _places(data: bytes, piece: bytes) -> list[int]:
    """Return the number, from 1, of each line on which `piece` begins.

    Occurrences do not overlap, as in `bytes.replace`.
    """
    found: list[int] = []
    line, last = 1, 0
    at = data.find(piece)
    while at >= 0:
        line += data.count(b"\n", last, at)
        last = at
        found.append(line)
        at = data.find(piece, at + len(piece))
    return found


def _numbers(places: list[int]) -> str:
    return ", ".join(str(line) for line in places[:_NEAR]) + (" …" if len(places) > _NEAR else "")


def _hint(data: bytes, piece: bytes) -> str:
    """Return a hint on why `piece` was not found: other line ends, other white space, or a match of its first line."""
    if b"\r\n" in data and b"\r\n" not in piece and b"\n" in piece:
        return "The file ends its lines with \\r\\n and `old` with \\n: use \\r\\n in `old` and `new`."
    first = next((line.strip() for line in piece.split(b"\n") if line.strip()), b"")
    near = _places(data, first) if first else []
    if near and first != piece:
        return f"Its first line occurs at lines {_numbers(near)}: read the file there and copy the text exactly, white space included."
    return "Read the file and copy the text exactly, white space included."
