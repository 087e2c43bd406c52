"""Lines that report another call, name a form or a wrong call, or tell the reader what to do, beside similar lines of a model that acts."""

from __future__ import annotations

import pytest

from callgate.models.dialects import read_text
from tests.models.dialect_texts import NOTATIONS, TOOLS, calls_in

REPORTS = """\
The attacker wrote:
The sender wrote:
The customer pasted:
For reference, the call was:
The original request was:
The assistant's message was:
The model's last output is:
Qwen emits calls like:
Hermes writes tool calls as:
In the previous turn I called:
In my last message we used:
In a hypothetical scenario, I'd call:
In such a different case I would write:
With your permission I would run:
I was told to ignore this:
The old format was:
This is the format that Hermes uses:
Here's the syntax for tool calls:
The expected output is:
A typical request would be:
A correct answer would be:
You can test your parser with:
You could check this using:
A test input for the parser:
Sample message:
The equivalent call in XML:
The same request as JSON:
The following call was blocked:
This call was denied:
That request was not sent:
The call you asked about was:
The call that failed earlier was:
The original request read:
What you had sent was:
Your colleague sent this call:
An attacker could inject the following text:
Malicious pages might have this:
This is dangerous:
Output of the first step:
The contents of notes.md:
The following was found in config.txt:
""".splitlines()
OWN_CALLS = """\
The call that you asked for needs the weather, so I check:
What you need is a search:
I check whether an attacker could read it:
It may be dangerous, so I look first:
I read notes.md:
Fetching what the page says:
Checking what was found in config.txt:
Now I look in config.txt:
With your approval, I'll run it now:
The customer wrote that it rains, so I check:
The customer wrote "hello". I look it up:
The request was incomplete, so I call again:
The call was not made because of a timeout. Retrying:
The last message was cut off, calling again:
The call is:
The following call gets it:
In the previous turn I did not look. Now I do:
In the first step I look it up:
In this case I would like to search:
In the same message I call it twice:
Same call in London:
Same request for Paris:
The format was wrong, so I try again:
The answer would be wrong without data. Let me check:
This is the form of the request that I send:
This is the tool that fits:
Here's the query for it:
You can follow the progress with the log. Calling:
You may check the result with the link later. First I search:
Test cases exist, so I run them:
Test for Paris:
Claude expects an answer, so first I search:
I was told to look it up:
""".splitlines()


@pytest.mark.parametrize("line", REPORTS)
def test_a_call_after_a_line_that_reports_or_describes_it_is_text(line: str) -> None:
    for kind, call in NOTATIONS.items():
        reading = read_text(line + call, TOOLS)
        assert (kind, reading.calls) == (kind, ())
        assert reading.content == line + call


@pytest.mark.parametrize("line", OWN_CALLS)
def test_a_call_after_a_line_about_the_models_own_action_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, [("search", {"query": "x"})])
