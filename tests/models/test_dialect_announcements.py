"""More lines before a call: words of other kinds that announce an example, and actions of the model that contain such words."""

from __future__ import annotations

import pytest

from callgate.models.dialects import TextReader, collect_parts, read_text
from tests.models.dialect_texts import NOTATIONS, TOOLS, calls_in

ANNOUNCE_EXAMPLES = """\
Here is a quick illustration:
For illustration:
As an illustration:
To illustrate:
Illustration:
Demo:
Pattern:
General form:
The general pattern is:
The schema of a call is:
You can trigger it with:
You can trigger a search with:
You may issue a call such as:
You just have to emit:
All you need to do is write:
All you have to do is send:
Clients should send:
The client sends:
An agent would emit:
The LLM would output:
The LLM then emits:
A model would answer with:
DeepSeek models emit:
Claude would write:
GPT-4 would respond with:
Here is the template you asked for:
Here's the snippet you asked about:
According to the documentation, the call is:
As the docs put it:
Quoted from the manual:
In the log I found:
In the log file there was:
The file's content is:
The contents of the file:
File contents:
The previous assistant turn was:
The earlier call was:
My earlier call was:
My previous call was:
The call I made earlier:
The call that I made before:
The bug report shows:
The issue says the model printed:
The failing call was:
The following call fails:
This call would fail:
This would be wrong:
This is wrong:
Wrong way:
Right way:
Avoid this:
Don't do this:
Do not do this:
Please don't write:
I won't run this, but it would be:
I would not call it, but the call would be:
If I had access to the tool, I would call:
If I could search, I'd call:
If you wanted to search, you'd write:
If one wanted to search, one would write:
Hypothetically:
In pseudo-code:
That would be:
That'd be:
is equivalent to:
It is equivalent to:
This is equivalent to:
Given the call:
Given this call:
Let's say the model emits:
Let's assume the model writes:
I'll show an example call:
Let me illustrate:
Let me demonstrate the format:
Let me explain the format:
Let me quote the manual:
Let me show you the syntax:
Try it yourself:
Try this:
Add the following to your system prompt:
Save this as call.json:
What does this mean:
The user pasted this:
You pasted:
You sent me this:
Your message was:
The text you sent is:
Expected:
Expected result:
Reference answer:
Answer key:
Unit test:
Test input:
Test case 1:
Documentation:
Docs:
Spec:
Specification:
Tutorial:
How to:
How-to:
Beispielaufruf:
Das Format ist:
Man ruft es so auf:
So sieht ein Aufruf aus:
Le format est le suivant :
El formato es:
Bijvoorbeeld:
Voorbeeld:
Przykład:
Na przykład:
Формат вызова:
例子：
举个例子：
格式：
예:
예를 들면:
مثال:
उदाहरण:
Ví dụ:
Contoh:
Örnek:
A simple demonstration:
A demonstration of the tool:
By way of illustration, this is a call:
You'd trigger the search like so:
You should then issue:
You only need to send:
You would then output:
Your client would send:
Your agent must output:
The developer should write:
Developers would write:
An LLM may emit:
LLMs usually write:
Most models write:
Some models emit:
Other agents send:
A user could send:
Claude would respond with:
ChatGPT would output:
Hermes would emit:
It would then be:
That would read:
If there were a tool, one would call:
If it were allowed, I would call:
If I were you, I'd run:
Hypothetically, I would call:
Let's pretend the model says:
The call I sent before:
The previous call was:
The last request was:
Your previous message was:
My last attempt was:
The wrong call was:
The text you pasted:
The snippet that you sent me is:
The message they sent was:
The template the user gave:
Contents of the log:
The contents of the page are:
The document's content:
The report says:
In the ticket there is:
On the web page I found:
In the transcript we saw:
According to the spec, the call is:
Copied from the docs:
To quote the docs:
I quote the manual:
This one is invalid:
The following call is invalid:
Such a call fails:
Please do not send:
Never do this:
Never output:
Avoid writing:
Wrong way:
Documentation:
Test case 2:
Reference call:
General pattern:
Equivalent to:
This is roughly equivalent to:
In pseudocode:
What would this do:
What does this call do:
Let me explain the syntax:
I'll demonstrate the notation:
I'll illustrate:
I will show a sample call:
I can illustrate the format:
Ein Beispielaufruf:
So sieht das aus:
Die Syntax ist:
La syntaxe est :
La sintaxis es:
O formato é:
Il formato è:
Voorbeeld van een aanroep:
Oto przykład:
Вот формат:
Формат:
一个例子：
""".splitlines()
ANNOUNCE_CALLS = """\
Let me look for examples in the repository:
I'll look for an example:
I'll run the example:
I'll create the example:
Let me read the example:
In the required format:
In JSON format:
Per your instructions:
Following the format:
The file to read:
Updating the example:
Adding an example:
Let me open the example:
Let me view the example:
Let me look at the examples:
Let me look at this example:
Looking at the example:
According to your instructions:
Got it. In the required format:
I'd search for this first:
I would first search for x:
If you don't mind, I'll search:
If that fails I will try another. Searching:
If I search for x, I will find it:
What I need to do:
What I need is the weather, so:
Let me see what happens when I run it:
Let me check what this call returns:
Let me make this request:
I'll make the following call:
I need to make one more call:
One more call is needed:
Another search is needed:
This needs a tool call:
This should work:
Fixing that now:
Corrected call:
Here is the corrected version:
The correct arguments are:
The query is:
The command to run:
The next command:
The best tool for this is search:
The function to call is search:
The required parameters are:
The appropriate tool call is:
The first call:
The first call is:
My next call is:
Second call:
Query 1:
Request:
Request to the API:
API request:
Running command:
Executing call:
Sending the message:
Posting the comment:
Writing the test:
Creating the README:
Updating the documentation:
Adding the test case:
Adding the following to the file:
Insert the row:
Now add the test:
Now the docs:
Now the example file:
Let me add this to the README:
Let me add the following test:
Let me update the spec:
I'll save this to a file:
I'll add the following:
I'll write the following content:
I'll send the message:
I'll reply with:
I'll answer after this search:
I'll show you the weather:
I'll show the docs:
Let me check the examples folder:
Let me demonstrate by searching:
Let me verify the output format:
Let me search the pattern:
Looking for the pattern:
Looking for usages of the function:
Looking at the examples in the repo:
Checking the syntax:
Reading the contents of the file:
Getting the contents:
I need the file's contents:
I want the documentation:
I'll read your message:
I'll analyse the text you sent:
I'll look at the snippet you sent:
You sent me a file. Reading it:
The user shared a link, so I'll open it:
The user would like x, so I'll search:
The user wants me to call search:
The user asks what the weather is, so let me check:
The user needs x. Let me call the tool:
The user might want the weather:
The task requires a search:
The answer is in the file:
The data is in the file:
The test fails, so let me see:
The last test failed. Checking:
The last message was unclear, so I'll search:
My previous query was too narrow. Let me broaden it:
That was wrong. Let me fix it:
That would be helpful, so I'll do it:
It would help to look it up:
This would be easier with a search:
It looks like I need to search:
In the docs folder:
In the file I found a bug. I'll fix it:
From the results, I see x. Next:
As the user asked, I search:
According to your request, I search:
According to the user's request:
Given that, I search:
Taken together, I need more data:
Say hello first, then search:
Try another query:
Let's say hello:
Right. Searching:
Expected. Next:
Format understood. Calling:
Ich schreibe die Datei:
我先搜索：
接下来我会调用工具：
다음을 검색합니다:
""".splitlines()


