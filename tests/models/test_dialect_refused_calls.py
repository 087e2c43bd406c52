"""Calls that a model refuses, reports, asks about or shows in markup are text.

A prompt injection must not run because the model describes it, and a call not before the user has answered.
"""

from __future__ import annotations

import pytest

from callgate.models.dialects import TextReader, collect_parts, read_text
from tests.models.dialect_texts import NOTATIONS, SEARCH, TOOLS, calls_in

CALL = f"<tool_call>{SEARCH}</tool_call>"
X = [("search", {"query": "x"})]
REFUSED_OR_REPORTED = """\
I refuse to run this:
I must decline to make this call:
I'm not going to run this:
I am not able to run this call:
We're unable to execute this:
I have decided not to run this:
I will ignore this instruction:
I am ignoring this embedded call:
This is a prompt injection, so I ignore it:
This must not be executed:
This is not a real call:
The following was found in the README:
The following text was returned by the tool:
This was in the file:
This block was included in the email:
Someone inserted this into the document:
The attacker wants me to run:
The page tries to make me call:
The user asked me to repeat:
The injected instruction:
The suspicious block:
Untrusted content:
Original text:
Excerpt:
Line 12 of the file:
The text in the image reads:
The screenshot shows:
The log entry was:
The raw request was:
Output of the tool:
The output from the command is:
Result of the search:
Here's what I received from the server:
As you can see in the transcript, the model called the tool:
The assistant called the tool with:
Users can run:
Step 1: the model emits
In this case, the model outputs
The right call would have been:
Your format is wrong. Instead of
For reference only:
The expression matches strings such as:
You asked what this means:
This is only a demonstration:
Dummy call:
Here's a template:
The string you want to parse is:
I have already done it. The call was:
We paid yesterday. The last command was:
I refuse to do the following.
I will not run the following call.
""".splitlines()
ABOUT_TO_CALL = """\
The call was wrong, so I correct it:
I refuse to do that.
I will not guess the following.
I refuse to guess, so I look it up:
I am not able to answer from memory, so let me search:
I'm unable to see the file, so I read it:
I have decided to run this:
I will ignore the error and try again:
Instead of guessing, I search:
The tool's output was empty. Let me try again:
The result of the search is not enough. Let me search again:
The previous output was cut off. I read the rest:
The user asked me to repeat the search:
The system prompt says to use the search tool first. Calling it:
Output of the first step is needed. I run it:
It would have been better to search first. I do it now:
The model needs data, so I call the tool:
The data is in the file:
For reference, I'll look it up:
To see what this does:
The tests were not run by the CI. I run them:
The server was restarted by the script; checking:
Let me see what the screenshot shows:
Now I'll insert this into the file:
That was not the right call. Correcting:
I need the output of the tool:
To answer, I need the data (e.g. the weather):
I check several sources (for example, the docs):
Let me look at the data (e.g., the last week):
I cannot see it.
That won't do.
Why not try
""".splitlines()


@pytest.mark.parametrize("line", REFUSED_OR_REPORTED)
def test_a_call_that_the_model_refuses_or_reports_is_text(line: str) -> None:
    """In every notation, and with and without a fence."""
    for kind, call in NOTATIONS.items():
        reading = read_text(line + call, TOOLS)
        assert (kind, reading.calls) == (kind, ())
        assert reading.content == line + call


@pytest.mark.parametrize("line", ABOUT_TO_CALL)
def test_a_call_that_the_model_announces_in_similar_words_is_a_call(line: str) -> None:
    """A closed aside such as `(e.g. the weather)` names an example of something else."""
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, X)


SHOWN = [
    "I will not call @",
    "I refuse to run @",
    "You must never write @",
    "If I had the tool, I would run @",
    "The user told me to output @ but I do not.",
    "Try entering @ in the field.",
    "You get it by typing @, then Enter.",
    "@: the call for a search",
    "- @: looks for x\n- `now`: tells the time",
    "<pre><code>@</code></pre>",
    'I see <code class="xml">@</code> in it.',
    "<blockquote>\n@\n</blockquote>",
    "<document>\n@\n</document>",
    "<!-- @ -->",
    "<!--\n@\n-->",
]


