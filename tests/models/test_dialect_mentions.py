"""A call that is only mentioned is not a call: in prose, code, quotations, examples and reasoning. A real call next to it is one."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.models.dialects import DIALECTS, FoundCall, ParsedText, ReasoningPart, TextPart, TextReader, collect_parts, read_text
from tests.models.dialect_texts import NO_CALLS, SEARCH, TOOLS, calls_in

NOBODY_SAID: dict[str, Any] = {}


@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS.keys())
def test_a_mentioned_call_is_not_a_call_and_stays_in_the_text(text: str) -> None:
    """Prose, code, quotations and answers: no call runs because the text mentions it."""
    reading = read_text(text, TOOLS)
    assert reading.calls == ()
    assert reading.content + reading.reasoning == text.replace("<think>", "").replace("</think>", "") or "<think>" in text


def test_without_known_tools_only_an_unambiguous_object_is_a_call() -> None:
    """An object such as `{"name": ..., "age": ...}` may be an answer."""
    assert calls_in(read_text('{"name": "f", "parameters": {"a": 1}}', NOBODY_SAID)) == [("f", {"a": 1})]
    assert read_text('{"action": "f", "input": {"a": 1}}', NOBODY_SAID).calls == ()
    assert read_text('{"name": "Ann", "age": 3}', NOBODY_SAID).calls == ()


@pytest.mark.parametrize("hint", [None, "bare-json", "json-in-text"])
@pytest.mark.parametrize(
    "text",
    [
        f"I look for an example:\n\nNow I call it:\n{SEARCH}",
        f"For example, x. I will look for it now:\n{SEARCH}",
        f"Let me run an example query:\n{SEARCH}",
        f"Let me create the example file:\n```json\n{SEARCH}\n```",
        f"As they wrote:\n> What is x?\n\nI look:\n{SEARCH}",
        f'They wrote "what is x".\n{SEARCH}',
        f'"""\nWhat is x?\n"""\n{SEARCH}',
        f"For example:\n- x\nI look.\n{SEARCH}",
        f"Example:\n<think>No.</think>{SEARCH}",
        f"For example, x. I look:\n<tool_call>{SEARCH}</tool_call>",
        f"That was the example:\n```\nx\n```\nNow I look.\n<tool_call>{SEARCH}</tool_call>",
        f"```xml\n<tool_call>{SEARCH}</tool_call>\n```",
        f"I look:\n```tool_call\n{SEARCH}\n```",
        f"I look for ``x''. <tool_call>{SEARCH}</tool_call>",
        f"I look for ``x``. <tool_call>{SEARCH}</tool_call>",
        f"`a` and ``b`` <tool_call>{SEARCH}</tool_call>",
        f'{{"steps": [1]}}\n{SEARCH}',
        f"{{ not closed\n{SEARCH}",
        f"[note\nThen:\n{SEARCH}",
        f"[1] says so.\n{SEARCH}",
        f"To find out, I will call the tool:\n{SEARCH}",
        f"Here is the call you need:\n```json\n{SEARCH}\n```",
        f"It looks like you want to know x:\n{SEARCH}",
        f"To find x, let us use this call:\n```json\n{SEARCH}\n```",
        f"I use <tool_call>{SEARCH}</tool_call> to look.",
        f"so i'll use <tool_call>{SEARCH}</tool_call> to look.",
        f"Calling <tool_call>{SEARCH}</tool_call> now.",
        f"Wait<tool_call>{SEARCH}</tool_call>and see",
        f"This is a call. <tool_call>{SEARCH}</tool_call> Wait.",
    ],
)
def test_a_call_after_prose_about_examples_is_a_call(text: str, hint: str | None) -> None:
    """Only a line that announces an example makes the text after it an example, and a line of prose ends the example."""
    assert calls_in(read_text(text, TOOLS, dialect=hint)) == [("search", {"query": "x"})]


@pytest.mark.parametrize("hint", ["bare-json", "json-in-text", "fenced-json"])
@pytest.mark.parametrize(
    "kind",
    [
        *("a quotation", "lines between quotes", "an example", "an example in a fence", "two examples"),
        *("a plan on lines of its own", "a plan on one line", "a plan with brackets in its text"),
    ],
)
def test_a_dialect_hint_does_not_turn_an_example_into_a_call(kind: str, hint: str) -> None:
    """A hint names the form of calls; it does not make every text of this form a call."""
    assert read_text(NO_CALLS[kind], TOOLS, dialect=hint).calls == ()


_WRITES_PROSE = ("gigachat", "harmony", "json-in-text")
"""Calls of these dialects contain words, which end an example as a line of prose does."""


@pytest.mark.parametrize("frame", ["For example:\n\n{}\n", "Here is an example:\n```\n{}\n```\n", "Write ``{}`` for it."])
@pytest.mark.parametrize("name", [name for name, of in DIALECTS.items() if "`" not in of.example and name not in _WRITES_PROSE])
def test_the_example_of_a_family_is_not_a_call_where_it_is_shown_as_an_example(name: str, frame: str) -> None:
    """With and without special tokens, with and without a hint."""
    example = DIALECTS[name].example
    text = frame.format(example if "\n" in frame else example.partition("\n")[0])
    for hint in (None, name):
        assert read_text(text, TOOLS, dialect=hint).calls == ()


_TAKES_COMMAS = ("granite", "mistral", "gigachat", "phi4")
"""Calls of these dialects may be separated by characters that also separate parts of a sentence."""


@pytest.mark.parametrize("frame", ["Write `{}` for it.", 'Write "{}" for it.', "For example: {}\n", "> {}", "The format is {}, as said."])
@pytest.mark.parametrize("name", [name for name, of in DIALECTS.items() if not of.is_unmarked])
def test_a_quoted_call_is_text_on_all_its_lines(name: str, frame: str) -> None:
    """Otherwise the rest of a quoted call that starts on a line of its own could be read as a call."""
    if "as said" in frame and name in _TAKES_COMMAS:
        return
    text = frame.format(DIALECTS[name].example)
    for hint in (None, name):
        assert read_text(text, TOOLS, dialect=hint) == ParsedText(calls=(), content=text, reasoning="")


@pytest.mark.parametrize("name", [*_WRITES_PROSE, "react", "inkling"])
def test_the_example_of_a_family_is_not_a_call_in_a_fence_of_an_example(name: str) -> None:
    """The fence contains all of the example, also if a line of the example is prose."""
    text = f"For example:\n```\n{DIALECTS[name].example}\n```\nThat is all."
    assert read_text(text, TOOLS, dialect=name).calls == ()


@pytest.mark.parametrize("call", ["Action: search\nAction Input: {}", 'Action: ```json\n[{"tool_name": "search", "parameters": {}}]\n```'])
@pytest.mark.parametrize("line", ["For example:", "The documentation says:"])
def test_the_labels_of_an_agent_prompt_do_not_end_an_example(line: str, call: str) -> None:
    assert read_text(f"{line}\n\nThought: I look it up.\n{call}\n\nThat is all.", TOOLS).calls == ()


@pytest.mark.parametrize(
    "call",
    [
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        (
            '<|tool_calls_section_begin|><|tool_call_begin|>search:0<|tool_call_argument_begin|>{"query": "x"}<|tool_call_end|>'
            "<|tool_calls_section_end|>"
        ),
        '<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "x"}<|call|>',
        '<|tool_calls|><|tool_call:begin|>1<|tool_call:name|>search<|tool_call:args|>{"query": "x"}<|tool_call:end|><|calls|>',
    ],
)
def test_a_quoted_section_of_calls_is_text(call: str) -> None:
    """The quote stands before the section's own marker, not before the marker of the call."""
    text = f'The manual says "{call}" is the form.'
    assert read_text(text, TOOLS) == ParsedText(calls=(), content=text, reasoning="")
    assert calls_in(read_text(f"The manual says so. {call}", TOOLS)) == [("search", {"query": "x"})]


