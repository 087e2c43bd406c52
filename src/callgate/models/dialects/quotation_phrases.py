"""Phrases in English with which a model announces what another text contains, or what it received."""

from __future__ import annotations

from callgate.models.dialects.phrase_patterns import CALL_VERB, MAKE_VERB, SENTENCE_START, any_of

__all__ = ["QUOTATION", "RECEIVED", "WRITERS"]

_SOURCE = (
    r"(?:docs?|documentation|readme|manual|guide|tutorial|spec|specification|template|prompt|logs?|transcript|article|page|paper|snippet"
    r"|parser|tests?|changelog|comments?|issue|instructions?|post|answer|message|text|file|code|results?|output|response|e-?mail|document"
    r"|(?:web ?)?site|web ?page|ticket|description|attachment|content|data|report|turn|image|screenshot|docstring)"
)
_ACTOR = rf"(?:tool|function|command|search|query|server|api|script|program|shell|{_SOURCE})"
_STRANGER = r"(?:attacker|sender|hacker|spammer|scammer|customer|visitor|commenter|poster|maintainer|person|colleague|writer)"
_FILE_NAME = r"[\w\-/`'\"]*\w\.\w{1,5}"
_SHOWN = r"(?:calls?|line|block|snippet|text|content|string|message|result|output|response|answer|instructions?|json|xml|data)"
_QUOTED = (
    r"(?: (?:this|that|the following|exactly|to (?:write|use|call|send)"
    rf"|(?:an?|this|these|some|such an?|the following) (?:\w+ )?{_SHOWN}))?\W*$"
)
WRITERS = r"(?:models?|assistants?|agents?|llms?|clients?|users?|developers?|callers?)"
QUOTATION = any_of(
    # The documentation says:
    rf"\b{_SOURCE} (?:(?!to )\w+ )?(?:say|show|read|state|contain|describe|give|suggest|recommend|mention|expect|include|ha)s?{_QUOTED}",
    # The user wrote:
    (
        r"\b(?:they|he|she|someone|somebody|you|(?:the|your|my|our|an?) (?:user|author|other \w+|model|assistant|agent|developer"
        rf"|{_STRANGER})|{_SOURCE}) "
        r"(?:(?:has|have|had) )?(?:\w+ )?(?:wrote|said|called|invoked|ran|executed|emitted|generated|produced|issued|made|sent|posted|typed"
        rf"|quoted|replied|answered|showed|pasted|shared|printed)(?: (?:me|us))?{_QUOTED}"
    ),
    # The client should send:
    (
        rf"\b{WRITERS} (?:(?:should|would|could|may|might|can|will|must) )?(?:\w+ )?"
        r"(?:emit|output|return|produce|generate|write|send|print|(?:call|invoke|run) it with|(?:respond|reply|answer) with)"
        rf"(?:s|ed)?{_QUOTED}|\b{WRITERS} (?:should|would|could|may|might|can) (?:\w+ )?{CALL_VERB}{_QUOTED}"
    ),
    # The model called the tool:
    (
        r"\bthe (?:model|assistant|agent|user|llm) (?:(?:has|had) )?(?:\w+ )?(?:called|invoked|used|ran|executed|made|sent|issued) "
        r"(?:an?|the|this|that|its) (?:\w+ )?(?:tool|function|command|call|request)(?: with| like this| as follows)?\W*$"
    ),
    # The following was found in the README:
    (
        r"\b(?:is|was|were) (?:\w+ )?(?:found|returned|received|retrieved|extracted|copied|included|inserted|embedded|hidden|injected"
        r"|quoted|contained|sent) (?:in|inside|from|by|on|within|with) "
        rf"(?:(?:an?|the|this|that|your|its|their) (?:\w+ ){{0,2}}?{_ACTOR}|{_FILE_NAME})\W*$"
    ),
    # This was in the file:
    rf"^\W*(?:this|it|the following) (?:\w+ )?was (?:in|inside|from|on) (?:an?|the|this|that|your|its|their) (?:\w+ )?{_ACTOR}\W*$",
    # Someone inserted this into the document:
    (
        r"\b(?:inserted|injected|put|placed|hid|embedded|wrote|added) (?:this|that|it|the following) (?:in|into|inside|on) "
        rf"(?:an?|the|this|that|your|its|their) (?:\w+ )?{_ACTOR}\W*$"
    ),
    # The attacker wants me to run:
    (
        r"\b(?:attacker|(?:injected|hidden|malicious|embedded|suspicious) \w+|injection)\b[^.,;:]* (?:me|us|the \w+) to (?:\w+ )?"
        rf"{MAKE_VERB}{_QUOTED}|\btr(?:y|ies|ied|ying) to (?:make|get|trick) (?:me|us|the \w+)(?: into| to)? \w+{_QUOTED}"
    ),
    # The user asked me to repeat:
    rf"\b(?:asks|asked|wants|told|tells) (?:me|us) to (?:repeat|echo|quote|print|output|say|translate){_QUOTED}",
    # Output of the tool:
    (
        r"^\W*(?:(?:the|here(?:['\u2019]s| is) the) )?(?:\w+ )?(?:output|results?|response|reply|answer) (?:of|from) "
        rf"(?:an?|the|this|that|my) (?:\w+ )?(?:{_ACTOR}|call|step)(?: (?:is|was|were))?\W*$"
    ),
    # Line 12 of the file:
    rf"^\W*lines? \d+(?: ?[-\u2013] ?\d+)?(?: (?:of|in) (?:the|this|that|your) (?:\w+ )?{_ACTOR})?(?: (?:is|was|reads|says))?\W*$",
    # The model responds with:
    rf"\b{WRITERS} (?:\w+ )?(?:responds|replies|answers|responded|replied|answered) with{_QUOTED}",
    # Here is the template you asked for:
    (
        r"\b(?:snippet|template|text|line|string|message|code|example) (?:that |which )?(?:you|they|he|she|the user) (?:\w+ )?"
        r"(?:asked about|asked for|sent|pasted|wrote|mentioned|quoted|gave|posted|(?:want|need) to \w+)(?: (?:me|us))?(?: (?:is|was))?\W*$"
    ),
    # The contents of the file:
    (
        rf"^\W*(?:the )?(?:\w+ )?contents? of (?:(?:the|this|that|your) (?:\w+ )?\w+|{_FILE_NAME})"
        r"(?: (?:is|are|was|were))?\W*$"
    ),
    # The file's content is:
    rf"^\W*(?:the )?{_SOURCE}(?:['\u2019]s)? contents?(?: (?:is|are|was|were))?\W*$|^\W*your (?:\w+ )?(?:message|text) (?:was|is|read)\W*$",
    # As the docs put it:
    rf"^\W*as (?:the|its) {_SOURCE} (?:puts?|says?|shows?)(?: it)?\W*$|^\W*(?:quoted|taken|copied|pasted) from\b",
    # The last call failed:
    r"\b(?:calls?|invocation|request|attempt) (?:(?:that|which) )?(?:failed|was rejected|did not work|didn['\u2019]t work)\W*$",
    # From the docs:
    rf"^\W*(?:(?:from|in) (?:the|its|their|your)|(?:per|according to) (?:the|its|their)) (?:\w+ )?{_SOURCE}(?:,[^:]* (?:is|are|was))?\W*$",
    # The tool returned:
    rf"\b{_ACTOR} (?:\w+ )?(?:return(?:s|ed)|respond(?:s|ed)(?: with)?|print(?:s|ed)|contained|included|had|output|gave|sent){_QUOTED}",
    # For reference, the call was:
    (
        r"\b(?:the|this|that|its|their|your) (?:\w+ )?(?:calls?|request|invocation)"
        r"(?: (?:that|which|you|they|he|she|the \w+) [^.:]{1,60}?)? (?:was|were|had been|read)\W*$"
    ),
    # What you had sent was:
    r"^\W*what (?:you|they|he|she|the \w+) (?:\w+ ){1,3}(?:was|were)\W*$",
    # An attacker could inject this:
    (
        rf"\b(?:{_STRANGER}s?|malicious \w+|injected \w+) (?:\w+ )?(?:can|could|may|might|would) [^.:]*\W*$"
        r"|^\W*(?:this|that|it|the following) (?:is|would be|looks) (?:\w+ )?(?:dangerous|unsafe|malicious|harmful|suspicious)\W*$"
    ),
    # The assistant's message was:
    rf"\b{WRITERS}['\u2019]s? (?:\w+ )?(?:calls?|message|output|turn|response|answer|request) (?:is|was|reads)\W*$",
    # Qwen emits calls like:
    (
        r"\b(?-i:[A-Z])\S* (?:\w+ )?(?:emits?|outputs?|writes?|produces?|generates?|expects?) (?:\w+ ){0,2}"
        r"(?:calls?|messages?|text|tags?|markup|syntax|json|xml) (?:like|as|such as|in this form)\W*$"
    ),
    # The output was:
    rf"\b(?:results?|output|response|reply|answer) (?:(?:of|from) \w+ \w+ )?(?:was|were){_QUOTED}",
    # For reference:
    r"^\W*(?:as documented|for reference(?: only)?|docs|documentation|spec|specification|tutorial|quote|quoting(?: [\w']+){0,4})\W*$",
)
"""Matches a line that announces what another text contains."""
RECEIVED = any_of(
    # I found this in the file:
    (
        rf"\b(?:I|we) (?:\w+ )?(?:found|got|received|saw|read|see) (?:this|that|the following|the|an?)(?: (?:\w+ )?{_SHOWN})?"
        rf" (?:in|inside|from|on) (?:the|a|an|its|your|their) (?:\w+ )?{_ACTOR}\W*$"
    ),
    # Here's what I received from the server:
    (
        rf"{SENTENCE_START}here(?:['\u2019]s| is) what (?:I|we) (?:\w+ )?(?:found|got|received|saw|read) (?:in|inside|from|on) "
        rf"(?:the|a|an|its|your|their) (?:\w+ )?{_ACTOR}\W*$"
    ),
    # In the log I found:
    (
        rf"\b(?:in|inside|from|on) (?:the|its|your|their) (?:\w+ )?{_ACTOR}(?: \w+)?,? (?:I|we|there) (?:\w+ )?"
        r"(?:found|got|received|saw|read|see|was|were|is)\W*$"
    ),
)
"""Matches a line with which a model says what it received, also about itself."""
