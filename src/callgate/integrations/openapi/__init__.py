"""Tools from an OpenAPI document: one tool per operation, called over HTTP.

Read in this order: `openapi_tools` makes the tools; `document` reads the document, `schemas` its schemas and `operations` its operations;
`named_operations` names their tools and finds what an option names; `request` makes the request of a call and `operation_tool` sends it;
`response` makes the result. Needs httpx2 only when a tool is called.
"""

from __future__ import annotations

from callgate.integrations.openapi.openapi_tools import openapi_tools

__all__ = ["openapi_tools"]
