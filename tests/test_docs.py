"""Run every Python block and every `callgate` command of the documentation, and check every relative link.

The Python blocks of a page form one script. A fenced block with a file name after its language is written to that file. A `text` block is
the expected output of the code or the commands before it, line by line in this order; `...` matches any text. A file of `examples/` that a
page links to is copied next to the script.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from callgate.demo import DEMOS
from tests.cli.shell import environment, transcript
from tests.test_requirements import proofs_in
from tests.waiting import COMMAND_S

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FRAGMENTS = ROOT / "changes"
_FENCE = re.compile(r"^```(\w*)[ \t]*(\S*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_EXIT = re.compile(r"#\s*exit code (\d+)")
_SHELL = re.compile(r"[|&;<>$`*?~\\(]")
"""What a shell may have to interpret."""
NOT_RUN = "# not run"
DEMONSTRATED = {f"callgate demo {name}" for name in DEMOS}
"""Commands that `tests/cli/test_demo.py` runs, which checks more of their output than a page shows."""


class Block(NamedTuple):
    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found.groups()) for found in _FENCE.finditer(page.read_text(encoding="utf-8"))]


def runs(block: Block) -> bool:
    return not block.text.startswith(NOT_RUN)


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


GROUPS = {**{ids(page): [page] for page in PAGES}, "changes": sorted(FRAGMENTS.glob("[0-9]*.md"))}
EACH = pytest.mark.parametrize("pages", GROUPS.values(), ids=GROUPS.keys())
"""Each page; the fragments of the changelog, which are a line each, are one test."""
RUNNABLE = [page for page in PAGES if any(runs(block) and block.language in ("python", "sh") for block in blocks(page))]


@pytest.mark.process
@pytest.mark.parametrize("page", RUNNABLE, ids=ids)
def test_the_examples_of_a_page_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    found = blocks(page)
    for block in found:
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    for example in linked_examples(page):
        shutil.copy(example, tmp_path)
    printed = {"python": run_python(found, tmp_path), "sh": ""}
    for before, block in pairwise([Block("", "", ""), *found]):
        if block.language == "sh" and runs(block):
            printed["sh"] = "".join(run_command(line, tmp_path) for line in commands(block))
        if block.language == "text" and before.language in printed:
            printed[before.language] = after(printed[before.language], block)


def linked_examples(page: Path) -> list[Path]:
    linked = ((page.parent / target).resolve() for target in _LINK.findall(page.read_text(encoding="utf-8")))
    return [path for path in linked if path.suffix == ".py" and path.is_relative_to(ROOT / "examples")]


def run_python(found: list[Block], place: Path) -> str:
    code = "\n\n".join(block.text for block in found if block.language == "python" and not block.file and runs(block))
    if not code:
        return ""
    script = place / "page.py"
    script.write_text(code, encoding="utf-8")
    ended, printed = transcript(place, str(script), program="python", **variables(place))
    assert ended == 0, printed
    return printed


def commands(block: Block) -> Iterator[str]:
    """Yield the `callgate` commands of a block. Others, such as `make`, `pip` and `git`, are not run."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("callgate ") and line not in DEMONSTRATED:
            yield line


def run_command(line: str, place: Path) -> str:
    """Run a command as the shell does; one that needs nothing of a shell without it."""
    if _SHELL.search(line):
        code, printed = run(["bash", "-c", line], place)
    else:
        code, printed = transcript(place, *shlex.split(line, comments=True)[1:], **variables(place))
    expected = _EXIT.search(line)
    assert code == (int(expected[1]) if expected else 0), f"{line}\nended with {code}:\n{printed}"
    return printed


def run(command: list[str], place: Path) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=place,
        env=environment(**variables(place)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_S,
    )
    return done.returncode, done.stdout


def variables(place: Path) -> dict[str, str]:
    """Return variables with which `callgate` is found, as if it were installed, and prints wide lines."""
    shim = place / "bin" / "callgate"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m callgate.cli "$@"\n', encoding="utf-8")
    shim.chmod(0o700)
    return {"PATH": f"{shim.parent}:{os.environ['PATH']}", "COLUMNS": "200"}


def after(printed: str, block: Block) -> str:
    """Return the output after the lines of `block`, which must occur in this order."""
    for line in block.text.splitlines():
        place = 0
        for piece in filter(None, (part.strip() for part in line.split("..."))):
            at = printed.find(piece, place)
            assert at >= 0, f"{piece!r} is not in the output:\n{printed}"
            place = at + len(piece)
        printed = printed[place:]
    return printed


@EACH
def test_every_relative_link_has_a_target(pages: list[Path]) -> None:
    for page in pages:
        assert [target for target in _LINK.findall(prose(page)) if not has_target(page, target)] == [], ids(page)


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def has_target(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    there = (page.parent / path).resolve() if path else page
    return there.exists() and (not anchor or anchor in anchors(there))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or not page.exists() or page.suffix != ".md":
            continue
        seen.add(page)
        targets = (target.partition("#")[0] for target in _LINK.findall(page.read_text(encoding="utf-8")))
        waiting += [(page.parent / target).resolve() for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert {ids(page) for page in PAGES} <= {ids(page) for page in seen}


@EACH
def test_every_test_that_a_page_names_exists(pages: list[Path]) -> None:
    for page in pages:
        for name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
            assert name[1] in proofs_in(name[0]), (ids(page), name)


NOT_FRAGMENTS = {"README.md", "template.md"}


def test_each_changelog_fragment_is_one_line_and_named_by_number_and_kind() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    fragments = [file for file in FRAGMENTS.iterdir() if file.name not in NOT_FRAGMENTS]
    for fragment in fragments:
        assert re.fullmatch(rf"\d{{3,4}}\.({kinds})\.md", fragment.name)
        assert len(fragment.read_text(encoding="utf-8").strip().splitlines()) == 1, fragment.name
    numbers = Counter(fragment.name.partition(".")[0] for fragment in fragments)
    assert not [number for number, count in numbers.items() if count > 1]


def test_changelog_fragments_become_the_newest_section_of_the_changelog(tmp_path: Path) -> None:
    for file in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / file, tmp_path)
    (tmp_path / "changes").mkdir()
    shutil.copy(FRAGMENTS / "template.md", tmp_path / "changes")
    (tmp_path / "changes" / "001.added.md").write_text("A `thing` is there.\n", encoding="utf-8")
    (tmp_path / "changes" / "002.fixed.md").write_text("Another is mended.\n", encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True, timeout=COMMAND_S)
    towncrier = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.0", "--date", "2030-01-02"]
    done = subprocess.run(towncrier, cwd=tmp_path, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stderr
    section = "## 9.9.0 (2030-01-02)\n\n### Added\n\n- A `thing` is there.\n\n### Fixed\n\n- Another is mended.\n\n## 0.1.0"
    assert section in (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [file.name for file in (tmp_path / "changes").iterdir()] == ["template.md"]


def test_every_installed_dependency_is_listed_in_third_party_md() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name not in ("dev", "mutants") for line in lines]
    wanted = {re.split(r"[<>=\[ ]", line)[0] for line in [*project["dependencies"], *extras]}
    assert wanted == set(re.findall(r"^\| ([a-z][\w-]+) \|", (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8"), re.MULTILINE)) - {
        "distribution"
    }


@EACH
def test_a_page_contains_no_local_path_and_no_install_from_the_package_index(pages: list[Path]) -> None:
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/(?:work|home|root|Users)/", text), ids(page)
        assert "pip install callgate" not in text, ids(page)
