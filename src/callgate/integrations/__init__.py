"""Tools and agents of other frameworks.

None of the frameworks is a dependency; a module imports its own. In reading order:

Tools
    `import_tools` makes tools of the engine from those of other frameworks and from plain functions. `external_tool` is such a tool;
        `given_options` reads the effects and options that a developer gives for them, `plain_callables` makes functions of callables, and
        `_model_arguments` reads arguments with pydantic. `_langchain_tools`, `_pydantic_ai_tools`, `_openai_agents_tools`,
        `_agent_framework_tools` and `_anthropic_tools` describe the tools of one framework each. `openapi` makes tools from an OpenAPI
        document.

Calls that a framework makes
    `framework_call` takes one along the route, in the scope from `wrapper_scopes`. `wrapped_tools` has the wrapper's tools in the engine,
        and `abandonable_threads` runs plain functions. `journaled_calls` finds a framework's calls in the journal,
        and `cut_calls` says which calls of a message that a limit ended are incomplete.

What a human decides through a framework
    `open_questions` are the questions that the framework shows. `outdated_answers` decides whether a yes still counts, and `late_denials`
        the text for the model after a denial that came too late.

The wrappers
    `langchain` and `langgraph`, with `_langchain_starts`, `_langgraph_calls`, `_langgraph_decisions`, `_langgraph_execution`,
        `_langgraph_order`, `_langgraph_questions` and `_langgraph_warnings`. `pydantic_ai`, with `_pydantic_ai_messages`,
        `_pydantic_ai_answers`, `_pydantic_ai_defaults`, `_pydantic_ai_edits`, `_pydantic_ai_outputs`, `_pydantic_ai_results` and
        `_pydantic_ai_warnings`. `openai_agents`, with `_openai_agents_runs` and `_openai_agents_denials`. `agent_framework`, with
        `_agent_framework_messages` and `_agent_framework_warnings`.
"""

from __future__ import annotations

from callgate.integrations.external_tool import ExternalTool
from callgate.integrations.import_tools import import_tools

__all__ = ["ExternalTool", "import_tools"]