HERMES = f"<tool_call>\n{SEARCH}\n</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        f"The format is {HERMES}, and I do it:\n{HERMES}",
        f"Write `{HERMES}` for it. I do: {HERMES}",
        f"For example: {HERMES}\n\nSo I call it.\n{HERMES}",
        f"A ` is no code. {HERMES}",
    ],
)
def test_a_call_after_a_quoted_call_is_a_call(text: str) -> None:
    """A quotation of any number of lines counts as a word of its line, and ends at its closing mark."""
    assert calls_in(read_text(text, TOOLS)) == [("search", {"query": "x"})]


@pytest.mark.parametrize("text", [f"The format is {HERMES}, as said.", f"Write `{HERMES}` for it."])
def test_a_quoted_call_is_not_a_call_in_a_truncated_message(text: str) -> None:
    for place in range(len(text)):
        assert read_text(text[:place], TOOLS, partial=True).calls == ()


def test_a_call_may_follow_a_sentence_on_the_same_line() -> None:
    """Some models write no line break before the call. If the sentence continues after the object, it only mentions the call."""
    text = 'I look it up. {"tool": "search", "parameters": {"query": "x"}}'
    assert read_text(text, TOOLS).content == "I look it up. "
    assert len(read_text(text, TOOLS).calls) == 1
    assert read_text(f"{text} is what I write.", TOOLS).calls == ()


