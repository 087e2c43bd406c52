"""One class name means one thing in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[1] / "src" / "callgate"
NOT_YET_RENAMED: Final = "Two things share the name until one of them is renamed."


class Twice(NamedTuple):
    """A name that more than one class has."""

    classes: int
    reason: str


DUPLICATES: Final[dict[str, Twice]] = {
    "Allowed": Twice(2, NOT_YET_RENAMED),
    "Answer": Twice(2, NOT_YET_RENAMED),
    "Answered": Twice(3, NOT_YET_RENAMED),
    "Bounded": Twice(2, NOT_YET_RENAMED),
    "Call": Twice(4, NOT_YET_RENAMED),
    "Desk": Twice(2, NOT_YET_RENAMED),
    "Difference": Twice(2, NOT_YET_RENAMED),
    "Draft": Twice(2, NOT_YET_RENAMED),
    "End": Twice(2, NOT_YET_RENAMED),
    "Ended": Twice(3, NOT_YET_RENAMED),
    "Entry": Twice(2, NOT_YET_RENAMED),
    "Finished": Twice(2, NOT_YET_RENAMED),
    "Found": Twice(2, NOT_YET_RENAMED),
    "Frames": Twice(2, NOT_YET_RENAMED),
    "Ground": Twice(2, NOT_YET_RENAMED),
    "Interrupted": Twice(2, NOT_YET_RENAMED),
    "Judge": Twice(2, NOT_YET_RENAMED),
    "Known": Twice(3, NOT_YET_RENAMED),
    "Ledger": Twice(2, NOT_YET_RENAMED),
    "Link": Twice(2, NOT_YET_RENAMED),
    "Notes": Twice(2, NOT_YET_RENAMED),
    "OpenMessage": Twice(2, NOT_YET_RENAMED),
    "PassBegan": Twice(2, NOT_YET_RENAMED),
    "Pending": Twice(3, NOT_YET_RENAMED),
    "Piece": Twice(2, NOT_YET_RENAMED),
    "Place": Twice(2, NOT_YET_RENAMED),
    "Plan": Twice(2, NOT_YET_RENAMED),
    "TaskQueue": Twice(2, NOT_YET_RENAMED),
    "Question": Twice(2, NOT_YET_RENAMED),
    "Reader": Twice(2, NOT_YET_RENAMED),
    "Reading": Twice(2, NOT_YET_RENAMED),
    "Received": Twice(2, NOT_YET_RENAMED),
    "Record": Twice(2, NOT_YET_RENAMED),
    "Refused": Twice(2, NOT_YET_RENAMED),
    "Said": Twice(2, NOT_YET_RENAMED),
    "Settling": Twice(2, NOT_YET_RENAMED),
    "Shown": Twice(3, NOT_YET_RENAMED),
    "Start": Twice(2, NOT_YET_RENAMED),
    "Started": Twice(2, NOT_YET_RENAMED),
    "Tail": Twice(2, NOT_YET_RENAMED),
    "Thought": Twice(3, NOT_YET_RENAMED),
    "Work": Twice(3, NOT_YET_RENAMED),
    "Writing": Twice(2, NOT_YET_RENAMED),
    "_Block": Twice(2, NOT_YET_RENAMED),
    "_Body": Twice(3, NOT_YET_RENAMED),
    "_Ids": Twice(2, NOT_YET_RENAMED),
    "_Job": Twice(3, NOT_YET_RENAMED),
    "_Line": Twice(2, NOT_YET_RENAMED),
    "_Reading": Twice(3, NOT_YET_RENAMED),
    "_Running": Twice(2, NOT_YET_RENAMED),
    "_Walk": Twice(2, NOT_YET_RENAMED),
}
"""Every name that stands for several classes, nested and private ones included, with how many there are and why. Keep it short."""


def places_by_name() -> dict[str, list[str]]:
    """Where each class of the package is defined, by the class's name."""
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    return places


def test_no_class_name_means_two_things() -> None:
    wrong = [
        f"{name} names {len(places)} classes, DUPLICATES says {DUPLICATES[name].classes if name in DUPLICATES else 1}: {', '.join(places)}"
        for name, places in places_by_name().items()
        if len(places) > (DUPLICATES[name].classes if name in DUPLICATES else 1)
    ]
    assert not wrong, "Rename all but one:\n" + "\n".join(wrong)


def test_the_table_of_duplicates_is_not_stale() -> None:
    places = places_by_name()
    stale = [
        f"{name}: {len(places.get(name, ()))} classes" for name, twice in DUPLICATES.items() if len(places.get(name, ())) != twice.classes
    ]
    assert not stale, "Correct or remove these entries of DUPLICATES:\n" + "\n".join(stale)


def test_each_duplicate_has_a_reason() -> None:
    assert not [name for name, twice in DUPLICATES.items() if twice.classes < 2 or not twice.reason]
