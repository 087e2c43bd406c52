"""Write the note for the model about calls that were killed and an answer that was cut off, before the next request.

A killed call is not in the conversation, so without a word the model would make it again. A provider refuses a conversation that ends
with an answer, such as one that a stop has cut off. Pure.
"""

from __future__ import annotations

from callgate._terminal_text import one_line
from callgate.agent.history import History
from callgate.messages import AssistantMessage

__all__ = ["interruption_note"]

_KILLED = "These calls were ended while they ran. They may have taken effect: check the real state before you repeat one."
_CUT = "Your last message was interrupted. Continue the task."
_ARGUMENTS = 400
"""At most so many characters of a killed call's arguments are repeated."""


def interruption_note(history: History, *, asks_again: bool) -> str:
    """Return the text of the note; empty if there is nothing to say.

    Args:
        history: The conversation.
        asks_again: Whether the model is asked again without a new message of the user.
    """
    cut = asks_again and bool(history.messages) and isinstance(history.messages[-1], AssistantMessage)
    calls = "\n".join(f"{call.name} {one_line(call.arguments, _ARGUMENTS)}" for call in history.killed)
    return "\n\n".join(filter(None, (f"{_KILLED}\n{calls}" if calls else "", _CUT if cut else "")))
