"""Parts of the patterns for phrases about calls, and how the patterns are put together."""

from __future__ import annotations

import re

__all__ = ["ANSWER_VERB", "BE", "CALL_VERB", "MAKE_VERB", "SENTENCE_START", "any_of"]


def any_of(*alternatives: str) -> re.Pattern[str]:
    """Return a pattern that matches what one of these does, in capitals or not. A comment before each shows a line that it matches."""
    return re.compile("|".join(alternatives), re.IGNORECASE)


BE = r"(?:['\u2019]s| is| are)"
SENTENCE_START = r"(?:^|[.!?]\s+)\W*(?:(?:and|so|now|then|here),? )?"
CALL_VERB = r"(?:call|use|invoke|run|try|write|send|emit|put|type)"
MAKE_VERB = rf"(?:{CALL_VERB}|trigger|issue|do|make|execute|perform|request|output|produce)"
ANSWER_VERB = rf"(?:{CALL_VERB}|output|return|produce|generate|print|issue|(?:respond|reply|answer) with)"
