"""Text in a model's message that is not its own: results of tools and turns of other roles, which the model repeats or invents."""

from __future__ import annotations

import pytest

from callgate.models.dialects import TextReader, collect_parts, read_text
from tests.models.dialect_texts import SEARCH, TOOLS, calls_in

CALL = f"<tool_call>{SEARCH}</tool_call>"
X = [("search", {"query": "x"})]
RESULTS = [
    "<tool_response>\n{}\n</tool_response>",
    "<tool_result>{}</tool_result>",
    "<tool_output>{}</tool_output>",
    "<function_results>\n<result>\n<stdout>{}</stdout>\n</result>\n</function_results>",
    "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>{}<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
    "[TOOL_RESULTS]{}[/TOOL_RESULTS]",
    "<|observation|>\n{}<|assistant|>",
    '<|START_TOOL_RESULT|>["{}"]<|END_TOOL_RESULT|>',
    "<|tool_response_start|>{}<|tool_response_end|>",
    '<|tool_response>response:search{{value:<|"|>{}<|"|>}}<tool_response|>',
    "<start_function_response>response:search{{value:<escape>{}<escape>}}<end_function_response>",
]
TURNS = [
    "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n",
    "<|im_end|>\n<|im_start|>tool\n{}<|im_end|>\n<|im_start|>assistant\n",
    "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n{}<|eot_id|>",
    "<|start_of_role|>tool_response<|end_of_role|>{}<|end_of_text|>",
    "<|start|>functions.search to=assistant<|channel|>commentary<|message|>{}<|end|>",
    "<end_of_turn>\n<start_of_turn>user\n{}<end_of_turn>\n",
    "<turn|>\n<|turn>user\n{}<turn|>\n<|turn>model\n",
    "<|user|>\n{}<|assistant|>\n",
    "<|end|><|user|>{}<|end|><|assistant|>",
    "<｜end▁of▁sentence｜><｜User｜>{}<｜Assistant｜>",
    "<|eot|><|header_start|>user<|header_end|>\n\n{}<|eot|><|header_start|>assistant<|header_end|>\n\n",
    "<|im_end|><|im_user|>user<|im_middle|>{}<|im_end|><|im_assistant|>assistant<|im_middle|>",
    "<|im_end|><|im_system|>search<|im_middle|>{}<|im_end|><|im_assistant|>assistant<|im_middle|>",
    "<|im_end|>\n<|im_start|>environment name=<|plugin|>\n{}<|im_end|>\n",
    "</s>[INST]{}[/INST]",
    "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>{}<|END_OF_TURN_TOKEN|>",
    "[e~[\n]~b]user\n{}[e~[\n]~b]ai\n",
    "[|endofturn|]\n[|user|]{}\n[|assistant|]",
    "<|message_sep|>\n\nuser<|role_sep|>\n{}<|message_sep|>\n\n",
    "<｜hy_User｜>{}<｜hy_Assistant｜>",
    "<seed:eos><seed:bos>tool\n{}<seed:eos><seed:bos>assistant\n",
    "<|assistant_end|><|user_start|>{}<|user_end|>",
    "<role>HUMAN</role>{}<role>ASSISTANT</role>",
]


@pytest.mark.parametrize(
    "call", [CALL, f"\n{SEARCH}\n", '\n[search(query="x")]\n', '<|tool_call>call:search{query:<|"|>x<|"|>}<tool_call|>']
)
@pytest.mark.parametrize("form", [*RESULTS, *TURNS])
def test_a_call_in_the_result_of_a_tool_or_in_another_turn_is_text(form: str, call: str) -> None:
    """Somebody else may have written the result, and a model that invents the next turn has not been answered."""
    text = f"Done.\n{form.format(call)}"
    for whole in (text, text[: text.index(call) + len(call)], f"<think>{text}"):
        assert read_text(whole, TOOLS).calls == ()
        reader = TextReader(TOOLS)
        assert collect_parts([*(part for letter in whole for part in reader.feed(letter)), *reader.close()]) == read_text(whole, TOOLS)


@pytest.mark.parametrize("form", RESULTS)
def test_a_call_before_or_after_a_repeated_result_is_a_call(form: str) -> None:
    assert calls_in(read_text(f"{CALL}\n{form.format('y')}\n{CALL}", TOOLS)) == X * 2


@pytest.mark.parametrize("form", TURNS)
def test_a_call_after_an_invented_turn_is_text(form: str) -> None:
    """The model answers what nobody has said."""
    assert calls_in(read_text(f"{CALL}{form.format('y')}{CALL}", TOOLS)) == X


@pytest.mark.parametrize(
    "text",
    [
        f"Results come in `<tool_response>` tags. I look: {CALL}",
        f'The role is "<|im_start|>user\n". I look: {CALL}',
        f"<think>They write <tool_response> there.</think>{CALL}",
        f"The token <|user|> begins a turn. I look: {CALL}",
        '<|tool_call>call:now{}<tool_call|><|tool_response><|tool_call>call:search{query:<|"|>x<|"|>}<tool_call|>',
    ],
)
def test_a_mentioned_or_single_marker_of_a_result_does_not_hide_a_call(text: str) -> None:
    """Gemma writes the first token of a result as the end of its calls."""
    assert calls_in(read_text(text, TOOLS))[-1:] == X


@pytest.mark.parametrize("token", ["<|user|>", "<|observation|>\n", "<|assistant|>", "[|endofturn|]"])
def test_the_token_of_a_turn_at_the_end_or_start_of_a_message_is_not_shown(token: str) -> None:
    """GLM ends its message with the token of the next turn."""
    assert read_text(f"It rains.{token}", TOOLS).content.strip() == "It rains."
    assert read_text(f"<|assistant|>\nIt rains.{token}", TOOLS).content.strip() == "It rains."
