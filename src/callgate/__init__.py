"""callgate: the tool-call engine for LLM agents."""