def test_harmony_commentary_is_content_and_analysis_is_reasoning() -> None:
    """Harmony's commentary channel is a preamble, not reasoning."""
    start = "<|start|>assistant<|channel|>"
    text = f"<|channel|>analysis<|message|>hm<|end|>{start}commentary<|message|>I look.<|end|>{start}final<|message|>Done<|return|>"
    assert read_text(text, TOOLS) == ParsedText(calls=(), content="I look.Done", reasoning="hm")


def test_an_open_backtick_in_reasoning_does_not_extend_the_reasoning() -> None:
    assert read_text("<think>the `name</think>Hello", TOOLS).content == "Hello"


def test_an_observation_invented_by_the_model_is_dropped() -> None:
    """The first action is the call; the model invented the observation, so the text from there on is not shown."""
    text = 'Thought: hm\nAction: search\nAction Input: {"query": "x"}\nObservation: found\nAction: now\nAction Input: {}\nFinal Answer: y'
    reading = read_text(text, TOOLS)
    assert calls_in(reading) == [("search", {"query": "x"})]
    assert reading.content == "Thought: hm\n"


_CLOSERS = {"<think>": "</think>", "[THINK]": "[/THINK]", "<thought>": "</thought>", "<think:opensource>": "</think:opensource>"}


@pytest.mark.parametrize("mark", ["Observation:", "Observation 1:", "**Observation:**", "**Observation**:"])
def test_an_invented_observation_is_dropped_in_every_notation(mark: str) -> None:
    """The text from the observation on is dropped with its calls, if a call without markers precedes it; otherwise it is text."""
    for call in ('{"action": "search", "action_input": "x"}', f"```json\n{SEARCH}\n```", "Action: search\nAction Input: x"):
        reading = read_text(f"{call}\n{mark} found\n{SEARCH}\nAction: now\nAction Input: {{}}", TOOLS)
        assert (calls_in(reading), reading.content) == ([("search", {"query": "x"})], "")
    assert read_text(f"{mark} it rains.", TOOLS).content == f"{mark} it rains."


@pytest.mark.parametrize("mark", ["Final Answer:", "**Final Answer:**", "**Final Answer**:"])
@pytest.mark.parametrize("hint", [None, "react", "bare-json", "json-in-text"])
def test_an_unmarked_call_in_a_final_answer_is_text(mark: str, hint: str | None) -> None:
    text = f"Thought: done\n{mark} Write so:\n\nAction: search\nAction Input: x\n\n{SEARCH}"
    assert read_text(text, TOOLS, dialect=hint) == ParsedText(calls=(), content=text, reasoning="")


@pytest.mark.parametrize("opener", [*_CLOSERS, "<|START_THINKING|>", "<|inner_prefix|>"])
def test_reasoning_between_markers_is_separated_from_the_content(opener: str) -> None:
    closer = _CLOSERS.get(opener, opener.replace("START", "END").replace("prefix", "suffix"))
    reading = read_text(f"{opener}hm{closer}\n\nHello", TOOLS)
    assert (reading.reasoning, reading.content) == ("hm", "Hello")


def test_mentioned_reasoning_markers_open_no_reasoning() -> None:
    text = "Put it between <think> and </think> marks."
    assert read_text(text, TOOLS) == ParsedText(calls=(), content=text, reasoning="")


def test_white_space_after_a_dropped_token_is_kept() -> None:
    """Only the token itself is removed."""
    text = "Results: <｜tool▁output▁begin｜>4<｜tool▁output▁end｜> and\n<｜tool▁output▁begin｜>5<｜tool▁output▁end｜>\nDone."
    assert read_text(text, {}).content == "Results: 4 and\n5\nDone."
    assert read_text("<|im_start|>assistant\nHello<|im_end|>", {}).content == "Hello"


def test_text_before_the_final_response_marker_is_reasoning() -> None:
    """Apriel: the prompt has already opened the reasoning."""
    text = "hm\n[BEGIN FINAL RESPONSE]\nHello\n[END FINAL RESPONSE]"
    assert read_text(text, TOOLS) == ParsedText(calls=(), content="Hello\n", reasoning="hm\n")


