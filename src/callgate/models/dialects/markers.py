"""What stands in a model's text besides text: which literals mean something, and what.

Made from the dialects. Literals that are ordinary text mean something at the start of a line only; the others wherever they stand. Two
patterns find them, and two sets say which end of an unfinished text may still become one. Knows nothing of what is read behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.families import ALL_DIALECTS

__all__ = ["ANSWER_TAGS", "CODE_FENCE", "END_MARKERS", "FINAL_ANSWERS", "OBSERVATIONS", "Markers", "markers_for"]

CODE_FENCE = "```"
FINAL_ANSWERS = frozenset({"Final Answer:", "**Final Answer:**", "**Final Answer**:"})
OBSERVATIONS = frozenset({"Observation:", "**Observation:**", "**Observation**:", *(f"Observation {number}:" for number in range(1, 10))})
END_MARKERS = frozenset(
    {"</s>", "<eos>", "</function>", "</function_calls>", "</minimax:tool_call>", "</seed:tool_call>", "</tool_call>", "</tool_calls>"},
)
"""End a message or a call, and are text elsewhere: they are nothing only directly behind a call, as where a model writes them twice."""
ANSWER_TAGS = {"<response>": "</response>", "<answer>": "</answer>"}
"""What some put around an answer that follows a thought."""
_SILENT = (
    "<|im_end|>",
    "<|im_start|>assistant",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|start_of_role|>assistant<|end_of_role|>",
    *sorted(END_MARKERS),
)
_TAUGHT = frozenset({"bare-json", "fenced-json"})
"""Those that read the fallback format."""
_THOUGHTS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>"), ("<thought>", "</thought>"))


class Markers:
    """The literals of some dialects."""

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        self.dialects: dict[str, list[Dialect]] = {}
        """By their openers. Those that need none, where a message starts, stand at the empty one."""
        first = list[Dialect]()
        self.silent = set(_SILENT)
        self.thoughts: dict[str, frozenset[str]] = {}
        pairs = [*_THOUGHTS]
        bare = {CODE_FENCE, *FINAL_ANSWERS, *OBSERVATIONS}
        for dialect in dialects:
            if dialect.read_first is not None:
                first.append(replace(dialect, read=dialect.read_first, bare=True))
            for opener in dialect.openers:
                self.dialects.setdefault(opener, []).append(dialect)
            self.silent.update(dialect.silent)
            pairs += dialect.thoughts
            bare.update(dialect.openers if dialect.bare else ())
        for opener, closer in pairs:
            if opener:
                self.thoughts[opener] = self.thoughts.get(opener, frozenset()) | {closer}
        self.closers = frozenset(closer for _, closer in pairs)
        self.bare = frozenset(literal for literal in bare if all(one.bare for one in self.dialects.get(literal, ())))
        everything = {*self.dialects, *self.silent, *self.thoughts, *self.closers, *self.bare, *ANSWER_TAGS, *ANSWER_TAGS.values()}
        anywhere = everything - self.bare
        self.anywhere = re.compile(_alternatives(_shortest(anywhere)))
        self.at_line = re.compile(rf"(?:\n[ \t]*|[.!?] ?)({_alternatives(_shortest(self.bare))})")
        self.here = re.compile(rf"\s*({_alternatives(_shortest(self.bare))})")
        self.unfinished = _beginnings(anywhere)
        self.unfinished_at_line = _beginnings(self.bare)
        self.longest = max(map(len, everything))
        self.dialects[""] = first
        self._longer = {
            short: sorted((one for one in everything if one.startswith(short)), key=len, reverse=True)
            for short in (*_shortest(anywhere), *_shortest(self.bare))
        }

    def beginning_with(self, literal: str) -> list[str]:
        """The literals that begin as this one does, the longest first."""
        return self._longer[literal]


def _shortest(literals: Iterable[str]) -> list[str]:
    """Those that none of the others begins."""
    known = set(literals)
    return sorted(one for one in known if not any(one[:end] in known for end in range(1, len(one))))


def _alternatives(literals: Iterable[str]) -> str:
    return "|".join(map(re.escape, literals))


def _beginnings(literals: Iterable[str]) -> frozenset[str]:
    return frozenset(one[:end] for one in literals for end in range(1, len(one)))


@lru_cache(maxsize=64)
def markers_for(hint: str | None, *, taught: bool = False) -> Markers:
    """The marks of all dialects, that of the hint first; of those without markers, where another form was taught, only the taught one."""
    chosen = [_hinted(one) if one.name == hint else one for one in ALL_DIALECTS if not one.by_hint or one.name == hint]
    if taught:
        chosen = [one for one in chosen if not one.unmarked or one.name in _TAUGHT]
    return Markers(sorted(chosen, key=lambda one: one.name != hint))


def _hinted(dialect: Dialect) -> Dialect:
    return dialect if dialect.read_hinted is None else replace(dialect, bare=False, read=dialect.read_hinted)
