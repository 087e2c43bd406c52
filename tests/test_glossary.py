"""The glossary: each name in it exists, each link text is the title of its target, and the README's pages link to it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import cast, get_args

import pytest

import callgate
from callgate import Engine
from callgate.calls import Category
from callgate.errors import FAILURE_CLASSES
from callgate.events import KINDS
from callgate.loop_decision import TurnStatus
from callgate.stream.pass_result import PassStatus

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/glossary.md"
LITERALS = {*get_args(Category), *get_args(TurnStatus), *get_args(PassStatus), *FAILURE_CLASSES, *KINDS, "ok"}
_LINK = re.compile(r"\[(.+?)\]\(([^)#]+)(#[^)]+)?\)")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def names() -> Iterator[str]:
    for row in rows():
        yield from re.findall(r"`([^`]+)`", row[1])


def found(name: str) -> object:
    """Return the object that a name means. An attribute that only instances of `Engine` have is looked up on an instance."""
    parts, value = name.split("."), cast(object, callgate)
    for place, part in enumerate(parts):
        if inspect.ismodule(value) and not hasattr(value, part):
            value = import_module(".".join(["callgate", *parts[: place + 1]]))
        elif value is Engine and not hasattr(value, part):
            value = getattr(Engine(), part)
        else:
            value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", sorted(set(names())))
def test_every_name_of_the_glossary_exists(name: str) -> None:
    """A name is a literal, an environment variable, an option of a callable, or a public name."""
    if name.startswith('"'):
        assert name.strip('"') in LITERALS
    elif re.fullmatch(r"[A-Z]+_[A-Z_]+", name):
        assert f'"{name}"' in (ROOT / "src/callgate/_limits_from_environment.py").read_text(encoding="utf-8")
    elif option := re.fullmatch(r"([\w.]+)\((\w+)=\.\.\.\)", name):
        assert option[2] in inspect.signature(found(option[1])).parameters  # type: ignore[arg-type]
    else:
        assert not any(part.startswith("_") for part in name.split("."))
        found(name)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_link_text_of_the_glossary_is_the_title_of_its_target(row: list[str]) -> None:
    assert len(row) >= 3
    text, target, anchor = _LINK.fullmatch(row[2]).groups()  # type: ignore[union-attr]
    lines = (PAGE.parent / target).read_text(encoding="utf-8").splitlines()
    titles = [line.lstrip("# ") for line in lines if line.startswith("#")]
    chosen = [title for title in titles if f"#{_slug(title)}" == anchor] if anchor else titles[:1]
    assert chosen == [text]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_page_linked_in_the_glossary_mentions_a_name_from_its_row(row: list[str]) -> None:
    target = _LINK.fullmatch(row[2])[2]  # type: ignore[index]
    page = (PAGE.parent / target).read_text(encoding="utf-8")
    spoken = (re.sub(r"=\.\.\.\)$", "", name.strip('"')) for name in re.findall(r"`([^`]+)`", row[1]))
    assert any(re.split(r"[.(]", name)[-1] in page for name in spoken)


def test_glossary_words_are_sorted_and_unique() -> None:
    words = [re.sub(r"[^a-z0-9 ,]", "", row[0].lower().replace("_", " ")) for row in rows()]
    assert words == sorted(words)
    single = [word.strip() for word in ",".join(words).split(",")]
    assert len(set(single)) == len(single)


@pytest.mark.parametrize("page", ["README.md", "docs/README.md"])
def test_the_glossary_is_linked_from_the_readme_pages(page: str) -> None:
    targets = [target for _, target, _ in _LINK.findall((ROOT / page).read_text(encoding="utf-8"))]
    assert PAGE in [(ROOT / page).parent.joinpath(target).resolve() for target in targets if not target.startswith("http")]


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
