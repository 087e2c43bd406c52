"""Phrases with which a model announces an example of a call, or writes about calls.

Examines one line of prose at a time. Knows the words for "example" in several languages, and instructions in English.
"""

from __future__ import annotations

import re

__all__ = ["announces_example", "announces_quotation", "discusses_calls", "introduces_example"]

_EXAMPLE_WORD = r"(?:examples?|beispiele?|exemples?|ejemplos?|exemplos?|esempio|esempi)"
_EXAMPLE_PHRASE = rf"(?:\b(?:for instance|(?:for|zum|par|por|per) {_EXAMPLE_WORD})\b|\be\.g\.|\bz\. ?b\.)"
_BE = r"(?:['\u2019]s| is| are)"
_LINE_START = (
    rf"^\W*(?:(?:here|below|this|that|it|the following){_BE} )?(?:(?:an?|another|one|some|the following) )?"
    rf"(?:(?:\w+ )?{_EXAMPLE_WORD}|samples?)\b"
)
_SENTENCE_START = r"(?:^|[.!?]\s+)\W*(?:(?:and|so|now|then|here),? )?"
_REST_OF_SENTENCE = r"(?:(?![.!?]\s+(?-i:[A-Z])).)*$"
"""The rest of one sentence."""
_EXAMPLE = re.compile(
    rf"(?:{_EXAMPLE_PHRASE}|{_LINE_START}){_REST_OF_SENTENCE}|\b{_EXAMPLE_WORD}\W*$"
    r"|例如|比如|举例|示例|例えば|例[\W_]*$|예를 들어|예시|\b(?:например|пример\w*)\b"
    rf"|{_SENTENCE_START}(?:suppose|imagine|consider (?:this|the following|an?|such))\b",
    re.IGNORECASE,
)
_CALL_VERB = r"(?:call|use|invoke|run|try|write|send|emit|put|type)"
_PARTICIPLE = r"(?:called|invoked|used|written|formatted|expressed|encoded|represented|made|triggered|emitted|produced|requested)"
_FORM_WORD = r"(?:call |calling |output |message )?(?:format|template|notation|markup|convention|signature|structure|shape)"
_CALL_TERMS = re.compile(
    rf"{_EXAMPLE_PHRASE}|\b(?:{_CALL_VERB}s?|called|used|written|wrote|forms?|formats?|syntax|tags?|markers?)\b", re.IGNORECASE
)
_THIS_WAY = r"(?:like (?:this|that|so)|this way|in (?:this|the following) (?:way|form|format|manner|syntax|style))"
_INSTRUCTION = re.compile(
    rf"\byou (?:can|could|may|might|must|should|would|need to|have to) (?:\w+ )?{_CALL_VERB}\b"
    rf"|{_SENTENCE_START}you(?:['\u2019](?:d|ll))? (?:will )?(?:\w+ )?{_CALL_VERB}\b"
    rf"|\blooks? (?:\w+ )?(?:like|so|as follows)(?: (?:this|that|so|the following))?\W*$"
    rf"|(?:^[\W\d]*|[.!?]\s+)(?:in order )?to (?:\w+ )?{_CALL_VERB}\b[^:]*, (?:\w+ )?(?:{_CALL_VERB}|respond|reply|answer|return|output)\b"
    rf"|{_SENTENCE_START}(?:(?:here(?:['\u2019]s| is)|(?:this|that|it)(?:['\u2019]s| is| shows)|see) )?(?:exactly )?"
    rf"how (?:to|you|one|they|it|this|that|an?|the|\w+s)\b[^:]*\b(?:{_CALL_VERB}s?|{_PARTICIPLE}|looks?|works?|done)\b"
    rf"|{_SENTENCE_START}here(?:['\u2019]s| is) how\W*$"
    rf"|\b(?:{_CALL_VERB}s?|{_PARTICIPLE}|do|does|done|works?)\b[^:.]* {_THIS_WAY}\W*$"
    rf"|\b(?:{_PARTICIPLE}|works?|done)\b[^:.]* as follows\W*$"
    rf"|\b(?:is|are|be) (?:\w+ )?{_PARTICIPLE} (?:(?:as|by|via|thus|so)\b|(?:using|with)\W*$)"
    r"|\b(?:is|are|be) (?:\w+ )?(?:written|formatted|expressed|encoded|represented)\W*$"
    rf"|{_SENTENCE_START}an? (?:\w+ ){{0,3}}(?:calls?|invocation|request) (?:is|has|contains|reads)\W*$"
    rf"|\b{_CALL_VERB} (?:it|them) (?:like|with|as|by|via|using)\W*$"
    r"|^\W*(?:or |and )?(?:something )?(?:like (?:this|that|so)|like|such as|as in|along (?:the|these) lines(?: of)?)\W*$"
    r"|\b(?:calls?|syntax|format|command|message|output|request|invocation|markup|block|tags?) would (?:be|look|read)\b"
    rf"|{_SENTENCE_START}(?:in (?:\w+ ){{1,4}}?\w+, )?(?:just |simply )?(?:(?:write|type|emit|paste|add|insert|include)(?= ?:)"
    r"|(?:copy|copy and paste) (?:this|that|it|the following)\b"
    r"|(?:write|type|emit|paste|put|send|output|(?:respond|reply|answer) with) "
    r"(?:this|that|it|exactly|only|the following|(?:an?|such an?) (?:\w+ )?call)\b)",
    re.IGNORECASE,
)
"""Matches text that tells the reader how to make a call."""
_LABEL = re.compile(
    rf"^\W*(?:\w+ ){{0,3}}(?:usage|syntax|{_FORM_WORD}|formats|templates|notations)\W*$"
    rf"|\b(?:syntax|form|{_FORM_WORD})\b(?: (?:for|of|used|that|which)\b[^:.]*)?"
    rf" (?:is|are|looks?|must be|should be)(?: [\w'`<>]+){{0,4}}\W*$"
    rf"|\b(?:has|have|uses?|takes?|follows?) (?:the|this|that|an?) (?:\w+ )?(?:syntax|{_FORM_WORD})\W*$"
    r"|^\W*(?:an? |the )?(?:expected|hypothetical|typical|previous|earlier|original|failed) (?:\w+ ){0,2}"
    r"(?:calls?|invocation|request|output|response|answer|message)\W*$"
    r"|^\W*test cases?\W*$|\bsieht (?:\w+ )?(?:so|wie folgt) aus\b"
    r"|^\W*(?:wrong|incorrect|bad|invalid|not (?:so|like this)|instead of|avoid)\W*$"
    rf"|{_SENTENCE_START}(?:do not|don['\u2019]t|never) (?:\w+ )?{_CALL_VERB}\b"
    r"|\bso (?:ruft man|wird (?:es|er|sie|das|ein)|schreibt man|geht es)\b|\b(?:on l['\u2019]appelle|s['\u2019](?:appelle|utilise)) comme\b"
    r"|\bse (?:llama|usa|invoca|escribe) (?:as\u00ed|de esta)|用法|调用(?:方法|方式|格式)|格式(?:为|如下)|使い方|呼び出し方|書き方",
    re.IGNORECASE,
)
"""Matches a line that names what follows: the form of calls, or a wrong call."""
_SHOWING = re.compile(
    r"\b(?:show|demonstrate|illustrate|explain)\w*\b[^:]*"
    rf"\b(?:how\b[^:]*\b(?:{_CALL_VERB}|{_PARTICIPLE}|works?)\b|what an? (?:\w+ )?call (?:would )?looks? like)",
    re.IGNORECASE,
)
"""Matches text with which a model says that it shows a call, also about itself."""
_SOURCE = (
    r"(?:docs?|documentation|readme|manual|guide|tutorial|spec|specification|template|prompt|logs?|transcript|article|page|paper|snippet"
    r"|parser|tests?|changelog|comments?|issue|instructions?|post|answer|message|text|file|code|results?|output|response|e-?mail|document"
    r"|(?:web ?)?site|web ?page|ticket|description|attachment|content|data)"
)
_ACTOR = rf"(?:tool|function|command|search|query|server|api|script|program|shell|{_SOURCE})"
_SHOWN = r"(?:calls?|line|block|snippet|text|content|string|message|result|output|response|answer|instructions?|json|xml|data)"
_QUOTED = (
    r"(?: (?:this|that|the following|exactly|to (?:write|use|call|send)"
    rf"|(?:an?|this|these|some|such an?|the following) (?:\w+ )?{_SHOWN}))?\W*$"
)
_QUOTATION = re.compile(
    rf"\b{_SOURCE} (?:\w+ )?(?:say|show|read|state|contain|describe|give|suggest|recommend|mention|expect|include|ha)s?{_QUOTED}"
    rf"|\b(?:they|he|she|someone|somebody|the (?:user|author|other \w+|model|assistant|agent|developer)|you|{_SOURCE}) "
    r"(?:(?:has|have|had) )?(?:\w+ )?(?:wrote|said|called|invoked|ran|executed|emitted|generated|produced|issued|made|sent|posted|typed"
    rf"|quoted|replied|answered|showed){_QUOTED}"
    rf"|\b(?:the|a) (?:model|assistant|agent) (?:(?:should|would|could|may|might|can) )?(?:\w+ )?"
    rf"(?:emit|output|return|produce|generate|write|respond with|reply with)(?:s|ed)?{_QUOTED}"
    rf"|\b(?:the|a) (?:model|assistant|agent) (?:\w+ )?(?:responds|replies|responded|replied) with{_QUOTED}"
    r"|\b(?:calls?|invocation|request|attempt) (?:(?:that|which) )?(?:failed|was rejected|did not work|didn['\u2019]t work)\W*$"
    rf"|^\W*(?:from|in|per|according to) (?:the|its|their|your) (?:\w+ )?{_SOURCE}\W*$"
    rf"|\b{_ACTOR} (?:\w+ )?(?:return(?:s|ed)|respond(?:s|ed)(?: with)?|print(?:s|ed)|contained|included|had|output|gave|sent){_QUOTED}"
    rf"|\b(?:results?|output|response|reply|answer) (?:(?:of|from) \w+ \w+ )?(?:was|were){_QUOTED}"
    r"|^\W*(?:as documented|for reference|quote|quoting(?: [\w']+){0,4})\W*$",
    re.IGNORECASE,
)
"""Matches a line that announces what another text contains."""
_RECEIVED = re.compile(
    rf"\b(?:I|we) (?:\w+ )?(?:found|got|received|saw|read|see) (?:this|that|the following|the|an?)(?: (?:\w+ )?{_SHOWN})?"
    rf" (?:in|inside|from|on) (?:the|a|an|its|your|their) (?:\w+ )?{_ACTOR}\W*$",
    re.IGNORECASE,
)
"""Matches a line with which a model says what it received, also about itself."""
_PAST = r"(?:called|used|invoked|ran|tried|wrote|sent|emitted|made)"
_NOT = r"(?: not|n['\u2019]t)"
_REST_OF_CLAUSE = r"\b[^.,;:]*[:\s]*$"
_NOT_DONE = re.compile(
    rf"\b(?:I|we) (?:\w+ )?(?:won['\u2019]t|can(?:not|['\u2019]t)|(?:will|would|could|can|should|must|may|do|did|am|are|was|were){_NOT}) "
    rf"(?:\w+ )?(?:{_CALL_VERB}|make|execute|calling|using|running|making|executing){_REST_OF_CLAUSE}"
    rf"|\b(?:earlier|previously|before|last time)\b[^.,;:]*\b(?:I|we) (?:had )?{_PAST}{_REST_OF_CLAUSE}"
    rf"|\b(?:I|we) (?:had )?(?:already|previously|earlier|just) {_PAST}{_REST_OF_CLAUSE}"
    rf"|\b(?:I|we)(?: (?:would|could|might)|['\u2019]d) (?:\w+ )?(?:write|put|type|emit){_REST_OF_CLAUSE}"
    rf"|\b(?:I|we)(?: would|['\u2019]d) have {_PAST}{_REST_OF_CLAUSE}",
    re.IGNORECASE,
)
"""Matches the end of a clause in which the model says that it does not make a call, made it before, or could write it."""
_CONDITIONAL = re.compile(rf"\b(?:I|we) (?:would|could|might) (?:\w+ )?{_CALL_VERB}{_REST_OF_CLAUSE}", re.IGNORECASE)
_HEADING = re.compile(r"\s*(?:#{1,6} |(?:\*\*|__)[^*_]+(?:\*\*|__)\s*$)")
_HEADING_TERMS = re.compile(rf"\b{_EXAMPLE_WORD}\b|\b(?:usage|syntax|how (?:to|you) {_CALL_VERB})\b|\bformat\W*$|用法|示例", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:[Ii](?!\.e\b)|[Ww]e|[Ll]et)\b")
_NOT_PROGRESSIVE = r"(?:[Ss]ome|[Aa]ny|[Ee]very|[Nn]o)thing\b|[Ff]ollowing\b|[Dd]uring\b|[Ss]tring\b"
_PROGRESSIVE = re.compile(rf"\W*(?:[Nn]ow )?(?!{_NOT_PROGRESSIVE})[A-Z]?[a-z]+ing\b")
_SENTENCE_END = re.compile(r"(?<!\be\.g)[.!?:]\s+(?=[^a-z]|$)")
_ENDS_WITH_EXAMPLE = re.compile(rf"{_EXAMPLE_PHRASE},?\s*$", re.IGNORECASE)
_NAMED_EXAMPLE = re.compile(rf"\b(?:from|in|of) (?:the|this|that|your) {_EXAMPLE_WORD}\W*$", re.IGNORECASE)
"""Matches the end of a line that refers to an example which was given before."""
_LAST_FENCE = re.compile(r"\s*```\w*$")
_OPEN_END = re.compile(r"(?:[:\uff1a]|\b(?:is|are|be|like|as|with|using|written))[*_`\s]*$")
"""Matches a line that what follows must complete; with one of the phrases above, such a line announces an example."""