def test_text_before_an_unopened_closing_marker_is_reclassified_as_reasoning() -> None:
    """The text was emitted before its kind could be known, so an explicit part reclassifies it."""
    reader = TextReader(TOOLS)
    assert reader.feed("I wonder") == [TextPart(text="I wonder")]
    parts = [TextPart(text="I wonder"), *reader.feed("</think>\nYes"), *reader.close()]
    assert ReasoningPart(text="", reclassifies_text=True) in parts
    assert collect_parts(parts) == ParsedText(calls=(), content="Yes", reasoning="I wonder")
    known = TextReader(TOOLS, thinking=True)
    assert known.feed("I wonder</think>Yes") == [ReasoningPart(text="I wonder"), TextPart(text="Yes")]


def test_a_call_ends_reasoning_that_was_not_closed() -> None:
    """Some models start a call within their reasoning; only the end of the message shows that the call is meant."""
    text = '<think>look it up<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    assert len(read_text(text, TOOLS).calls) == 1
    assert read_text(text, TOOLS, partial=True).calls == ()


def test_a_dialect_hint_allows_calls_inside_a_line() -> None:
    """For models that are known to write calls this way."""
    text = 'I look it up: {"name": "search", "parameters": {"query": "x"}} Wait.'
    assert read_text(text, TOOLS).calls == ()
    assert calls_in(read_text(text, TOOLS, dialect="bare-json")) == [("search", {"query": "x"})]


MARKED = f"<tool_call>{SEARCH}</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        f"The regular expression matches {MARKED} and removes it.",
        f"A message that contains {MARKED} is treated as a call.",
        f"If the answer has {MARKED} in it, the server runs it.",
        f"I did not call it. The text {MARKED} was in the file.",
        f"I saw {MARKED} in the log.",
        f"The difference between {MARKED} and JSON is the tag.",
        f"What does {MARKED} mean?",
        f"Why did you send {MARKED}?",
        f"Is {MARKED} valid?",
        f"| form | text |\n|---|---|\n| Hermes | {MARKED} |\n",
    ],
)
def test_a_call_within_a_sentence_about_a_text_or_in_a_cell_is_text(text: str) -> None:
    assert read_text(text, TOOLS) == ParsedText(calls=(), content=text, reasoning="")
    for place in range(len(text)):
        assert read_text(text[:place], TOOLS, partial=True).calls == ()


@pytest.mark.parametrize(
    "text",
    [
        f"Some text before {MARKED} some text after",
        f"I read the file, it has an error {MARKED} so I search",
        f"The file has an error. {MARKED} searching",
        f"Is it raining? {MARKED}",
        f"What is x? I look it up {MARKED} and wait",
        f"| a | b |\n|---|---|\n| 1 | 2 |\n\n{MARKED}",
        f"The text {MARKED}",
    ],
)
def test_a_call_after_a_sentence_or_beside_other_words_is_a_call(text: str) -> None:
    assert calls_in(read_text(text, TOOLS)) == [("search", {"query": "x"})]


@pytest.mark.parametrize(
    "frame",
    [
        "Should I run {}?",
        "Question: what happens on {}?",
        "\u00ab {} \u00bb is in your text",
        "\u00ab\u00a0{}\u00a0\u00bb",
        "It begins with {} and ends so.",
    ],
)
@pytest.mark.parametrize("name", ["hermes", "qwen-xml", "glm", "mistral", "gemma", "lfm2"])
def test_a_call_in_a_question_or_between_quotes_with_spaces_is_text(name: str, frame: str) -> None:
    text = frame.format(DIALECTS[name].example)
    reader = TextReader(TOOLS)
    for reading in (read_text(text, TOOLS), collect_parts([*(part for one in text for part in reader.feed(one)), *reader.close()])):
        assert (reading.calls, reading.content) == ((), text)
    assert calls_in(read_text(f"Should I look? {DIALECTS[name].example}", TOOLS)) == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize(
    "text", ["What does {} mean?", "A message that contains {} is not read.", "| form | text |\n|---|---|\n| a | {} |\n"]
)
@pytest.mark.parametrize(
    "call",
    [
        "<\uff5ctool\u2581calls\u2581begin\uff5c>{}<\uff5ctool\u2581calls\u2581end\uff5c>".format(DIALECTS["deepseek"].example),
        "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>".format(DIALECTS["kimi-k2"].example),
    ],
    ids=["deepseek", "kimi-k2"],
)
def test_the_token_before_all_calls_does_not_hide_the_sentence_that_a_call_is_in(call: str, text: str) -> None:
    assert read_text(text.format(call), TOOLS).calls == ()
    assert calls_in(read_text(f"What does it mean? {call}", TOOLS)) == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("hint", ["bare-json", "json-in-text"])
