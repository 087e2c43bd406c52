"""Phrases with which a model announces an example of a call, or writes about calls.

Examines one line of prose at a time. Knows the words for "example" in several languages, and instructions in English.
"""

from __future__ import annotations

import re

from callgate.models.dialects.phrase_patterns import ANSWER_VERB, BE, CALL_VERB, MAKE_VERB, SENTENCE_START, any_of
from callgate.models.dialects.phrases_of_other_languages import (
    EXAMPLE_WORDS,
    asks_approval,
    quotes_text,
    refuses_call,
    seeks_example,
    states_example,
)
from callgate.models.dialects.quotation_phrases import QUOTATION, RECEIVED, WRITERS
from callgate.models.dialects.refusal_phrases import ASKS_APPROVAL, CONDITIONAL, DENIED, NOT_DONE

__all__ = [
    "announces_example",
    "announces_quotation",
    "asks",
    "describes_text",
    "discusses_calls",
    "introduces_example",
    "without_first_sentence",
]

_EXAMPLE_WORD = rf"(?:examples?|{EXAMPLE_WORDS}|przyk\u0142ad\w*|\u00f6rnek\w*|contoh\w*|v\u00ed d\u1ee5)(?![./]\w)"
_EXAMPLE_PHRASE = (
    rf"(?:\b(?:for instance|(?:for|zum|par|por|per|na) {_EXAMPLE_WORD}|bijvoorbeeld|hypothetically|(?:for|as an|by way of) illustration"
    r"|to illustrate)\b|\be\.g\.|\bz\. ?b\.)"
)
_LINE_START = (
    rf"^\W*(?:(?:here|below|this|that|it|the following){BE} (?:(?:only|just|merely) )?)?(?:(?:an?|another|one|some|the following) )?"
    rf"(?:(?:\w+ )?(?:{_EXAMPLE_WORD}|illustration|demonstration)|samples?|demo)\b"
)
_REST_OF_SENTENCE = r"(?:(?![.!?]\s+(?-i:[A-Z])).)*$"
"""The rest of one sentence."""
_EXAMPLE = any_of(
    # Example:
    rf"(?:{_EXAMPLE_PHRASE}|{_LINE_START}){_REST_OF_SENTENCE}|\b{_EXAMPLE_WORD}\W*$",
    # 例如
    r"例如|比如|举例|举个例|示例|例えば|例子?[\W_]*$|예를 들[어면]|예시|^\W*예\W*$|\b(?:например|пример\w*)\b|مثال|उदाहरण",
    # Consider this tool call:
    (
        rf"{SENTENCE_START}(?:suppose|imagine|let['\u2019]?s (?:say|assume|pretend) (?:the|an?|that|this|it|you|I|we|someone|one)\b"
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
_PARTICIPLE = r"(?:called|invoked|used|written|formatted|expressed|encoded|represented|made|triggered|emitted|produced|requested)"
_FORM_WORD = r"(?:call |calling |output |message )?(?:format|template|notation|markup|convention|signature|structure|shape)"
_CALL_TERMS = re.compile(
    rf"{_EXAMPLE_PHRASE}|\b(?:{CALL_VERB}s?|called|used|written|wrote|forms?|formats?|syntax|tags?|markers?"
    r"|(?:typ|enter|past|submitt|send|writ|emitt|repeat)ing|(?:output|print|repeat|paste|enter)s?)\b",
    re.IGNORECASE,
)
_THIS_WAY = r"(?:like (?:this|that|so)|this way|in (?:this|the following) (?:way|form|format|manner|syntax|style))"
_INSTRUCTION = any_of(
    # You would write:
    rf"\byou (?:(?:just|only|simply) )?(?:can|could|may|might|must|should|would|need to|have to) (?:\w+ )?{MAKE_VERB}\b",
    # You call it like this:
    rf"{SENTENCE_START}you(?:['\u2019](?:d|ll))? (?:will )?(?:\w+ )?{CALL_VERB}\b|{SENTENCE_START}you['\u2019]d {MAKE_VERB}\b",
    # You can test your parser with:
    r"\byou (?:can|could|may|might|should) [^:.]*\b(?:with|using|via)\W*$",
    # A call looks like this:
    r"\blooks? (?:\w+ )?(?:like|so|as follows)(?: (?:this|that|so|the following))?\W*$",
    # To call it, write:
    rf"(?:^[\W\d]*|[.!?]\s+)(?:in order )?to (?:\w+ )?{CALL_VERB}\b[^:]*, (?:\w+ )?(?:{CALL_VERB}|respond|reply|answer|return|output)\b",
    # Here is how to call it:
    (
        rf"{SENTENCE_START}(?:(?:here(?:['\u2019]s| is)|(?:this|that|it)(?:['\u2019]s| is| shows)|see) )?(?:exactly )?"
        rf"how (?:to|you|one|they|it|this|that|an?|the|\w+s)\b[^:]*\b(?:{CALL_VERB}s?|{_PARTICIPLE}|looks?|works?|done)\b"
    ),
    # Here is how:
    rf"{SENTENCE_START}here(?:['\u2019]s| is) how\W*$",
    # If you want to search, write:
    rf"{SENTENCE_START}if you (?:want|need|wish|like|would like)\b[^:.]*, (?:just |simply )?{CALL_VERB}\W*$",
    # Invoke it like this:
    rf"\b(?:{CALL_VERB}s?|{_PARTICIPLE}|do|does|done|works?)\b[^:.]* {_THIS_WAY}\W*$",
    # Tool calls are written as follows:
    rf"\b(?:{_PARTICIPLE}|works?|done)\b[^:.]* as follows\W*$",
    # A tool call is written as:
    rf"\b(?:is|are|be) (?:\w+ )?{_PARTICIPLE} (?:(?:as|by|via|thus|so)\b|(?:using|with)\W*$)",
    # Such a call is written
    r"\b(?:is|are|be) (?:\w+ )?(?:written|formatted|expressed|encoded|represented)\W*$",
    # A valid call is:
    rf"{SENTENCE_START}an? (?:\w+ ){{0,3}}(?:calls?|invocation|request) (?:is|has|contains|reads)\W*$",
    # You invoke it with:
    rf"\b{CALL_VERB} (?:it|them) (?:like|with|as|by|via|using)\W*$",
    # Something like this:
    r"^\W*(?:or |and )?(?:something )?(?:like (?:this|that|so)|like|such as|as in|along (?:the|these) lines(?: of)?)\W*$",
    # A call would look like:
    (
        r"\b(?:calls?|syntax|format|command|message|output|request|invocation|markup|block|tags?|answer|response|reply) would "
        r"(?:be|look|read)\b"
    ),
    # Claude would write:
    rf"(?:\bwould|\w['\u2019]d)(?: \w+)? {ANSWER_VERB}\W*$",
    # Given the call:
    r"^\W*given (?:the|this|such an?) (?:\w+ )?(?:call|invocation|request|message|output|text|input)\W*$",
    # What does this mean:
    r"^\W*(?:question\W+)?what (?:does|do|happens|would)\b"
    r"|(?:^\W*|\b(?:ask|asked|explain) )what (?:this|that|it) (?:means|does|would do)\W*$",
    # Strings such as:
    r"\bsuch as\W*$",
    # Write this:
    (
        rf"{SENTENCE_START}(?:in (?:\w+ ){{1,4}}?\w+, )?(?:just |simply )?(?:(?:write|type|emit|paste|add|insert|include)(?= ?:)"
        r"|(?:copy|copy and paste|add|insert|include|save) (?:this|that|it|the following)\b"
        r"|try (?:this|that|it)(?: out| yourself)?\W*$"
        r"|(?:write|type|emit|paste|put|send|output|(?:respond|reply|answer) with) "
        r"(?:this|that|it|exactly|only|the following|(?:an?|such an?) (?:\w+ )?call)\b)"
    ),
)
"""Matches text that tells the reader how to make a call."""
_LABEL = any_of(
    # Format:
    (
        r"^\W*(?!(?:in (?:the )?(?:required|requested|correct|right|specified|json|xml)|following (?:the|your)) (?:\w+ )?format)"
        rf"(?:\w+ ){{0,3}}(?:usage|syntax|{_FORM_WORD}|formats|templates|notations)\W*$"
    ),
    # The format is:
    (
        rf"\b(?:syntax|form|pattern|schema|{_FORM_WORD})\b(?: (?:for|of|used|that|which)\b[^:.]*)?"
        rf" (?:is|are|was|were|looks?|must be|should be)(?: [\w'`<>]+){{0,4}}\W*$"
    ),
    # Use this format:
    rf"\b(?:has|have|uses?|takes?|follows?) (?:the|this|that|an?) (?:\w+ )?(?:syntax|{_FORM_WORD})\W*$",
    # Expected tool call:
    (
        r"^\W*(?:an? |the )?(?:expected|hypothetical|typical|previous|earlier|original|failed|mock|fake|dummy|simulated|pseudo"
        r"|imaginary|fictional) (?:\w+ ){0,2}"
        r"(?:calls?|invocation|request|output|response|answer|message)(?: (?:is|was|would be|reads))?\W*$"
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
    # This is the format that Hermes uses:
    rf"\b(?:this|that|here|it)(?:['\u2019]s| is) the (?:\w+ )?(?:{_FORM_WORD}|syntax|markup) (?:that|which|of|for|used)\b[^:.]*\W*$",
    # A test input for the parser:
    r"^\W*(?:an? |the |another )?(?:test|sample|dummy) (?:input|case|string|message|prompt)s?(?: (?:for|of|to) [^:.]*)?\W*$",
    # The equivalent call in XML:
    (
        r"^\W*(?:the |an? )?(?:equivalent|corresponding|same) (?:\w+ )?(?:calls?|request|invocation) (?:in|as) "
        r"(?:xml|json|yaml|python|text)\W*$"
    ),
    # Here's a template:
    rf"{SENTENCE_START}here{BE} (?:an?|the|your) (?:\w+ )?(?:template|snippet|excerpt)\W*$",
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
        r"(?:fails?|failed|wrong|invalid|incorrect|malformed|rejected|refused|blocked|denied"
        r"|forbidden|stopped|not (?:work|valid|allowed|made|sent|run))\W*$"
    ),
    # Don't call it like this:
    rf"{SENTENCE_START}(?:please )?(?:do not|don['\u2019]t|never) (?:\w+ )?{MAKE_VERB}\b",
    # So ruft man es auf:
    r"\bso (?:ruft man|wird (?:es|er|sie|das|ein)|schreibt man|geht es)\b|\b(?:on l['\u2019]appelle|s['\u2019](?:appelle|utilise)) comme\b",
    # 调用方式如下
    r"\bse (?:llama|usa|invoca|escribe) (?:as\u00ed|de esta)|用法|调用(?:方法|方式|格式)|格式(?:为|如下|\W*$)|使い方|呼び出し方|書き方",
)
"""Matches a line that names what follows: the form of calls, or a wrong call."""
_SHOWING = any_of(
    # Let me show you how to call it:
    (
        r"\b(?:show|demonstrate|illustrate|explain)\w*\b[^:]*"
        rf"\b(?:how\b[^:]*\b(?:{CALL_VERB}|{_PARTICIPLE}|works?)\b|what an? (?:\w+ )?call (?:would )?looks? like"
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
    rf" (?!(?:will|need|have|{CALL_VERB}|show|demonstrate|illustrate|explain)\b)\w"
    r"|\b(?:after|by) (?!(?:using|writing|giving|showing|typing)\b)\w+ing\b",
    re.IGNORECASE,
)
"""Matches text with which a model says what it does before or while it explains something."""
_PERCEIVED = re.compile(r"\b(?:I|we) (?:\w+ )?(?:found|got|received|saw|read|noticed)(?: the \w+)? $", re.IGNORECASE)
_QUESTION = re.compile(
    r"^\W*(?:question\W+)?(?:what|why|how|is|are|was|were|do|does|did|can|could|should|would|which|when|where) ", re.IGNORECASE
)
_DESCRIPTION = re.compile(
    r"\b(?:match(?:es|ed)?|contain(?:s|ed)?|include[sd]?|has|have|had|means?|says?|said|saw|parse[sd]?|remove[sd]?|accept(?:s|ed)?|answer(?:s|ed)"
    r"|(?:begin|start|end)s? with"
    r"|return(?:s|ed)|emit(?:s|ted)|outputs|print(?:s|ed)|difference between)(?: \w+)? $|\b(?:the|this|that|a) (?:\w+ )?"
    rf"(?:text|string|message|line|word|token|sequence|call|block|tag|output|answer) $|{_QUESTION.pattern}",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\s*(?:#{1,6} |(?:\*\*|__)[^*_]+(?:\*\*|__)\s*$)")
_HEADING_TERMS = re.compile(rf"\b{_EXAMPLE_WORD}\b|\b(?:usage|syntax|how (?:to|you) {CALL_VERB})\b|\bformat\W*$|用法|示例", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:[Ii](?!\.e\b)|[Ww]e|[Ll]et)\b")
_NOT_PROGRESSIVE = r"(?:[Ss]ome|[Aa]ny|[Ee]very|[Nn]o)thing\b|[Ff]ollowing\b|[Dd]uring\b|[Ss]tring\b|[Aa]ccording\b|[Qq]uoting\b"
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
_STATEMENT = any_of(
    # Usage:
    (
        r"^(?!</)[\W\d_]*(?:(?:an?|the|another|usage|code|simple|short|minimal) )?"
        rf"(?:{_EXAMPLE_WORD}|samples?|usage|\u793a\u4f8b|\u4f8b\u5b50)"
        r"(?: (?:usage|(?:tool |function )?(?:calls?|request|invocation)))?(?: \d+)?(?:(?: ?[:(\u2013\u2014]| - )[^.:]*)?[\W_]*$"
    ),
    # Here is an example:
    rf"\b(?:here|this|that|it|below|the following){BE} (?:just |only |merely )?(?:an?|some|another|one) (?:\w+ )?{_EXAMPLE_WORD}\b",
    # An example is shown below.
    rf"\b{_EXAMPLE_WORD} (?:is|are) (?:\w+ )?(?:below|here|as follows)\b|\bsee (?:the|this|an) (?:\w+ )?{_EXAMPLE_WORD}\b",
    # It is called like this:
    rf"\b(?:call|{_FORM_WORD}|syntax|form|{_PARTICIPLE})s? (?:is |are |looks? )?(?:\w+ )?(?:like this|as follows|below)\W*$",
    # Note: you call it like this:
    rf"\byou (?:\w+ )?{CALL_VERB}\b[^.:]* (?:like this|as follows|this way)\W*$",
    # Here's how to use the tool:
    rf"^\W*(?:here|this){BE} how (?:to|you) (?:\w+ )?{CALL_VERB}\b",
    # The model emits
    (
        rf"\b{WRITERS} (?:\w+ )?(?:emits?|outputs?|writes?|sends?|returns?|produces?|generates?|prints?"
        r"|(?:responds?|replies|reply|answers?) with)\W*$"
    ),
    # Instead of
    r"\b(?:instead of|rather than)\W*$",
    # Do not use it like this:
    rf"^\W*(?:please )?(?:do not|don['\u2019]t|never) (?:\w+ )?{CALL_VERB} (?:this|that|it|the following)\b",
)
"""Matches a sentence or a label that announces an example without a colon."""
_SHOWN_EXAMPLE = re.compile(rf"\b(?:show|give) (?:you |us )?(?:an?|the|some|another|one) (?:\w+ )?{_EXAMPLE_WORD}\W*$", re.IGNORECASE)


def announces_example(line: str) -> bool:
    """Whether a line announces an example, or text that the reader is told to write."""
    if introduces_example(line):
        return True
    line = _collapse_spaces(line)
    sentence = _SENTENCE_END.split(line)[-1]
    is_about_itself = _FIRST_PERSON.search(sentence) or _PROGRESSIVE.match(sentence)
    if states_example(sentence) or asks_approval(sentence) or ASKS_APPROVAL.search(sentence):
        return True
    if _HEADING.match(line) and _HEADING_TERMS.search(line) and not _USED_EXAMPLE.search(line):
        return not _PROGRESSIVE.match(line) or _EXAMPLE.search(line) is not None
    if not _OPEN_END.search(line):
        if DENIED.search(sentence) or _SHOWN_EXAMPLE.search(sentence):
            return True
        return bool(_STATEMENT.search(sentence) and not is_about_itself)
    seeks = seeks_example(sentence)
    names_example = seeks or (is_about_itself and (_NAMED_EXAMPLE.search(sentence) or _USED_EXAMPLE.search(sentence)))
    acts_first = is_about_itself and _ACTS_FIRST.search(sentence)
    shows_example = _EXAMPLE.search(_ASIDE.sub("", line) if is_about_itself else line) or (_SHOWING.search(line) and not acts_first)
    if (shows_example and not names_example) or NOT_DONE.search(line) or refuses_call(line):
        return True
    return bool(_INSTRUCTION.search(line) or _LABEL.search(sentence)) and not is_about_itself and not seeks


def introduces_example(line: str) -> bool:
    """Whether a line that goes on with a call introduces it as an example, as in `e.g. <tool_call>` and `<code><tool_call>`."""
    line = _collapse_spaces(line)
    if _SHOWN_IN_MARKUP.search(line):
        return True
    return bool(_ENDS_WITH_EXAMPLE.search(line)) and not _FIRST_PERSON.search(_SENTENCE_END.split(line)[-1])


def announces_quotation(line: str) -> bool:
    """Whether a line announces what another text contains. Only what directly follows is a quotation."""
    line = _collapse_spaces(line)
    if not _OPEN_END.search(line):
        return False
    is_about_itself = _FIRST_PERSON.search(line) or _PROGRESSIVE.match(line)
    return bool(RECEIVED.search(line) or quotes_text(line) or (QUOTATION.search(line) and not is_about_itself))


def without_first_sentence(text: str) -> str:
    """Return the sentences after the first one, which may not be whole; empty if there are none."""
    end = _FULL_STOP.search(text)
    return text[end.end() :] if end else ""


def _collapse_spaces(line: str) -> str:
    """Return the line with single spaces, so that the patterns take little time for any line, without a fence or brackets at its end."""
    return _LAST_FENCE.sub("", " ".join(line.split())).rstrip("[{ ")


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
    if NOT_DONE.search(sentence) or CONDITIONAL.search(sentence):
        return True
    return bool(_CALL_TERMS.search(sentence)) and not _FIRST_PERSON.search(sentence) and not _PROGRESSIVE.match(sentence)
