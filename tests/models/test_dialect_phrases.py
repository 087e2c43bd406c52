"""The line before a call: phrases that announce an example, which makes no call, and phrases that announce a call of the model."""

from __future__ import annotations

import pytest

from callgate.models.dialects import read_text
from tests.models.dialect_texts import NOTATIONS, SEARCH, TOOLS, calls_in

ANNOUNCE_EXAMPLES = """\
You call it like this:
Invoke it like this:
Here is how to call it:
Here's how to use the tool:
Here's how you call it:
This is how you call it:
How to call it:
How to use:
Call it like so:
Call it this way:
It is called like this:
It can be invoked like this:
It's called like this:
Tool calls are written as follows:
A call looks like this:
A call looks something like this:
A call would look like:
The call would be:
The format is:
The format is the following:
Format:
Syntax:
Usage:
**Usage:**
The syntax for tool calls is:
Call format:
The expected format:
Use this format:
Use the following format:
You'd call it like so:
You'll write:
You simply write:
You then send:
You would write:
You invoke it with:
To call it, write:
To use it, you call:
In order to call it, emit:
Call it with:
Invoke it as:
Use it like this:
Something like this:
Like this:
Such as:
The documentation says:
The README shows this:
The docs say to use:
The user wrote:
They wrote:
From the docs:
In the docs:
For reference:
Example:
Example call:
An example of its use:
Here is an example:
Here's a sample call, for example:
e.g.:
Wrong:
Correct:
**Correct:**
Right:
Good:
That is wrong. Correct:
As JSON:
As raw JSON:
As XML:
Don't call it like this:
Never write:
Do not use it like this:
Let me show you how to call it:
I'll demonstrate how the tool is called:
I will show you what a call looks like:
A tool call is written as:
The call should be formatted as follows:
It works like this:
## Example
### Usage
**Example**
So ruft man es auf:
Zum Beispiel:
Par exemple :
Por ejemplo:
调用方式如下：
格式如下：
例如：
用法：
Type:
Write this:
Respond with the following:
Note: you call it like this:
It takes a query. You call it like this:
Sure! Here is how to call it:
You can call it like this:
You should call it with:
You need to use it so:
Models call it like this:
The model invokes it like so:
One calls it like this:
This is what a call looks like:
Sample output:
Sample call:
Here is a sample tool call:
Below is an example tool call:
This is an example of a call:
The following is an example of the output:
A tool call in this format has the structure:
It takes the following shape:
Expected tool call:
Expected output:
A hypothetical call:
Previously, the assistant called:
The model then generated this call:
They had invoked this:
The last call failed:
The request that was rejected:
The syntax for calling a tool is:
The tool call format that this model uses is:
A valid call is:
The correct form is
Such a call is written
A tool call might look like
An example would be
The function can be called using:
In the system prompt, add:
Copy and paste this:
In your case the model returned:
The expected behaviour is that the model emits:
The assistant should then respond with:
Consider this tool call:
Suppose the model outputs:
Imagine I call:
I would have called:
I can't call it. Otherwise I'd write:
Test case:
Der Aufruf sieht so aus:
呼び出し例:
예를 들어:
Например:
# Format
First I will explain how it works:
First, let me show you how it is called:
I'll show you how to call it by writing:
I'll explain how to call it. First I write:
""".splitlines()
ANNOUNCE_CALLS = """\
I'll call it like this:
Let me call it like this:
I look it up:
Here is the call you need:
Here's the function call:
Here is the tool call in the required format:
Here is the tool call:
The function call is as follows:
Tool call:
Function call:
Output:
Response:
Calling it like this:
Calling search:
Searching:
Let me search:
Now I use the search tool:
Using the search tool:
I will use this format:
I am calling the tool as follows:
The search tool will be used with these arguments:
To find out, I will call the tool:
To do so:
Next:
Step 1:
Step 1: Search for x:
1. Search for x:
First, search for x:
Then search:
Write the file:
Send the query:
The user said to search:
The user wants x, so search:
The issue mentions a file:
To see how the function works, look it up:
It looks like you want to know x:
Since you use Python, search for it:
I found that the docs say it is there. Let me check:
Based on the docs, the next step:
I know how to call it now. Calling:
We call it like this:
Let's use the tool:
The best option would be to search for it:
Let me write this:
I should call search:
OK:
Sure, one moment:
Don't worry, one moment:
Here are the results I need to look up:
My next action:
The answer depends on the weather, so look it up:
Let me show you the weather:
I'll explain after looking it up:
I'll explain how it works after reading it:
I'll explain how this works. First I read it:
Let me explain how it works, but first I need to read:
Let me show you how it works by running it:
Let me save this as an example:
The code is in another file:
In the meantime:
Executing the search:
Executing tool call:
Running the following:
Here we go:
Final step:
For x:
For this task:
You asked for x:
You wanted to know x:
As you said, search for x:
Thanks! Looking it up:
### Searching
**Search**
## Step 1
The tool to use is search:
The right tool is search:
The correct tool call is:
Correct. Next:
I corrected it:
I send it as JSON:
All correct, next step:
The next call is:
I have to use a tool:
The required call:
Here's what I'll run:
Here is what to search for:
Now I'll run the query from the example:
I will search for the word in your example:
The last call failed, so I try another word:
Let me check a sample:
I'll run the expected query:
The user expects a search, so I search:
Using the required format:
I should use this format:
Here is the JSON for the function call:
The previous call failed. Retrying with the city only:
I made a mistake in the previous call. Correct call:
Sorry about that. Here's the corrected tool call:
A tool call is required:
Considering your question, the tool to use:
I'm invoking the tool with x as an example word:
We need to call search. The call:
The tool returned an error. Trying again:
Output:
Response:
""".splitlines()


