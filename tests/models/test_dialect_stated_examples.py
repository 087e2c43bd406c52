"""Announcements of examples without a colon: sentences that end with a full stop, labels, headings, and a phrase before a line break."""

from __future__ import annotations

import pytest

from callgate.models.dialects import read_text
from tests.models.dialect_texts import NOTATIONS, TOOLS, calls_in

ANNOUNCE_EXAMPLES = """\
Here is an example.
Here's an example of a tool call.
Here is an example of how to call it.
An example is shown below.
See the example below.
The following is an example.
This is an example of a call.
Below is an example.
Example
Example 1
Example call
Examples
EXAMPLE
An example
Usage
Usage example
Sample call
Example (Hermes)
Example 2: searching
Example - search
For example
For example,
e.g.
示例
例子
A call looks like this.
The format is shown below.
The format is as follows.
It is called as follows.
You call it as follows.
You can call it like this.
This is how you call it.
Here is how to call the tool.
Let me show you an example.
Do not run this.
Don't call it like this.
Note that this is only an example.
This is just an example, not a real call.
(example)
[Example]
<example>
<!-- example -->
// example
# Example
*Example*
**Example call**
**Example 1:**
**Example 1.**
1. **Example**
- **Example**
- *Example:*
### Example 1: a search
#### How to use it
### Format
### Tool call format
### The syntax
#### Call syntax
> Example:
Example →
Example =>
Example –
""".splitlines()
ANNOUNCE_CALLS = """\
Okay.
I will search for x.
Let me look at the example.
I'll search for an example.
Let me check the example file.
I found an example, but I need to search.
The example is not enough. I will search.
The example below does not help, so I search.
The format is clear now.
The usage is clear. Searching now.
Searching for an example.
I need an example first.
First, an example is needed.
I'll use the format.
The user wants an example.
The user asked for an example.
The user wants to know how to call it. I'll look it up.
You asked how to use it. Let me check.
Let me find out how it is called.
Let me see how to call it.
I don't know the format. I'll search.
I can't answer without a search.
I can't tell. Let me search.
I did not find it. Searching again.
I will not guess.
I won't guess; I'll search.
Don't worry.
Do not worry.
This is not an example task.
Search
## Search
**Search**
Action
Tool
Step 1
---
Let me search
Searching
### Step 2: find examples
## Finding an example
### Checking the usage
## Plan
See the example.py file.
This page is an example.com page.
examples/search.py:
I found these examples:
I ran the example.
""".splitlines()


@pytest.mark.parametrize("line", ANNOUNCE_EXAMPLES)
def test_a_call_after_a_sentence_or_label_that_announces_an_example_is_text(line: str) -> None:
    for kind, call in NOTATIONS.items():
        reading = read_text(line + call, TOOLS)
        assert (kind, reading.calls) == (kind, ())
        assert reading.content == line + call


@pytest.mark.parametrize("line", ANNOUNCE_CALLS)
def test_a_call_after_a_sentence_that_only_contains_such_words_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, [("search", {"query": "x"})])


def test_a_closing_tag_announces_nothing() -> None:
    text = f"<example>{NOTATIONS['marked']}\n</example>\n"
    assert read_text(text, TOOLS).calls == ()
    assert len(read_text(f"{text}{NOTATIONS['marked']}", TOOLS).calls) == 1


@pytest.mark.parametrize("label", ["Documentation:", "Docs:", "I found these examples:"])
def test_a_list_below_a_label_is_not_an_announcement(label: str) -> None:
    assert len(read_text(f"{label}\n- one\n- two\n{NOTATIONS['marked']}", TOOLS).calls) == 1
