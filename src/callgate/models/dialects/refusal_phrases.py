"""Phrases in English with which a model says that it does not make a call, made it before, or asks whether it may make it.

Most stand before the call. `begins_withdrawal` and `withdraws_call` examine the line after it.
"""

from __future__ import annotations

import re

from callgate.models.dialects.phrase_patterns import ANSWER_VERB, CALL_VERB, MAKE_VERB, any_of

__all__ = ["ASKS_APPROVAL", "CONDITIONAL", "DENIED", "NOT_DONE", "begins_withdrawal", "withdraws_call"]

_PAST = r"(?:called|used|invoked|ran|tried|wrote|sent|emitted|made)"
_NOT = r"(?: not|n['\u2019]t)"
_REST_OF_CLAUSE = r"\b[^.,;:]*[:\s]*$"
NOT_DONE = any_of(
    # I won't make this call:
    (
        r"\b(?:I|we) (?:\w+ )?(?:won['\u2019]t|can(?:not|['\u2019]t)"
        rf"|(?:will|would|could|can|should|must|may|do|did|am|are|was|were){_NOT}) "
        rf"(?:\w+ )?(?:{CALL_VERB}|make|execute|calling|using|running|making|executing){_REST_OF_CLAUSE}"
    ),
    # I'm not going to run this:
    (
        r"\b(?:I|we)(?:['\u2019](?:m|re)| am| are)(?: \w+)? (?:not (?:going|able|allowed|permitted|willing)|unable|unwilling) to "
        rf"(?:\w+ )?{MAKE_VERB}{_REST_OF_CLAUSE}"
    ),
    # I refuse to run this:
    (
        r"\b(?:I|we) (?:\w+ ){0,3}?(?:refused?|declined?|(?:decided|chose|choose|prefer) not) to "
        rf"(?:\w+ )?{MAKE_VERB}{_REST_OF_CLAUSE}"
    ),
    # I ignore this instruction:
    (
        r"\b(?:I|we)(?:['\u2019](?:m|re|ll|ve))? (?:\w+ ){0,3}?(?:ignor(?:e|ed|ing)|disregard(?:ed|ing)?|reject(?:ed|ing)?) "
        r"(?:it|this|that|them|these|(?:the|this|that|these|such|any) (?:\w+ ){0,2}?"
        r"(?:instructions?|calls?|commands?|request|injection|text|block|message|content|attempt))\W*$"
    ),
    # This must not be executed:
    r"\b(?:(?:must|should|will|can)(?: not|n['\u2019]t)|cannot|won['\u2019]t) be (?:executed|run|called|sent|invoked|made)\W*$",
    # Earlier I called:
    rf"\b(?:earlier|previously|before|last time)\b[^.,;:]*\b(?:I|we) (?:had )?{_PAST}{_REST_OF_CLAUSE}",
    # In the previous turn I called:
    rf"\b(?:in|during|on) (?:the|my|our|an?) (?:previous|earlier|last|prior|first) \w+,? (?:I|we) (?:had )?{_PAST}{_REST_OF_CLAUSE}",
    # I already sent:
    rf"\b(?:I|we) (?:had )?(?:already|previously|earlier|just) {_PAST}{_REST_OF_CLAUSE}",
    # I could write:
    rf"\b(?:I|we)(?: (?:would|could|might)|['\u2019]d) (?:\w+ )?(?:write|put|type|emit){_REST_OF_CLAUSE}",
    # I would have called:
    rf"\b(?:I|we)(?: would|['\u2019]d) have {_PAST}{_REST_OF_CLAUSE}",
    # In a hypothetical scenario, I'd call:
    (
        r"\bin (?:an?|such an?|this|that|the) (?:hypothetical|imaginary|fictional|made-up|other|different) \w+,? "
        rf"(?:I|we)(?: would| could| might|['\u2019]d)(?: \w+)? {ANSWER_VERB}{_REST_OF_CLAUSE}"
    ),
    # If I had access to the tool, I would call:
    rf"\bif\b[^.:;]*(?:\bwould|\w['\u2019]d)(?: \w+)? {ANSWER_VERB}{_REST_OF_CLAUSE}",
    # I won't run this, but it would be:
    (
        r"\b(?:it|that|this|which|but the (?:\w+ )?call)(?: would|['\u2019]d)(?: then)? (?:be|look|read)(?: written| expressed)?"
        r"(?: as| like)?\W*$"
    ),
    # The right call would have been:
    r"\bwould(?: have|['\u2019]ve) (?:been|looked|read|said)(?: as| like)?\W*$",
    # The previous assistant turn was:
    (
        r"\b(?:previous|earlier|last|prior|preceding|failing|failed|wrong) (?:\w+ )?"
        r"(?:calls?|invocation|request|attempt|turn|message|query) (?:was|were)\W*$"
    ),
    # I have already done it. The call was:
    r"\b(?:I|we)\b.*\b(?:the|that|my|this) (?:\w+ )?(?:calls?|invocation|command) (?:was|were|had been)\W*$",
    # The call I made earlier:
    rf"\bcalls? (?:(?:that|which) )?(?:I|we) (?:\w+ )?{_PAST}{_REST_OF_CLAUSE}",
)
"""Matches the end of a clause in which the model says that it does not make a call, made it before, or could write it."""
DENIED = re.compile(
    r"\b(?:refuse|decline|(?:will|would|can|may|do)(?: not|n['\u2019]t)|won['\u2019]t|cannot|unable) (?:to )?(?:\w+ )?"
    rf"{MAKE_VERB} the following(?: \w+)?\.?$|"
    rf"(?:(?<!\bwhy )\bnot|n['\u2019]t|\bcannot|\bnever|\b(?:refuse|decline|unable) to) (?:\w+ )?{MAKE_VERB}(?: (?:it|this|that))?$"
    rf"|\bif\b[^.:;]*(?:\bwould|\w['\u2019]d)(?: \w+)? {MAKE_VERB}$",
    re.IGNORECASE,
)
"""Matches a line that what follows must complete, and that says that nobody makes the call which follows."""
_APPROVAL = r"(?:approval|permission|consent|confirmation|go-ahead|authori[sz]ation)"
ASKS_APPROVAL = any_of(
    # Shall I run this?
    rf"^\W*(?:(?:so|now),? )?(?:shall|should|may|can|could) (?:I|we) (?:\w+ )?(?:{MAKE_VERB}|proceed|go ahead|continue)\b[^.?!]*\?$",
    # Do you want me to run this?
    rf"\b(?:do you want|would you like) (?:me|us) to (?:\w+ )?(?:{MAKE_VERB}|proceed|go ahead|continue)\b[^.?!]*[?:]$",
    # Is it OK to run this?
    rf"\bis it (?:ok|okay|fine|all ?right) (?:to|if (?:I|we)) (?:\w+ )?(?:{MAKE_VERB}|proceed|go ahead|continue)\b[^.?!]*[?:]$",
    # Once you confirm, I will run:
    (
        r"\b(?:once|after|if|when|as soon as|unless|until) (?:you|the user) (?:\w+ )?(?:confirms?|approves?|agrees?|allows?|consents?"
        rf"|authori[sz]es?|says? (?:yes|so)|gives? (?:me )?(?:your |the |their )?{_APPROVAL})\b[^.?!]*$"
    ),
    # After your approval I would run:
    (
        rf"\b(?:after|upon|pending|awaiting|subject to) your (?:\w+ )?{_APPROVAL},? "
        r"(?:I|we)(?: will| would| can| could|['\u2019](?:ll|d))\b[^.?!]*$"
    ),
    # With your permission I would run:
    rf"\bwith your (?:\w+ )?{_APPROVAL},? (?:I|we)(?: would| could|['\u2019]d)\b[^.?!]*$",
    # Please confirm that I should run:
    r"\bplease (?:confirm|approve)\b[^.?!]*$",
)
"""Matches the end of a line with which the model asks whether it may make the call, or says that it makes it later."""
CONDITIONAL = re.compile(rf"\b(?:I|we) (?:would|could|might) (?:\w+ )?{CALL_VERB}{_REST_OF_CLAUSE}", re.IGNORECASE)
_THE_CALL = r"(?:this|that|it|(?:the|this|that) (?!next\b)(?:\w+ )?(?:calls?|command|request|action|payment|operation|step))"
_RUN_IT = rf"(?:(?:\w+ )?(?:{MAKE_VERB}|send) {_THE_CALL}|proceed|go ahead|continue with {_THE_CALL})"
_CANNOT = r"(?:cannot|(?:can|will|may|must|should)(?: not|n['\u2019]t)|can['\u2019]t|won['\u2019]t)"
_FORBIDDEN = r"(?:unable|not (?:able|allowed|permitted|authori[sz]ed))"
_UNWILLING = rf"(?:would rather not|refuse to|(?:do(?: not|n['\u2019]t) want|(?:am|are) {_FORBIDDEN}) to)"
_WITHDRAWAL = any_of(
    # But I have no permission.
    (
        r"^but (?:I|we) (?:(?:still )?have no|lack|do(?: not|n['\u2019]t) have)\b[^.!?]*"
        r"\b(?:permissions?|access|authori[sz]ation|authority|approval|clearance|consent|rights?)\b"
    ),
    # But I cannot run it.
    rf"^but (?:I|we) (?:{_CANNOT}|{_UNWILLING}) {_RUN_IT}\b",
    # But I don't want to.
    rf"^but (?:I|we) (?:{_CANNOT}|{_UNWILLING})\W*$",
    # Please confirm before I run this.
    rf"^(?:please )?(?:confirm|approve)(?: {_THE_CALL})?\W*$",
    (
        r"^(?:please )?(?:confirm|approve|let me know|tell me)(?: \w+){0,3} "
        rf"(?:before|so that|so|and|if|whether|that) (?:I|we)\b[^.!?]*\b{_RUN_IT}\W*$"
    ),
    # Do you confirm?
    rf"^(?:so,? )?do you (?:confirm|approve|agree|authori[sz]e)(?: {_THE_CALL})?\?",
    # Shall I run this?
    rf"^(?:so,? )?(?:shall|should|may|can) (?:I|we) {_RUN_IT}(?: now)?\?",
    # Do you want me to run this?
    rf"^(?:do you want|would you like) (?:me|us) to {_RUN_IT}(?: now)?\?",
)
_WITHDRAWAL_STARTS = (
    "but ",
    "please ",
    "confirm",
    "approve",
    "let me know",
    "tell me",
    "so",
    "do you ",
    "shall ",
    "should ",
    "may ",
    "can ",
    "would you ",
)


def begins_withdrawal(text: str) -> bool:
    """Whether a line that begins with `text` may say that the call before it is not made yet."""
    lower = text.lower()
    return any(lower.startswith(start) or start.startswith(lower) for start in _WITHDRAWAL_STARTS)


def withdraws_call(line: str) -> bool:
    """Whether the line after a call says that the model does not make the call, or asks whether it may make it."""
    return _WITHDRAWAL.search(" ".join(line.split())) is not None