@pytest.mark.parametrize("frame", ['It says "{}" there.', "Never write {} here.", "For example: {}", "\u00ab {} \u00bb"])
def test_no_object_of_a_list_that_is_quoted_or_shown_is_a_call(frame: str, hint: str) -> None:
    """The bracket before the object is a part of what is quoted."""
    text = frame.format(f"[{SEARCH}]")
    reading = read_text(text, TOOLS, dialect=hint)
    assert (reading.calls, reading.content) == ((), text)


@pytest.mark.parametrize("end", [" is what such a model writes.", " is the form", " would look for x.", " means that it searches."])
@pytest.mark.parametrize("before", ["", "The forms differ.\n", "There are forms. ", "- ", "1. "])
@pytest.mark.parametrize("name", [name for name, of in DIALECTS.items() if not of.is_unmarked or name in ("pythonic", "bare-json")])
def test_a_call_that_is_the_subject_of_a_sentence_is_text(name: str, before: str, end: str) -> None:
    """Whole, in pieces of any size, and with a call after it."""
    text = before + DIALECTS[name].example + end
    for hint in (None, name):
        assert read_text(text, TOOLS, dialect=hint).calls == ()
        reader = TextReader(TOOLS, dialect=hint)
        parts = [part for character in text for part in reader.feed(character)]
        assert collect_parts([*parts, *reader.close()]) == read_text(text, TOOLS, dialect=hint)
    assert calls_in(read_text(f"{text}\nI look it up.\n{MARKED}", TOOLS)) == [("search", {"query": "x"})]


@pytest.mark.parametrize("after", ["", ".", "\nis it", " island", " and I wait", " Is it there?", f"\n{MARKED} is more", " now"])
def test_a_call_that_no_sentence_goes_on_about_is_a_call(after: str) -> None:
    assert ("search", {"query": "x"}) in calls_in(read_text(f"I look it up.\n{MARKED}{after}", TOOLS))


def test_a_call_waits_only_for_the_text_that_decides_whether_it_is_mentioned() -> None:
    reader = TextReader(TOOLS)
    assert not any(isinstance(part, FoundCall) for part in reader.feed(MARKED))
    assert not any(isinstance(part, FoundCall) for part in reader.feed("\n"))
    assert [part.name for part in reader.feed("I") if isinstance(part, FoundCall)] == ["search"]
    _, first, *_ = reader.feed(f"\n{MARKED}<")
    assert isinstance(first, FoundCall)


@pytest.mark.parametrize("name", ["<function-name>", "<name>", "...", "\u2026"])
def test_a_template_with_a_placeholder_for_the_name_is_text(name: str) -> None:
    """Prompts describe the form so, and a model may repeat it."""
    text = f'<tool_call>\n{{"name": "{name}", "arguments": <args-json-object>}}\n</tool_call>'
    assert read_text(text, {}) == ParsedText(calls=(), content=text, reasoning="")


TEMPLATES = [
    '<tool_call>{"name": "...", "arguments": {...}}</tool_call>',
    "<tool_call>\n<function=...>\n<parameter=...>\n...\n</parameter>\n</function>\n</tool_call>",
    '<invoke name="...">\n<parameter name="...">...</parameter>\n</invoke>',
    "[TOOL_CALLS]...[ARGS]{}",
    "<tool_call>...</tool_call>",
    "<tool_call>...\n<arg_key>...</arg_key>\n<arg_value>...</arg_value>\n</tool_call>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>...<\uff5ctool\u2581sep\uff5c>{}<\uff5ctool\u2581call\u2581end\uff5c>",
    "<|tool_call>call:...{}<tool_call|>",
]


@pytest.mark.parametrize("text", TEMPLATES)
@pytest.mark.parametrize("tools", [TOOLS, {}], ids=["known tools", "no tools"])
def test_a_template_with_dots_for_the_name_is_text(text: str, tools: dict[str, Any]) -> None:
    """No tool has such a name."""
    assert read_text(f"The form is this.\n{text}", tools).calls == ()