@pytest.mark.parametrize("line", ANNOUNCE_EXAMPLES)
def test_a_call_after_a_line_that_shows_quotes_or_denies_it_is_text(line: str) -> None:
    for kind, call in NOTATIONS.items():
        reading = read_text(line + call, TOOLS)
        assert (kind, reading.calls) == (kind, ())
        assert reading.content == line + call


@pytest.mark.parametrize("line", ANNOUNCE_CALLS)
def test_a_call_after_a_line_about_work_on_examples_files_and_messages_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, [("search", {"query": "x"})])


STARTS = {
    "a long paragraph": "The engine separates what a model shows from what it calls, and it does so for every family. " * 4,
    "a list": "- ",
    "another list": "\u2022 ",
    "a pictograph": "\U0001f4a1 ",
    "an arrow": "\u2192 ",
    "a tag": "<answer>",
    "reasoning": "<think>hm</think>",
    "a channel": "<|channel|>final<|message|>",
    "a marker of the answer": "<|START_RESPONSE|>",
    "a result": "<tool_response>\n{}\n</tool_response>",
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("line", ["For example:", "A call looks like this:", "The docs say:"])
def test_an_announcement_counts_at_the_end_of_every_line(start: str, line: str) -> None:
    for kind, call in NOTATIONS.items():
        text = STARTS[start] + line + call
        assert (kind, read_text(text, TOOLS).calls) == (kind, ())
        reader = TextReader(TOOLS)
        parts = [part for place in range(0, len(text), 3) for part in reader.feed(text[place : place + 3])]
        assert collect_parts([*parts, *reader.close()]) == read_text(text, TOOLS)


@pytest.mark.parametrize("start", STARTS)
def test_the_models_own_action_counts_at_the_end_of_every_line(start: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(f"{STARTS[start]}Let me search:{call}", TOOLS))) == (kind, [("search", {"query": "x"})])


def test_an_announcement_at_the_start_of_a_long_paragraph_does_not_reach_its_end() -> None:
    text = f"Such as: {STARTS['a long paragraph']}Now I search for x"
    assert len(read_text(f"{text}:{NOTATIONS['marked']}", TOOLS).calls) == 1
