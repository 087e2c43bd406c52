"""Deliberate mode: a turn offers only the tools that its message asks for.

`plan` is a pure function: it takes the text of a message and returns an allowlist of tools. The `resolve` stage of the engine applies the
allowlist to each call; this module only makes it, writes the reasons to the thought log, and keeps a tool that was used with success
exposed for a few turns (`Retention`). `trigger_phrases` compares phrases with the text. Knows no model and runs no tool.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from callgate._abort_signals import FAILURES
from callgate._option_checks import Options, Whole
from callgate.agent.run_events import Notice
from callgate.agent.run_result import Exposed, Match
from callgate.agent.trigger_phrases import Trigger, Wording, compile_triggers, first_match
from callgate.argument_checks import matching_name
from callgate.calls import Answered, Outcome, Restarted, Scope, Text, ToolResult
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from callgate.tools import ToolRegistry

__all__ = ["AGAIN", "Deliberate", "Deliberation", "Exposure", "Retention", "plan"]

_MOST_TURNS = 10
_MOST_TOOLS = 256


class Retention:
    """Keeps tools that were used with success exposed for a few more turns of their conversation. Thread-safe.

    Args:
        turns: The number of turns for which a tool stays exposed after the turn in which it succeeded; clamped to 0 to
            10.
        conversations: The maximum number of remembered conversations; the least recently used one is dropped first.
    """

    def __init__(self, turns: int = 4, *, conversations: int = 1_000) -> None:
        self.turns = max(0, min(_MOST_TURNS, int(turns)))
        self._most = conversations
        self._kept: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._lock = threading.Lock()

    def names(self, conversation: str) -> frozenset[str]:
        """Return the tools that are still exposed, without using up one of their turns."""
        with self._lock:
            return frozenset(self._kept.get(conversation, ()))

    def begin_turn(self, conversation: str) -> frozenset[str]:
        """Return the tools that are still exposed in this turn, and use up one turn of each."""
        with self._lock:
            kept = self._kept.get(conversation)
            if kept is None:
                return frozenset()
            left = {tool: turns - 1 for tool, turns in kept.items() if turns > 1}
            if left:
                self._kept[conversation] = left
                self._kept.move_to_end(conversation)
            else:
                del self._kept[conversation]
            return frozenset(kept)

    def extend(self, conversation: str, tool: str) -> None:
        """Keep a tool exposed for the full number of turns, because it succeeded in the current turn."""
        if self.turns == 0:
            return
        with self._lock:
            kept = self._kept.setdefault(conversation, {})
            self._kept.move_to_end(conversation)
            kept.pop(tool, None)
            kept[tool] = self.turns
            if len(kept) > _MOST_TOOLS:
                del kept[next(iter(kept))]
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def forget(self, conversation: str) -> None:
        """Forget a conversation that has ended."""
        with self._lock:
            self._kept.pop(conversation, None)


log = logging.getLogger("callgate")

AGAIN: tuple[str, ...] = (
    r"/\b(do|run|try|make|send|play|show) (it|that|this|them|those|one|the same)( \w+)? again\b/",
    r"/\b(once|one) more( time)?\b/",
    r"/\bsame (but|again|thing|one|with|for|as)\b/",
    r"/\A\W*(again|another( one)?|repeat|redo|retry|encore|the same)\b/",
    r"/\b(repeat|redo|retry) (it|that|this|them|the last)\b/",
)
"""English phrases that ask for something that was done before. Give your own for other languages."""
_LOOK_BACK = 8
_MOST_LOOKED_AT = 256


class Deliberate(Options, frozen=True, kw_only=True):
    """The operator's settings of deliberate mode for one agent. Tools only declare their triggers."""

    active: bool = True
    """Whether the mode is on for runs that do not specify it."""
    turns: Whole = 4
    """The number of further turns for which a tool stays exposed after a success; 0 to 10."""
    always: frozenset[str] = frozenset()
    """Tools that are offered in every turn."""
    triggers: Mapping[str, tuple[str, ...]] = {}
    """Additional phrases by tool name, in the format of `Tool.triggers`."""
    again: tuple[str, ...] = AGAIN
    """Phrases by which a message asks for the tools that were used shortly before."""
    thought_log: Callable[[str, Notice], None] | None = None
    """Called with the conversation and each hidden notice. Must not show it to users. Exceptions from it are logged."""


