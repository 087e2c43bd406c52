"""The markers in a model's text: the literals that have a meaning, and their meanings.

Collected from the dialects. Literals that also occur in ordinary text count only at the start of a line; the others
count everywhere. Compiled patterns find the markers, and sets of prefixes tell whether the end of the text so far may
become one. Knows nothing of what follows a marker.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile

from msgspec.structs import replace

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.families import ALL_DIALECTS

__all__ = ["ANSWER_TAGS", "CODE_FENCE", "END_MARKERS", "FINAL_ANSWERS", "OBSERVATIONS", "OTHERS_TEXT", "Markers", "markers_for"]

CODE_FENCE = "```"
FINAL_ANSWERS = frozenset({"Final Answer:", "**Final Answer:**", "**Final Answer**:"})
OBSERVATIONS = frozenset({"Observation:", "**Observation:**", "**Observation**:", *(f"Observation {number}:" for number in range(1, 10))})
END_MARKERS = frozenset(
    {"</s>", "<eos>", "</function>", "</function_calls>", "</minimax:tool_call>", "</seed:tool_call>", "</tool_call>", "</tool_calls>"},
)
"""Markers that end a message or a call. Directly after a call they are ignored, because models may write them twice.
Elsewhere they are text.
"""
ANSWER_TAGS = {"<response>": "</response>", "<answer>": "</answer>"}
"""Tags that some models put around an answer after their reasoning."""
_RESULT_TAGS = ("tool_response", "tool_result", "tool_results", "tool_output", "function_response", "function_result", "function_results")
_DEEPSEEK_OUTPUTS = tuple(f"<{bar}tool{gap}output{gap}{{}}{bar}>" for bar in "\uff5c|" for gap in "\u2581_ ")
_OTHER_TURNS = (
    "<start_of_turn>user",
    "<|turn>user",
    "<|user|>",
    "<\uff5cUser\uff5c>",
    "<|User|>",
    "<\uff5chy_User\uff5c>",
    "<|im_user|>",
    "<|im_system|>",
    "<|im_start|>environment",
    "<|user_start|>",
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
    "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>",
    "[|user|]",
    "</s>[INST]",
    "</s> [INST]",
    "<role>HUMAN</role>",
    "<role>OBSERVATION</role>",
)
_ROLES = ("user", "tool", "system", "developer", "function", "ipython", "tool_response")
OTHERS_TEXT = {
    **{f"<{tag}>": f"</{tag}>" for tag in _RESULT_TAGS},
    **{form.format("begin"): form.format("end") for form in _DEEPSEEK_OUTPUTS},
    "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
    "<|START_TOOL_RESULT|>": "<|END_TOOL_RESULT|>",
    "<|tool_response_start|>": "<|tool_response_end|>",
    "<|tool_response>response:": "<tool_response|>",
    "<start_function_response>response:": "<end_function_response>",
    **{f"<|im_start|>{role}\n": "" for role in _ROLES},
    **{f"<|start_header_id|>{role}<|end_header_id|>": "" for role in _ROLES},
    **{f"<|start_of_role|>{role}<|end_of_role|>": "" for role in _ROLES},
    **{f"<|header_start|>{role}<|header_end|>": "" for role in _ROLES},
    **{f"<|start|>{role}": "" for role in ("user", "system", "developer", "functions.", "tool")},
    **{f"{start}{role}": "" for start in ("<seed:bos>", "]~b]") for role in ("user", "tool", "system")},
    **{f"{role}<|role_sep|>": "" for role in ("user", "function result")},
    **dict.fromkeys(_OTHER_TURNS, ""),
    "<|observation|>": "<|assistant|>",
}
"""Markers of text that is not the model's own, and the markers that end it: results of tools, and turns of other roles. A turn has no end,
because a model that writes the turn of another role invents all that follows.
"""
_IGNORED = (
    "<|im_end|>",
    "<|im_start|>assistant",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|start_of_role|>assistant<|end_of_role|>",
    "<start_of_turn>model",
    "<|assistant|>",
    "<\uff5cAssistant\uff5c>",
    "<\uff5chy_Assistant\uff5c>",
    "<|im_assistant|>assistant<|im_middle|>",
    "<seed:bos>assistant",
    "]~b]ai",
    "[|assistant|]",
    "[|endofturn|]",
    "<role>ASSISTANT</role>",
    *sorted(END_MARKERS),
)
_FALLBACK_DIALECTS = frozenset({"bare-json", "fenced-json"})
"""The dialects that read the fallback format."""
_REASONING_PAIRS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>"), ("<thought>", "</thought>"))


class Markers:
    """The markers of some dialects."""

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        self.dialects: dict[str, list[Dialect]] = {}
        """Dialects by opener. Those that need no opener at the start of a message have the key `""`."""
        unopened = list[Dialect]()
        self.ignored = set(_IGNORED)
        self.reasoning: dict[str, frozenset[str]] = {}
        pairs = [*_REASONING_PAIRS]
        line_start = {CODE_FENCE, *FINAL_ANSWERS, *OBSERVATIONS}
        for dialect in dialects:
            if dialect.read_first is not None:
                unopened.append(replace(dialect, read=dialect.read_first, line_start_only=True))
            for opener in dialect.openers:
                self.dialects.setdefault(opener, []).append(dialect)
            self.ignored.update(dialect.ignored_markers)
            pairs += dialect.reasoning_markers
            line_start.update(dialect.openers if dialect.line_start_only else ())
        for opener, closer in pairs:
            if opener:
                self.reasoning[opener] = self.reasoning.get(opener, frozenset()) | {closer}
        self.closers = frozenset(closer for _, closer in pairs)
        self.line_start = frozenset(literal for literal in line_start if all(one.line_start_only for one in self.dialects.get(literal, ())))
        literals = {*self.dialects, *self.ignored, *self.reasoning, *self.closers, *self.line_start, *ANSWER_TAGS, *ANSWER_TAGS.values()}
        literals.update(OTHERS_TEXT, filter(None, OTHERS_TEXT.values()))
        anywhere = literals - self.line_start
        self.anywhere = re.compile(_join_alternatives(_drop_longer_literals(anywhere)))
        self.at_line_start = re.compile(rf"(?:\n[ \t]*|[.!?] ?)({_join_alternatives(_drop_longer_literals(self.line_start))})")
        self.at_cursor = re.compile(rf"\s*({_join_alternatives(_drop_longer_literals(self.line_start))})")
        self.prefixes = _collect_prefixes(anywhere)
        self.line_start_prefixes = _collect_prefixes(self.line_start)
        self.max_chars = max(map(len, literals))
        self.dialects[""] = unopened
        ordered = sorted(literals)
        self._by_prefix = {
            short: _starting_with(short, ordered) for short in (*_drop_longer_literals(anywhere), *_drop_longer_literals(self.line_start))
        }

    def starting_with(self, literal: str) -> list[str]:
        """Return the literals that begin with this one, the longest first."""
        return self._by_prefix[literal]


def _starting_with(prefix: str, ordered: list[str]) -> list[str]:
    """Return the literals that begin with this one, the longest first. In a sorted list they are neighbours."""
    found = takewhile(lambda one: one.startswith(prefix), ordered[bisect_left(ordered, prefix) :])
    return sorted(found, key=len, reverse=True)


def _drop_longer_literals(literals: Iterable[str]) -> list[str]:
    """Return the literals of which no other literal is a prefix."""
    known = set(literals)
    return sorted(one for one in known if not any(one[:end] in known for end in range(1, len(one))))


def _join_alternatives(literals: Iterable[str]) -> str:
    return "|".join(map(re.escape, literals))


def _collect_prefixes(literals: Iterable[str]) -> frozenset[str]:
    return frozenset(one[:end] for one in literals for end in range(1, len(one)))


@lru_cache(maxsize=64)
def markers_for(hint: str | None, *, fallback_taught: bool = False) -> Markers:
    """Return the markers of all dialects, with those of the hinted dialect first.

    If the fallback was taught, other dialects without markers are left out.
    """
    chosen = [_apply_hint(one) if one.name == hint else one for one in ALL_DIALECTS if not one.hint_only or one.name == hint]
    if fallback_taught:
        chosen = [one for one in chosen if not one.is_unmarked or one.name in _FALLBACK_DIALECTS]
    return Markers(sorted(chosen, key=lambda one: one.name != hint))


def _apply_hint(dialect: Dialect) -> Dialect:
    return dialect if dialect.read_hinted is None else replace(dialect, line_start_only=False, read=dialect.read_hinted)
