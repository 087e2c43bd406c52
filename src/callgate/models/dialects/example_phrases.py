"""Phrases with which a model announces an example of a call, or writes about calls.

Examines one line of prose at a time. Knows the words for "example" in several languages, and instructions in English.
"""

from __future__ import annotations

import re

from callgate.models.dialects.phrases_of_other_languages import (
    EXAMPLE_WORDS,
    asks_approval,
    quotes_text,
    refuses_call,
    seeks_example,
    states_example,
)

__all__ = [
    "announces_example",
    "announces_quotation",
    "asks",
    "describes_text",
    "discusses_calls",
    "introduces_example",
    "without_first_sentence",
]


def _any_of(*alternatives: str) -> re.Pattern[str]:
    """Return a pattern that matches what one of these does, in capitals or not. A comment before each shows a line that it matches."""
    return re.compile("|".join(alternatives), re.IGNORECASE)


_EXAMPLE_WORD = rf"(?:examples?|{EXAMPLE_WORDS}|przyk\u0142ad\w*|\u00f6rnek\w*|contoh\w*|v\u00ed d\u1ee5)(?![./]\w)"
_EXAMPLE_PHRASE = (
    rf"(?:\b(?:for instance|(?:for|zum|par|por|per|na) {_EXAMPLE_WORD}|bijvoorbeeld|hypothetically|(?:for|as an|by way of) illustration"
    r"|to illustrate)\b|\be\.g\.|\bz\. ?b\.)"
)
_BE = r"(?:['\u2019]s| is| are)"
_LINE_START = (
    rf"^\W*(?:(?:here|below|this|that|it|the following){_BE} (?:(?:only|just|merely) )?)?(?:(?:an?|another|one|some|the following) )?"
    rf"(?:(?:\w+ )?(?:{_EXAMPLE_WORD}|illustration|demonstration)|samples?|demo)\b"
)
_SENTENCE_START = r"(?:^|[.!?]\s+)\W*(?:(?:and|so|now|then|here),? )?"
_REST_OF_SENTENCE = r"(?:(?![.!?]\s+(?-i:[A-Z])).)*$"
"""The rest of one sentence."""
_EXAMPLE = _any_of(
    # Example:
    rf"(?:{_EXAMPLE_PHRASE}|{_LINE_START}){_REST_OF_SENTENCE}|\b{_EXAMPLE_WORD}\W*$",
    # 例如
    r"例如|比如|举例|举个例|示例|例えば|例子?[\W_]*$|예를 들[어면]|예시|^\W*예\W*$|\b(?:например|пример\w*)\b|مثال|उदाहरण",
    # Consider this tool call:
    (
        rf"{_SENTENCE_START}(?:suppose|imagine|let['\u2019]?s (?:say|assume|pretend) (?:the|an?|that|this|it|you|I|we|someone|one)\b"
        r"|consider (?:this|the following|an?|such))\b"
    ),
    # In pseudo-code:
    r"\bequivalent to\W*$|\bin pseudo-?code\W*$",
)
_USED_EXAMPLE = re.compile(
    r"\b(?:(?:look(?:ing)? for|search(?:ing)?(?: for)?|(?:find|read|open|fetch|load|inspect|edit|add)(?:ing)?|run(?:ning)?"
    r"|execut(?:e|ing)|updat(?:e|ing)|sav(?:e|ing)) (?:\w+ ){0,3}?"
    r"|(?:(?:follow|view|check|see|test|look|send|try)(?:ing|ed)?|found|saw|ran|have|creat(?:e|ing)|us(?:e|ing))(?: at)?"
    r" (?:the|this|that|these|those|your|its) (?:\w+ ){0,2}?)"
    rf"(?:{_EXAMPLE_WORD}|samples?)\b",
    re.IGNORECASE,
)
"""Matches text about work on an example that exists or is to be found. A model that writes so about itself shows no example."""
_CALL_VERB = r"(?:call|use|invoke|run|try|write|send|emit|put|type)"
_MAKE_VERB = rf"(?:{_CALL_VERB}|trigger|issue|do|make|execute|perform|request|output|produce)"
_ANSWER_VERB = rf"(?:{_CALL_VERB}|output|return|produce|generate|print|issue|(?:respond|reply|answer) with)"
_PARTICIPLE = r"(?:called|invoked|used|written|formatted|expressed|encoded|represented|made|triggered|emitted|produced|requested)"
_FORM_WORD = r"(?:call |calling |output |message )?(?:format|template|notation|markup|convention|signature|structure|shape)"
_CALL_TERMS = re.compile(
    rf"{_EXAMPLE_PHRASE}|\b(?:{_CALL_VERB}s?|called|used|written|wrote|forms?|formats?|syntax|tags?|markers?"
    r"|(?:typ|enter|past|submitt|send|writ|emitt|repeat)ing|(?:output|print|repeat|paste|enter)s?)\b",
    re.IGNORECASE,
)
_THIS_WAY = r"(?:like (?:this|that|so)|this way|in (?:this|the following) (?:way|form|format|manner|syntax|style))"
_INSTRUCTION = _any_of(
    # You would write:
    rf"\byou (?:(?:just|only|simply) )?(?:can|could|may|might|must|should|would|need to|have to) (?:\w+ )?{_MAKE_VERB}\b",
    # You call it like this:
    rf"{_SENTENCE_START}you(?:['\u2019](?:d|ll))? (?:will )?(?:\w+ )?{_CALL_VERB}\b|{_SENTENCE_START}you['\u2019]d {_MAKE_VERB}\b",
    # A call looks like this:
    r"\blooks? (?:\w+ )?(?:like|so|as follows)(?: (?:this|that|so|the following))?\W*$",
    # To call it, write:
    rf"(?:^[\W\d]*|[.!?]\s+)(?:in order )?to (?:\w+ )?{_CALL_VERB}\b[^:]*, (?:\w+ )?(?:{_CALL_VERB}|respond|reply|answer|return|output)\b",
    # Here is how to call it:
    (
        rf"{_SENTENCE_START}(?:(?:here(?:['\u2019]s| is)|(?:this|that|it)(?:['\u2019]s| is| shows)|see) )?(?:exactly )?"
        rf"how (?:to|you|one|they|it|this|that|an?|the|\w+s)\b[^:]*\b(?:{_CALL_VERB}s?|{_PARTICIPLE}|looks?|works?|done)\b"
    ),
    # Here is how:
    rf"{_SENTENCE_START}here(?:['\u2019]s| is) how\W*$",
    # If you want to search, write:
    rf"{_SENTENCE_START}if you (?:want|need|wish|like|would like)\b[^:.]*, (?:just |simply )?{_CALL_VERB}\W*$",
    # Invoke it like this:
    rf"\b(?:{_CALL_VERB}s?|{_PARTICIPLE}|do|does|done|works?)\b[^:.]* {_THIS_WAY}\W*$",
    # Tool calls are written as follows:
    rf"\b(?:{_PARTICIPLE}|works?|done)\b[^:.]* as follows\W*$",
    # A tool call is written as:
    rf"\b(?:is|are|be) (?:\w+ )?{_PARTICIPLE} (?:(?:as|by|via|thus|so)\b|(?:using|with)\W*$)",
    # Such a call is written
    r"\b(?:is|are|be) (?:\w+ )?(?:written|formatted|expressed|encoded|represented)\W*$",
    # A valid call is:
    rf"{_SENTENCE_START}an? (?:\w+ ){{0,3}}(?:calls?|invocation|request) (?:is|has|contains|reads)\W*$",
    # You invoke it with:
    rf"\b{_CALL_VERB} (?:it|them) (?:like|with|as|by|via|using)\W*$",
    # Something like this:
    r"^\W*(?:or |and )?(?:something )?(?:like (?:this|that|so)|like|such as|as in|along (?:the|these) lines(?: of)?)\W*$",
    # A call would look like:
    r"\b(?:calls?|syntax|format|command|message|output|request|invocation|markup|block|tags?) would (?:be|look|read)\b",
    # Claude would write:
    rf"(?:\bwould|\w['\u2019]d)(?: \w+)? {_ANSWER_VERB}\W*$",
    # Given the call:
    r"^\W*given (?:the|this|such an?) (?:\w+ )?(?:call|invocation|request|message|output|text|input)\W*$",
    # What does this mean:
    r"^\W*(?:question\W+)?what (?:does|do|happens|would)\b|\bwhat (?:this|that|it) (?:means|does|would do)\W*$",
    # Strings such as:
    r"\bsuch as\W*$",
    # Write this:
    (
        rf"{_SENTENCE_START}(?:in (?:\w+ ){{1,4}}?\w+, )?(?:just |simply )?(?:(?:write|type|emit|paste|add|insert|include)(?= ?:)"
        r"|(?:copy|copy and paste|add|insert|include|save) (?:this|that|it|the following)\b"
        r"|try (?:this|that|it)(?: out| yourself)?\W*$"
        r"|(?:write|type|emit|paste|put|send|output|(?:respond|reply|answer) with) "
        r"(?:this|that|it|exactly|only|the following|(?:an?|such an?) (?:\w+ )?call)\b)"
    ),
)
"""Matches text that tells the reader how to make a call."""
_LABEL = _any_of(
    # Format:
    (
        r"^\W*(?!(?:in (?:the )?(?:required|requested|correct|right|specified|json|xml)|following (?:the|your)) (?:\w+ )?format)"
        rf"(?:\w+ ){{0,3}}(?:usage|syntax|{_FORM_WORD}|formats|templates|notations)\W*$"
    ),
    # The format is:
    (
        rf"\b(?:syntax|form|pattern|schema|{_FORM_WORD})\b(?: (?:for|of|used|that|which)\b[^:.]*)?"
        rf" (?:is|are|looks?|must be|should be)(?: [\w'`<>]+){{0,4}}\W*$"
    ),
    # Use this format:
    rf"\b(?:has|have|uses?|takes?|follows?) (?:the|this|that|an?) (?:\w+ )?(?:syntax|{_FORM_WORD})\W*$",
    # Expected tool call:
    (
        r"^\W*(?:an? |the )?(?:expected|hypothetical|typical|previous|earlier|original|failed|mock|fake|dummy|simulated|pseudo"
        r"|imaginary|fictional) (?:\w+ ){0,2}"
        r"(?:calls?|invocation|request|output|response|answer|message)\W*$"
    ),
    # The expected format:
    (
        r"^\W*(?:the )?(?:(?:general |common |usual )?pattern|general form|how[- ]to"
        r"|expected|expected \w+|reference (?:answer|call)|answer key|unit test|test (?:case|input)s?(?: \d+)?|(?:right|wrong) way)\W*$"
    ),
    # The injected instruction:
    (
        r"^\W*(?:an? |the |this |some )?(?:suspicious|injected|hidden|embedded|malicious|untrusted|quoted|original|raw|logged|offending) "
        r"(?:\w+ )?(?:calls?|instructions?|text|content|block|string|message|request|input|payload|prompt|markup|entry)"
        r"(?: (?:is|was|reads))?\W*$|^\W*(?:the )?(?:code )?(?:snippet|excerpt|log entry)(?: (?:is|was|reads))?\W*$"
    ),
    # Here's a template:
    rf"{_SENTENCE_START}here{_BE} (?:an?|the|your) (?:\w+ )?(?:template|snippet|excerpt)\W*$",
    # This is not a real call:
    r"\b(?:this|that|it|the following) (?:is|was)(?: not|n['\u2019]t) (?:an?|the|my) (?:\w+ )?(?:call|request|invocation|command)\W*$",
    # Der Aufruf sieht so aus:
    r"\bsieht (?:\w+ )?(?:so|wie folgt) aus\b|\bso sieht\b[^:]*\baus\b|\bman (?:ruft|schreibt|verwendet|benutzt)\b",
    # Das Format ist:
    r"\b(?:format|formato|formaat|syntax|syntaxe|sintaxis) (?:ist|est|es|lautet|\u00e9|\u00e8)\b|\b(?:формат)\w*(?: \w+)?\W*$",
    # Wrong:
    r"^\W*(?:(?:this|that) (?:is|would be) )?(?:wrong|incorrect|bad|invalid|correct|right|good|not (?:so|like this)|instead of)\W*$",
    # As JSON:
    r"^\W*as (?:(?:plain|raw|valid) )?(?:json|xml|yaml|python|text)\W*$",
    # Avoid this:
    r"^\W*avoid(?: this| that| \w+ing)?\W*$",
    # The following call fails:
    (
        r"\b(?:this|that|the following|such an?) (?:\w+ )?(?:call|request|form|syntax|one)s? (?:(?:would|will|does|is|are|was|were) )?"
        r"(?:fails?|failed|wrong|invalid|incorrect|malformed|rejected|refused|not (?:work|valid|allowed))\W*$"
    ),
    # Don't call it like this:
    rf"{_SENTENCE_START}(?:please )?(?:do not|don['\u2019]t|never) (?:\w+ )?{_MAKE_VERB}\b",
    # So ruft man es auf:
    r"\bso (?:ruft man|wird (?:es|er|sie|das|ein)|schreibt man|geht es)\b|\b(?:on l['\u2019]appelle|s['\u2019](?:appelle|utilise)) comme\b",
    # 调用方式如下
    r"\bse (?:llama|usa|invoca|escribe) (?:as\u00ed|de esta)|用法|调用(?:方法|方式|格式)|格式(?:为|如下|\W*$)|使い方|呼び出し方|書き方",
)
"""Matches a line that names what follows: the form of calls, or a wrong call."""
_SHOWING = _any_of(
    # Let me show you how to call it:
    (
        r"\b(?:show|demonstrate|illustrate|explain)\w*\b[^:]*"
        rf"\b(?:how\b[^:]*\b(?:{_CALL_VERB}|{_PARTICIPLE}|works?)\b|what an? (?:\w+ )?call (?:would )?looks? like"
        rf"|(?:format|syntax|notation|{_EXAMPLE_WORD})\W*$)"
    ),
    # Example call:
    rf"\b(?:illustrate|demonstrate)\W*$|\b(?:{_EXAMPLE_WORD}|sample|hypothetical) (?:\w+ )?(?:calls?|request|invocation)\W*$",
    # Let me quote the manual:
    r"\bquote (?:the|its|this|your)\b",
)
"""Matches text with which a model says that it shows a call, also about itself."""
_ACTS_FIRST = re.compile(
    r"\bfirst,? (?:(?:I|we)(?:['\u2019]ll| will| need to| have to)?|let me|let['\u2019]s)"
    rf" (?!(?:will|need|have|{_CALL_VERB}|show|demonstrate|illustrate|explain)\b)\w"
    r"|\b(?:after|by) (?!(?:using|writing|giving|showing|typing)\b)\w+ing\b",
    re.IGNORECASE,
)
"""Matches text with which a model says what it does before or while it explains something."""
_SOURCE = (
    r"(?:docs?|documentation|readme|manual|guide|tutorial|spec|specification|template|prompt|logs?|transcript|article|page|paper|snippet"
    r"|parser|tests?|changelog|comments?|issue|instructions?|post|answer|message|text|file|code|results?|output|response|e-?mail|document"
    r"|(?:web ?)?site|web ?page|ticket|description|attachment|content|data|report|turn|image|screenshot|docstring)"
)
_ACTOR = rf"(?:tool|function|command|search|query|server|api|script|program|shell|{_SOURCE})"
_SHOWN = r"(?:calls?|line|block|snippet|text|content|string|message|result|output|response|answer|instructions?|json|xml|data)"
_QUOTED = (
    r"(?: (?:this|that|the following|exactly|to (?:write|use|call|send)"
    rf"|(?:an?|this|these|some|such an?|the following) (?:\w+ )?{_SHOWN}))?\W*$"
)
_WRITERS = r"(?:models?|assistants?|agents?|llms?|clients?|users?|developers?|callers?)"
_QUOTATION = _any_of(
    # The documentation says:
    rf"\b{_SOURCE} (?:(?!to )\w+ )?(?:say|show|read|state|contain|describe|give|suggest|recommend|mention|expect|include|ha)s?{_QUOTED}",
    # The user wrote:
    (
        rf"\b(?:they|he|she|someone|somebody|the (?:user|author|other \w+|model|assistant|agent|developer)|you|{_SOURCE}) "
        r"(?:(?:has|have|had) )?(?:\w+ )?(?:wrote|said|called|invoked|ran|executed|emitted|generated|produced|issued|made|sent|posted|typed"
        rf"|quoted|replied|answered|showed|pasted|shared|printed)(?: (?:me|us))?{_QUOTED}"
    ),
    # The client should send:
    (
        rf"\b{_WRITERS} (?:(?:should|would|could|may|might|can|will|must) )?(?:\w+ )?"
        r"(?:emit|output|return|produce|generate|write|send|print|(?:call|invoke|run) it with|(?:respond|reply|answer) with)"
        rf"(?:s|ed)?{_QUOTED}|\b{_WRITERS} (?:should|would|could|may|might|can) (?:\w+ )?{_CALL_VERB}{_QUOTED}"
    ),
    # The model called the tool:
    (
        r"\bthe (?:model|assistant|agent|user|llm) (?:(?:has|had) )?(?:\w+ )?(?:called|invoked|used|ran|executed|made|sent|issued) "
        r"(?:an?|the|this|that|its) (?:\w+ )?(?:tool|function|command|call|request)(?: with| like this| as follows)?\W*$"
    ),
    # The following was found in the README:
    (
        r"\b(?:is|was|were) (?:\w+ )?(?:found|returned|received|retrieved|extracted|copied|included|inserted|embedded|hidden|injected"
        rf"|quoted|contained|sent) (?:in|inside|from|by|on|within|with) (?:an?|the|this|that|your|its|their) (?:\w+ ){{0,2}}?{_ACTOR}\W*$"
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
        rf"{_MAKE_VERB}{_QUOTED}|\btr(?:y|ies|ied|ying) to (?:make|get|trick) (?:me|us|the \w+)(?: into| to)? \w+{_QUOTED}"
    ),
    # The user asked me to repeat:
    rf"\b(?:asks|asked|wants|told|tells) (?:me|us) to (?:repeat|echo|quote|print|output|say|translate){_QUOTED}",
    # Output of the tool:
    (
        r"^\W*(?:(?:the|here(?:['\u2019]s| is) the) )?(?:\w+ )?(?:output|results?|response|reply|answer) (?:of|from) "
        rf"(?:an?|the|this|that|my) (?:\w+ )?(?:{_ACTOR}|call)(?: (?:is|was|were))?\W*$"
    ),
    # Line 12 of the file:
    rf"^\W*lines? \d+(?: ?[-\u2013] ?\d+)?(?: (?:of|in) (?:the|this|that|your) (?:\w+ )?{_ACTOR})?(?: (?:is|was|reads|says))?\W*$",
    # The model responds with:
    rf"\b{_WRITERS} (?:\w+ )?(?:responds|replies|answers|responded|replied|answered) with{_QUOTED}",
    # Here is the template you asked for:
    (
        r"\b(?:snippet|template|text|line|string|message|code|example) (?:that |which )?(?:you|they|he|she|the user) (?:\w+ )?"
        r"(?:asked about|asked for|sent|pasted|wrote|mentioned|quoted|gave|posted|(?:want|need) to \w+)(?: (?:me|us))?(?: (?:is|was))?\W*$"
    ),
    # The contents of the file:
    r"^\W*(?:the )?(?:\w+ )?contents? of (?:the|this|that|your) (?:\w+ )?\w+(?: (?:is|are|was|were))?\W*$",
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
    # The output was:
    rf"\b(?:results?|output|response|reply|answer) (?:(?:of|from) \w+ \w+ )?(?:was|were){_QUOTED}",
    # For reference:
    r"^\W*(?:as documented|for reference(?: only)?|docs|documentation|spec|specification|tutorial|quote|quoting(?: [\w']+){0,4})\W*$",
)
"""Matches a line that announces what another text contains."""
_RECEIVED = _any_of(
    # I found this in the file:
    (
        rf"\b(?:I|we) (?:\w+ )?(?:found|got|received|saw|read|see) (?:this|that|the following|the|an?)(?: (?:\w+ )?{_SHOWN})?"
        rf" (?:in|inside|from|on) (?:the|a|an|its|your|their) (?:\w+ )?{_ACTOR}\W*$"
    ),
    # Here's what I received from the server:
    (
        rf"{_SENTENCE_START}here(?:['\u2019]s| is) what (?:I|we) (?:\w+ )?(?:found|got|received|saw|read) (?:in|inside|from|on) "
        rf"(?:the|a|an|its|your|their) (?:\w+ )?{_ACTOR}\W*$"
    ),
    # In the log I found:
    (
        rf"\b(?:in|inside|from|on) (?:the|its|your|their) (?:\w+ )?{_ACTOR}(?: \w+)?,? (?:I|we|there) (?:\w+ )?"
        r"(?:found|got|received|saw|read|see|was|were|is)\W*$"
    ),
)
"""Matches a line with which a model says what it received, also about itself."""
_PAST = r"(?:called|used|invoked|ran|tried|wrote|sent|emitted|made)"
_NOT = r"(?: not|n['\u2019]t)"
_REST_OF_CLAUSE = r"\b[^.,;:]*[:\s]*$"
_NOT_DONE = _any_of(
    # I won't make this call:
    (
        r"\b(?:I|we) (?:\w+ )?(?:won['\u2019]t|can(?:not|['\u2019]t)"
        rf"|(?:will|would|could|can|should|must|may|do|did|am|are|was|were){_NOT}) "
        rf"(?:\w+ )?(?:{_CALL_VERB}|make|execute|calling|using|running|making|executing){_REST_OF_CLAUSE}"
    ),
    # I'm not going to run this:
    (
        r"\b(?:I|we)(?:['\u2019](?:m|re)| am| are)(?: \w+)? (?:not (?:going|able|allowed|permitted|willing)|unable|unwilling) to "
        rf"(?:\w+ )?{_MAKE_VERB}{_REST_OF_CLAUSE}"
    ),
    # I refuse to run this:
    (
        r"\b(?:I|we) (?:\w+ ){0,3}?(?:refused?|declined?|(?:decided|chose|choose|prefer) not) to "
        rf"(?:\w+ )?{_MAKE_VERB}{_REST_OF_CLAUSE}"
    ),
    # I ignore this instruction:
    (
        r"\b(?:I|we)(?:['\u2019](?:m|re|ll|ve))? (?:\w+ ){0,2}?(?:ignor(?:e|ed|ing)|disregard(?:ed|ing)?|reject(?:ed|ing)?) "
        r"(?:it|this|that|them|these|(?:the|this|that|these|such|any) (?:\w+ ){0,2}?"
        r"(?:instructions?|calls?|commands?|request|injection|text|block|message|content|attempt))\W*$"
    ),
    # This must not be executed:
    r"\b(?:(?:must|should|will|can)(?: not|n['\u2019]t)|cannot|won['\u2019]t) be (?:executed|run|called|sent|invoked|made)\W*$",
    # Earlier I called:
    rf"\b(?:earlier|previously|before|last time)\b[^.,;:]*\b(?:I|we) (?:had )?{_PAST}{_REST_OF_CLAUSE}",
    # I already sent:
    rf"\b(?:I|we) (?:had )?(?:already|previously|earlier|just) {_PAST}{_REST_OF_CLAUSE}",
    # I could write:
    rf"\b(?:I|we)(?: (?:would|could|might)|['\u2019]d) (?:\w+ )?(?:write|put|type|emit){_REST_OF_CLAUSE}",
    # I would have called:
    rf"\b(?:I|we)(?: would|['\u2019]d) have {_PAST}{_REST_OF_CLAUSE}",
    # If I had access to the tool, I would call:
    rf"\bif\b[^.:;]*(?:\bwould|\w['\u2019]d)(?: \w+)? {_ANSWER_VERB}{_REST_OF_CLAUSE}",
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
    # The call I made earlier:
    rf"\bcalls? (?:(?:that|which) )?(?:I|we) (?:\w+ )?{_PAST}{_REST_OF_CLAUSE}",
)
"""Matches the end of a clause in which the model says that it does not make a call, made it before, or could write it."""
_DENIED = re.compile(
    rf"(?:(?<!\bwhy )\bnot|n['\u2019]t|\bcannot|\bnever|\b(?:refuse|decline|unable) to) (?:\w+ )?{_MAKE_VERB}(?: (?:it|this|that))?$"
    rf"|\bif\b[^.:;]*(?:\bwould|\w['\u2019]d)(?: \w+)? {_MAKE_VERB}$",
    re.IGNORECASE,
)
"""Matches a line that what follows must complete, and that says that nobody makes the call which follows."""
_APPROVAL = r"(?:approval|permission|consent|confirmation|go-ahead|authori[sz]ation)"
_ASKS_APPROVAL = _any_of(
    # Shall I run this?
    rf"^\W*(?:(?:so|now),? )?(?:shall|should|may|can|could) (?:I|we) (?:\w+ )?(?:{_MAKE_VERB}|proceed|go ahead|continue)\b[^.?!]*\?$",
    # Do you want me to run this?
    rf"\b(?:do you want|would you like) (?:me|us) to (?:\w+ )?(?:{_MAKE_VERB}|proceed|go ahead|continue)\b[^.?!]*[?:]$",
    # Is it OK to run this?
    rf"\bis it (?:ok|okay|fine|all ?right) (?:to|if (?:I|we)) (?:\w+ )?(?:{_MAKE_VERB}|proceed|go ahead|continue)\b[^.?!]*[?:]$",
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
    # Please confirm that I should run:
    r"\bplease (?:confirm|approve)\b[^.?!]*$",
)
"""Matches the end of a line with which the model asks whether it may make the call, or says that it makes it later."""
_CONDITIONAL = re.compile(rf"\b(?:I|we) (?:would|could|might) (?:\w+ )?{_CALL_VERB}{_REST_OF_CLAUSE}", re.IGNORECASE)
_PERCEIVED = re.compile(r"\b(?:I|we) (?:\w+ )?(?:found|got|received|saw|read|noticed)(?: the \w+)? $", re.IGNORECASE)
_QUESTION = re.compile(r"^\W*(?:what|why|how|is|are|was|were|do|does|did|can|could|should|would|which|when|where) ", re.IGNORECASE)
_DESCRIPTION = re.compile(
    r"\b(?:match(?:es|ed)?|contain(?:s|ed)?|include[sd]?|has|have|had|means?|says?|said|saw|parse[sd]?|remove[sd]?|accept(?:s|ed)?|answer(?:s|ed)"
    r"|return(?:s|ed)|emit(?:s|ted)|outputs|print(?:s|ed)|difference between)(?: \w+)? $|\b(?:the|this|that|a) (?:\w+ )?"
    rf"(?:text|string|message|line|word|token|sequence|call|block|tag|output|answer) $|{_QUESTION.pattern}",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\s*(?:#{1,6} |(?:\*\*|__)[^*_]+(?:\*\*|__)\s*$)")
_HEADING_TERMS = re.compile(rf"\b{_EXAMPLE_WORD}\b|\b(?:usage|syntax|how (?:to|you) {_CALL_VERB})\b|\bformat\W*$|用法|示例", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:[Ii](?!\.e\b)|[Ww]e|[Ll]et)\b")
_NOT_PROGRESSIVE = r"(?:[Ss]ome|[Aa]ny|[Ee]very|[Nn]o)thing\b|[Ff]ollowing\b|[Dd]uring\b|[Ss]tring\b"
_PROGRESSIVE = re.compile(rf"\W*(?:[Nn]ow )?(?!{_NOT_PROGRESSIVE})[A-Z]?[a-z]+ing\b")
_SENTENCE_END = re.compile(r"(?<!\be\.g)[.!?:]\s+(?=[^a-z]|$)")
_FULL_STOP = re.compile(rf"{_SENTENCE_END.pattern}|[\u3002\uff01\uff1f]")
_ENDS_WITH_EXAMPLE = re.compile(rf"{_EXAMPLE_PHRASE},?\s*$", re.IGNORECASE)
_NAMED_EXAMPLE = re.compile(rf"\b(?:from|in|of) (?:the|this|that|your) {_EXAMPLE_WORD}\W*$", re.IGNORECASE)
"""Matches the end of a line that refers to an example which was given before."""
_ASIDE = re.compile(rf"\({_EXAMPLE_PHRASE},? \w[^()]*\)", re.IGNORECASE)
"""Matches words in brackets that name an example of what stands before them."""
_SHOWN_IN_MARKUP = re.compile(r"<(?:pre|code|blockquote|samp|kbd|quote|documents?|transcript)\b[^<>]*>$|<!--[^<>]*$", re.IGNORECASE)
"""Matches the end of a line that opens a tag for quoted text or code, or a comment."""
_LAST_FENCE = re.compile(r"\s*```\w*$")
_OPEN_END = re.compile(r"(?:[:\uff1a]|\b(?:is|are|be|like|as|with|using|written))[*_`\s]*$")
"""Matches a line that what follows must complete; with one of the phrases above, such a line announces an example."""
_STATEMENT = _any_of(
    # Usage:
    (
        r"^(?!</)[\W\d_]*(?:(?:an?|the|another|usage|code|simple|short|minimal) )?"
        rf"(?:{_EXAMPLE_WORD}|samples?|usage|\u793a\u4f8b|\u4f8b\u5b50)"
        r"(?: (?:usage|(?:tool |function )?(?:calls?|request|invocation)))?(?: \d+)?(?:(?: ?[:(\u2013\u2014]| - )[^.:]*)?[\W_]*$"
    ),
    # Here is an example:
    rf"\b(?:here|this|that|it|below|the following){_BE} (?:just |only |merely )?(?:an?|some|another|one) (?:\w+ )?{_EXAMPLE_WORD}\b",
    # An example is shown below.
    rf"\b{_EXAMPLE_WORD} (?:is|are) (?:\w+ )?(?:below|here|as follows)\b|\bsee (?:the|this|an) (?:\w+ )?{_EXAMPLE_WORD}\b",
    # It is called like this:
    rf"\b(?:call|{_FORM_WORD}|syntax|form|{_PARTICIPLE})s? (?:is |are |looks? )?(?:\w+ )?(?:like this|as follows|below)\W*$",
    # Note: you call it like this:
    rf"\byou (?:\w+ )?{_CALL_VERB}\b[^.:]* (?:like this|as follows|this way)\W*$",
    # Here's how to use the tool:
    rf"^\W*(?:here|this){_BE} how (?:to|you) (?:\w+ )?{_CALL_VERB}\b",
    # The model emits
    (
        rf"\b{_WRITERS} (?:\w+ )?(?:emits?|outputs?|writes?|sends?|returns?|produces?|generates?|prints?"
        r"|(?:responds?|replies|reply|answers?) with)\W*$"
    ),
    # Instead of
    r"\b(?:instead of|rather than)\W*$",
    # Do not use it like this:
    rf"^\W*(?:please )?(?:do not|don['\u2019]t|never) (?:\w+ )?{_CALL_VERB} (?:this|that|it|the following)\b",
)
"""Matches a sentence or a label that announces an example without a colon."""
_SHOWN_EXAMPLE = re.compile(rf"\b(?:show|give) (?:you |us )?(?:an?|the|some|another|one) (?:\w+ )?{_EXAMPLE_WORD}\W*$", re.IGNORECASE)


def announces_example(line: str) -> bool:
    """Whether a line announces an example, or text that the reader is told to write."""
    if introduces_example(line):
        return True
    line = _collapsed(line)
    sentence = _SENTENCE_END.split(line)[-1]
    is_about_itself = _FIRST_PERSON.search(sentence) or _PROGRESSIVE.match(sentence)
    if states_example(sentence) or asks_approval(sentence) or _ASKS_APPROVAL.search(sentence):
        return True
    if _HEADING.match(line) and _HEADING_TERMS.search(line) and not _USED_EXAMPLE.search(line):
        return not _PROGRESSIVE.match(line) or _EXAMPLE.search(line) is not None
    if not _OPEN_END.search(line):
        if _DENIED.search(sentence) or _SHOWN_EXAMPLE.search(sentence):
            return True
        return bool(_STATEMENT.search(sentence) and not is_about_itself)
    seeks = seeks_example(sentence)
    names_example = seeks or (is_about_itself and (_NAMED_EXAMPLE.search(sentence) or _USED_EXAMPLE.search(sentence)))
    acts_first = is_about_itself and _ACTS_FIRST.search(sentence)
    shows_example = _EXAMPLE.search(_ASIDE.sub("", line) if is_about_itself else line) or (_SHOWING.search(line) and not acts_first)
    if (shows_example and not names_example) or _NOT_DONE.search(line) or refuses_call(line):
        return True
    return bool(_INSTRUCTION.search(line) or _LABEL.search(sentence)) and not is_about_itself and not seeks


def introduces_example(line: str) -> bool:
    """Whether a line that goes on with a call introduces it as an example, as in `e.g. <tool_call>` and `<code><tool_call>`."""
    line = _collapsed(line)
    if _SHOWN_IN_MARKUP.search(line):
        return True
    return bool(_ENDS_WITH_EXAMPLE.search(line)) and not _FIRST_PERSON.search(_SENTENCE_END.split(line)[-1])


def announces_quotation(line: str) -> bool:
    """Whether a line announces what another text contains. Only what directly follows is a quotation."""
    line = _collapsed(line)
    if not _OPEN_END.search(line):
        return False
    return bool(_RECEIVED.search(line) or quotes_text(line) or (_QUOTATION.search(line) and not _FIRST_PERSON.search(line)))


def without_first_sentence(text: str) -> str:
    """Return the sentences after the first one, which may not be whole; empty if there are none."""
    end = _FULL_STOP.search(text)
    return text[end.end() :] if end else ""


def _collapsed(line: str) -> str:
    """Return the line with single spaces and without a fence at its end, so that the patterns take little time for any line."""
    return _LAST_FENCE.sub("", " ".join(line.split()))


def describes_text(line: str) -> bool:
    """Whether a line ends within a sentence about what a text contains or means, or what the model saw in it."""
    sentence = _SENTENCE_END.split(line)[-1]
    if _PERCEIVED.search(sentence):
        return True
    return bool(_DESCRIPTION.search(sentence)) and not _FIRST_PERSON.search(sentence) and not _PROGRESSIVE.match(sentence)


def asks(line: str) -> bool:
    """Whether a line ends within a question."""
    return _QUESTION.match(_SENTENCE_END.split(line)[-1]) is not None


def discusses_calls(line: str) -> bool:
    """Whether a line ends within a sentence about calls that the model does not make in it."""
    sentence = _SENTENCE_END.split(line)[-1]
    if _NOT_DONE.search(sentence) or _CONDITIONAL.search(sentence):
        return True
    return bool(_CALL_TERMS.search(sentence)) and not _FIRST_PERSON.search(sentence) and not _PROGRESSIVE.match(sentence)