def announces_example(line: str) -> bool:
    """Whether a line announces an example, or text that the reader is told to write."""
    if _LAST_FENCE.search(line) and introduces_example(line):
        return True
    line = _collapsed(line)
    if _HEADING.match(line) and _HEADING_TERMS.search(line):
        return True
    if not _OPEN_END.search(line):
        return False
    sentence = _SENTENCE_END.split(line)[-1]
    is_about_itself = _FIRST_PERSON.search(sentence) or _PROGRESSIVE.match(sentence)
    names_example = is_about_itself and _NAMED_EXAMPLE.search(sentence)
    if (_EXAMPLE.search(line) and not names_example) or _SHOWING.search(line) or _NOT_DONE.search(line):
        return True
    return bool(_INSTRUCTION.search(line) or _LABEL.search(sentence)) and not is_about_itself


def introduces_example(line: str) -> bool:
    """Whether a line that goes on with a call introduces it as an example, as in `e.g. <tool_call>`."""
    line = _collapsed(line)
    return bool(_ENDS_WITH_EXAMPLE.search(line)) and not _FIRST_PERSON.search(_SENTENCE_END.split(line)[-1])


def announces_quotation(line: str) -> bool:
    """Whether a line announces what another text contains. Only what directly follows is a quotation."""
    line = _collapsed(line)
    if not _OPEN_END.search(line):
        return False
    return bool(_RECEIVED.search(line) or (_QUOTATION.search(line) and not _FIRST_PERSON.search(line)))


def _collapsed(line: str) -> str:
    """Return the line with single spaces and without a fence at its end, so that the patterns take little time for any line."""
    return _LAST_FENCE.sub("", " ".join(line.split()))


def discusses_calls(line: str) -> bool:
    """Whether a line ends within a sentence about calls that the model does not make in it."""
    sentence = _SENTENCE_END.split(line)[-1]
    if _NOT_DONE.search(sentence) or _CONDITIONAL.search(sentence):
        return True
    return bool(_CALL_TERMS.search(sentence)) and not _FIRST_PERSON.search(sentence) and not _PROGRESSIVE.match(sentence)