@pytest.mark.parametrize("frame", SHOWN)
def test_a_call_that_is_denied_explained_or_shown_in_markup_is_text(frame: str) -> None:
    """Whole and letter by letter; a call after it is a call."""
    text = frame.replace("@", CALL)
    reading = read_text(text, TOOLS)
    assert (reading.calls, reading.content) == ((), text)
    reader = TextReader(TOOLS)
    assert collect_parts([*(part for letter in text for part in reader.feed(letter)), *reader.close()]) == reading
    assert calls_in(read_text(f"{text}\n\nI look it up.\n{CALL}", TOOLS)) == X


@pytest.mark.parametrize(
    "before", ["<pre>\nx\n</pre>\n", "<!-- note -->\n", "See <code>x</code>: ", "I close the <pre> tag.\n", "<document>\nx\n</document>\n"]
)
def test_a_call_after_markup_that_is_closed_is_a_call(before: str) -> None:
    assert calls_in(read_text(before + CALL, TOOLS)) == X


ASKS_APPROVAL = """\
Shall I run this?
Should I call this?
So, should I go ahead with this call?
May I execute the following command?
Can I send this?
Do you want me to execute the following call?
Would you like me to run this search?
Would you like me to do the following:
Is it OK to run this?
Is it okay if I send this?
Once you confirm, I will run:
If you approve, I'll execute this:
When you say yes, I will call:
After your approval I would execute:
Please confirm that I should run:
Please confirm the following call:
Here is the command. Do you want me to run it?
""".splitlines()
NEEDS_NO_APPROVAL = """\
Should I search? Yes:
Which tool should I use?
What can I do?
How can I call it?
Can I find it in the docs? Let me see:
You confirmed, so I run it:
After you confirmed, I run it:
Once confirmed, I go on:
The user approved it. Running:
Thanks for your approval. I run it:
With your approval, I run it:
Let me confirm this:
Once the search is done, I answer:
If you want the weather, I need the city:
Is it raining?
Would you like tea? I look it up:
If it fails, I can try again:
Since you want me to run it, I do:
Can you confirm this? I check it myself:
You asked whether I can call the tool:
You asked: should I run it? I do it now:
To confirm the result, I search:
""".splitlines()


@pytest.mark.parametrize("line", ASKS_APPROVAL)
def test_a_call_for_which_the_model_asks_permission_is_text(line: str) -> None:
    """The user has not answered yet; the answer makes the call."""
    for kind, call in NOTATIONS.items():
        reading = read_text(line + call, TOOLS)
        assert (kind, reading.calls) == (kind, ())
        assert reading.content == line + call


@pytest.mark.parametrize("line", NEEDS_NO_APPROVAL)
def test_a_call_after_another_question_or_a_given_permission_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, X)


WITHDRAWALS = """\
but I have no permission.
But I cannot run it.
but I don't want to.
But I don't want to do that.
But I do not have the permission for it.
But we are not allowed to send this.
But I won't do that without your approval.
Please confirm.
Please confirm this call.
Please confirm before I run this.
Please confirm that I should proceed.
Let me know if I may run this.
Do you confirm?
Do you approve this payment?
So, shall I run this?
Should I go ahead?
May I send this now?
Do you want me to execute it?
Would you like me to proceed?
""".splitlines()
REMARKS = """\
but I also need the weather.
But I don't know the exact date, so I look for all.
But I am not sure that it finds anything.
But I cannot promise that it works.
But we will see, no worries.
Shall I continue with the next step?
But first, the weather.
Please wait.
Please confirm your name afterwards.
Let me know if I can help.
Do you like it?
Should I also look at the news?
Do you want me to look up more?
Would you like tea?
Can I do more for you?
So it goes.
I look it up.
""".splitlines()


@pytest.mark.parametrize("gap", ["\n", "\n\n", " "])
@pytest.mark.parametrize("line", WITHDRAWALS)
def test_a_call_that_the_next_line_withdraws_is_text(line: str, gap: str) -> None:
    """Whole and letter by letter, with and without more text after it."""
    for kind, call in NOTATIONS.items():
        for end in ("", "\nIt costs 5."):
            text = f"I would run:\n{call}{gap}{line}{end}"
            reading = read_text(text, TOOLS)
            assert (kind, reading.calls, reading.content) == (kind, (), text)
            reader = TextReader(TOOLS)
            assert collect_parts([*(part for letter in text for part in reader.feed(letter)), *reader.close()]) == reading


@pytest.mark.parametrize("line", REMARKS)
def test_a_call_before_another_remark_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(f"I look it up.\n{call}\n{line}", TOOLS))) == (kind, X)
