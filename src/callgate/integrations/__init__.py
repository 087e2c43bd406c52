"""Tools and agents of other frameworks.

`import_tools` registers tools of LangChain, Pydantic AI, the OpenAI Agents SDK and Microsoft Agent Framework. A module
for each framework has the wrapper that takes an agent's calls along the engine's route: `langchain`, `langgraph`,
`pydantic_ai`, `openai_agents` and `agent_framework`. None of the frameworks is a dependency; a module imports its own.

`openapi` makes tools from an OpenAPI document.

Read `external_tool`, then `framework_call` and `wrapped_tools`, which all wrappers share, then a framework's module.
"""

from __future__ import annotations

from callgate.integrations.external_tool import ExternalTool
from callgate.integrations.import_tools import import_tools

__all__ = ["ExternalTool", "import_tools"]
