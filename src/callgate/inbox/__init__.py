"""Send messages to a run from another process: answer its questions, settle its calls, stop it, or kill it.

A message is stored in the journal's inbox. The process that works on the run records the message in an event, exactly
once, and acts on it at once. If no process works on the run, the message waits for the next process that does. Each
message is checked against the record before it is sent, and refused if it does not fit the state of the run. This
module runs no calls and needs no engine.
"""

from callgate.inbox._pending_approvals import PendingApproval, waiting
from callgate.inbox._recorded_answers import SentAnswer
from callgate.inbox._sent_messages import CallToRepeat, MessageOutcome, SentMessage, approve, deny, kill, outcome, settle, stop

__all__ = [
    "CallToRepeat",
    "MessageOutcome",
    "PendingApproval",
    "SentAnswer",
    "SentMessage",
    "approve",
    "deny",
    "kill",
    "outcome",
    "settle",
    "stop",
    "waiting",
]