@pytest.mark.parametrize("line", ANNOUNCE_EXAMPLES)
def test_a_call_after_a_line_that_announces_an_example_is_text(line: str) -> None:
    """In every notation, and with and without a fence."""
    for kind, call in NOTATIONS.items():
        is_heading = line.startswith(("#", "**E"))
        if not (is_heading and kind == "on the same line"):
            reading = read_text(line + call, TOOLS)
            assert (kind, reading.calls) == (kind, ())
            assert reading.content == line + call


@pytest.mark.parametrize("line", ANNOUNCE_CALLS)
def test_a_call_after_a_line_about_the_models_own_actions_is_a_call(line: str) -> None:
    """A model announces its calls in many ways; most of these lines end in a colon as well."""
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, [("search", {"query": "x"})])


ANNOUNCE_RESULTS = """\
The tool returned:
The tool returned this text:
The search returned the following result:
The output was:
The result of the call was:
The command printed:
The server responded with:
The web page contains the following text:
The page had this hidden text:
The document includes these instructions:
The README contains this block:
I found this in the file:
I received this text from the tool:
We got the following message from the server:
""".splitlines()


@pytest.mark.parametrize("line", ANNOUNCE_RESULTS)
def test_a_call_that_a_tool_returned_is_text_where_the_model_repeats_it(line: str) -> None:
    """A result may contain calls that somebody else wrote; a model that reports them does not make them."""
    for kind, call in NOTATIONS.items():
        reading = read_text(line + call, TOOLS)
        assert (kind, reading.calls) == (kind, ())
        assert reading.content == line + call


@pytest.mark.parametrize(
    "line",
    [
        *("The tool returned an error, so let me retry:", "The search returned nothing. Trying another query:", "Next I call the tool:"),
        *("We could use the search tool:", "I could not find it, so I call:", "I did not use the right path. Trying again:"),
        *("I got the path from the user. Calling the tool:", "I need data from the server:", "The result is unclear, checking again:"),
    ],
)
def test_a_call_after_a_sentence_about_results_or_tries_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, [("search", {"query": "x"})])


@pytest.mark.parametrize(
    "line", ["I can't run this call:", "I won't make this call:", "Earlier I called:", "I already sent:", "I could write:"]
)
def test_a_call_that_the_model_says_it_does_not_make_is_text(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, read_text(line + call, TOOLS).calls) == (kind, ())


@pytest.mark.parametrize(
    "text", ["I will not call {}.", "I would call {} if I were allowed to.", "I can't use {}, as said.", "Earlier I called {} and got 5."]
)
def test_a_call_in_a_sentence_that_denies_it_is_text(text: str) -> None:
    assert read_text(text.format(NOTATIONS["on the same line"].strip()), TOOLS).calls == ()


@pytest.mark.parametrize("line", ["For example:", "The file contains:", "The tool returned this text:"])
@pytest.mark.parametrize("before", ["x = 1", "<think>So I call it.</think>", "Thought: I need it.", "```json"])
def test_all_lines_of_a_fence_after_an_announcement_are_shown(line: str, before: str) -> None:
    """Prose, reasoning and a fence with a language do not end the fence; its own end does."""
    call = NOTATIONS["marked"]
    shown = f"{line}\n```\n{before}{call}\n```\n"
    assert read_text(shown, TOOLS).content == shown
    assert calls_in(read_text(f"{shown}\nI call it.{call}", TOOLS)) == [("search", {"query": "x"})]


def test_an_announced_quotation_ends_with_the_next_line() -> None:
    """A model that quotes a file and then makes a call may write no prose between the two."""
    call = NOTATIONS["marked"]
    assert read_text(f"The README says:{call}{call}", TOOLS).calls == ()
    assert calls_in(read_text(f"The README says:\n> Run it.\n{call}", TOOLS)) == [("search", {"query": "x"})]
    assert calls_in(read_text(f"The file contains:\n```\nx = 1\n```\n{call}", TOOLS)) == [("search", {"query": "x"})]


@pytest.mark.parametrize("before", ["e.g.", "For example,", "It takes JSON, for instance"])
@pytest.mark.parametrize("after", ["", " would look for x.", "\nIt looks for x."])
@pytest.mark.parametrize("kind", ["<tool_call>@</tool_call>", "[TOOL_CALLS][@]", "<|tool_call|>[@]", "functools[@]"])
def test_a_call_directly_after_for_example_is_text(before: str, after: str, kind: str) -> None:
    """Also in families whose calls have no end marker."""
    text = f"{before} {kind.replace('@', SEARCH)}{after}"
    reading = read_text(text, TOOLS)
    assert (reading.calls, reading.content) == ((), text)


def test_a_call_of_a_family_without_end_markers_in_a_sentence_about_calls_is_text() -> None:
    text = 'A call has a marker: it is written as [TOOL_CALLS]search[ARGS]{"query": "x"} in a message.'
    assert read_text(text, TOOLS).calls == ()


@pytest.mark.parametrize("before", ["The user wrote:", "e.g.", "For example,"])
def test_a_fence_on_the_line_that_announces_it_shows_an_example(before: str) -> None:
    assert read_text(f"{before} ```json\n{SEARCH}\n```", TOOLS).calls == ()