def plan(
    text: str,
    triggers: Mapping[str, Sequence[Trigger]],
    *,
    more: Mapping[str, Sequence[Trigger]] | None = None,
    forced: Iterable[str] = (),
    retained: Iterable[str] = (),
    recent: Iterable[str] = (),
    again: Sequence[Trigger] = (),
) -> Exposed:
    """Return the tools that a turn offers, and the phrase by which the message matched each of them.

    Args:
        text: The user's message.
        triggers: The triggers that each tool declares. A tool without an entry is never offered.
        more: The operator's triggers.
        forced: Tools to offer whatever the text says.
        retained: Tools to offer because they were used with success in an earlier turn.
        recent: Tools to offer if the text asks for something that was done before.
        again: The phrases that ask for something that was done before.
    """
    wording = Wording.of(text)
    repeated = first_match(again, wording)
    recent = frozenset(recent) if repeated is not None else frozenset()
    matches: dict[str, Match] = {}
    for name, own in triggers.items():
        if (found := first_match(own, wording)) is not None:
            matches[name] = Match(tool=name, phrase=found.text, source="always" if found.kind == "always" else "tool")
        elif more and (found := first_match(more.get(name, ()), wording)) is not None:
            matches[name] = Match(tool=name, phrase=found.text, source="operator")
        elif repeated is not None and name in recent:
            matches[name] = Match(tool=name, phrase=repeated.text, source="follow_up")
    allowed = frozenset(matches) | frozenset(forced) | frozenset(retained)
    return Exposed(allowed=allowed & triggers.keys(), matches=matches)


class Exposure:
    """The tools that one turn offers. Records when one of them is used."""

    def __init__(self, exposed: Exposed, owner: Deliberation, *, leaves_trace: bool = True) -> None:
        self.exposed = exposed
        self._owner = owner
        self._leaves_trace = leaves_trace

    def scope(self, scope: Scope) -> Scope:
        """Return the scope with this turn's allowlist."""
        return replace(scope, deliberate=True, allowed_tools=self.exposed.allowed)

    def record_use(self, conversation: str, result: ToolResult) -> None:
        """Record a call's result: keep its tool exposed if it succeeded, and tell the thought log why the tool was offered."""
        name = self._owner.name_of(result.name)
        if name not in self.exposed.allowed:
            return
        if self._leaves_trace and result.success:
            self._owner.retention.extend(conversation, name)
        match = self.exposed.matches.get(name)
        if match is not None:
            self._owner.note_thought(conversation, _notice(match))

    def notices(self, calls: Sequence[ToolCall], outcomes: Sequence[Outcome | None]) -> Iterator[Notice]:
        """Yield a notice for each of these calls that says why its tool was offered, for the listener of the run."""
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, (Answered, Restarted)):
                name = self._owner.name_of(outcome.result.name if isinstance(outcome, Answered) else call.name)
                if name in self.exposed.allowed and (match := self.exposed.matches.get(name)) is not None:
                    yield _notice(match)


class Deliberation:
    """Deliberate mode of one agent: the compiled phrases, and the retained tools of each conversation.

    Raises:
        UsageError: A trigger cannot be used.
    """

    def __init__(self, settings: Deliberate, tools: ToolRegistry) -> None:
        self.settings = settings
        self.retention = Retention(settings.turns)
        self._tools = tools
        self._again = compile_triggers(settings.again, "Deliberate.again") if settings.active else None
        self._more = {name: compile_triggers(given, f"Deliberate.triggers[{name!r}]") for name, given in settings.triggers.items()}
        self._known: dict[str, tuple[object, tuple[Trigger, ...]]] = {}
        self._registered_names(self._more, "Deliberate.triggers")
        self._registered_names(settings.always, "Deliberate.always")
        self._triggers()

    def begin(
        self,
        message: UserMessage,
        history: Sequence[Message],
        scope: Scope,
        *,
        active: bool | None = None,
        expose: Iterable[str] = (),
        leaves_trace: bool = True,
    ) -> Exposure | None:
        """Plan a turn. Return None if the mode is off, or if the scope already has an allowlist from the host.

        Args:
            message: The user's message.
            history: The conversation before it.
            scope: The scope of the turn.
            active: On or off for this turn; None: as configured.
            expose: Tools that this turn offers whatever the message says.
            leaves_trace: Whether the turn counts for `Retention`.

        Raises:
            UsageError: A trigger cannot be used, or no tool has a name in `expose`.
        """
        forced = self._registered_names((*expose, *self.settings.always), "run(expose=...)")
        planned = scope.deliberate and scope.allowed_tools is not None
        if planned or not (self.settings.active if active is None else active):
            return None
        keep = self.retention
        retained = keep.begin_turn(scope.conversation) if leaves_trace else keep.names(scope.conversation)
        exposed = plan(
            _text(message),
            self._triggers(),
            more=self._more,
            forced=forced,
            retained=retained,
            recent=filter(None, map(self.name_of, _recently_used(history))),
            again=self._repeat_triggers(),
        )
        return Exposure(exposed, self, leaves_trace=leaves_trace)

    def restore(self, exposed: Exposed | None, *, leaves_trace: bool) -> Exposure | None:
        """Return the exposure of a turn that is resumed: the tools that it offered when it began."""
        return Exposure(exposed, self, leaves_trace=leaves_trace) if exposed is not None else None

    def note_thought(self, conversation: str, notice: Notice) -> None:
        """Write a notice to the thought log. If the log raises, the exception is logged and ignored."""
        if self.settings.thought_log is not None:
            try:
                self.settings.thought_log(conversation, notice)
            except FAILURES:
                log.warning("The thought log did not take a notice", exc_info=True)

    def _repeat_triggers(self) -> tuple[Trigger, ...]:
        """Return the compiled phrases that ask for a repeat; compiled on first use if the mode is off by default."""
        if self._again is None:
            self._again = compile_triggers(self.settings.again, "Deliberate.again")
        return self._again

    def _triggers(self) -> dict[str, tuple[Trigger, ...]]:
        """Return every tool's compiled triggers; each is compiled once, and again if the tool was replaced."""
        known: dict[str, tuple[object, tuple[Trigger, ...]]] = {}
        for bound in self._tools:
            declared = bound.tool.triggers
            kept = self._known.get(bound.name)
            if kept is None or kept[0] is not declared:
                kept = (declared, compile_triggers(declared, f"tool '{bound.name}' ({bound.tool.where()})"))
            known[bound.name] = kept
        self._known = known
        return {name: compiled for name, (_, compiled) in known.items()}

    def _registered_names(self, names: Iterable[str], where: str) -> frozenset[str]:
        """Return the registered names of these tools. Raise `UsageError` if a name belongs to no tool."""
        found: set[str] = set()
        for name in names:
            tool = self._tools.get(name)
            if tool is None:
                raise UsageError(f"{where} has '{name[:80]}', and no tool has this name. Register it first, or correct the name.")
            found.add(tool.name)
        return frozenset(found)

    def name_of(self, written: str) -> str:
        """Return the registered name of the tool that a model meant; empty if there is none."""
        tool = self._tools.get(written) or self._tools.get(matching_name(written, self._tools.names()) or "")
        return tool.name if tool is not None else ""


def _text(message: UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.content if isinstance(part, Text))


def _recently_used(history: Sequence[Message]) -> frozenset[str]:
    """Return the tools that were used with success in the last few messages; results do not count as messages."""
    names: set[str] = set()
    seen = 0
    for index in range(len(history) - 1, max(-1, len(history) - 1 - _MOST_LOOKED_AT), -1):
        message = history[index]
        if isinstance(message, ToolMessage) and not message.is_error:
            names.add(message.name)
        seen += isinstance(message, (UserMessage, AssistantMessage))
        if seen >= _LOOK_BACK:
            break
    return frozenset(names)


def _notice(match: Match) -> Notice:
    phrase, tool = (" ".join(text.replace("`", "'").split()) for text in (match.phrase, match.tool))
    why = {
        "tool": f"the message matches its trigger `{phrase}`",
        "operator": f"the message matches the operator's trigger `{phrase}`",
        "follow_up": f"the message asks for what was done before (`{phrase}`)",
        "always": f"its trigger `{phrase}` offers it in every turn",
    }
    return Notice("trigger", f"Deliberate mode offered `{tool}`: {why[match.source]}.", hidden=True)
