"""An OpenAPI document of a small shop, for the tests of `openapi_tools`."""

from __future__ import annotations

from typing import Any

__all__ = ["operation", "shop"]


def shop() -> dict[str, Any]:
    """Return a document of version 3.1 with an operation of each method."""
    article = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "name": {"type": "string", "minLength": 1},
            "price": {"type": "number", "exclusiveMinimum": 0},
            "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Article"}},
        },
        "required": ["id", "name"],
        "additionalProperties": False,
    }
    article_id = {"name": "articleId", "in": "path", "required": True, "schema": {"type": "string"}, "description": "The article's id."}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Article"}}}}
    tags = {"name": "tags", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": "https://{region}.shop.example/v1", "variables": {"region": {"default": "eu"}}}],
        "components": {"schemas": {"Article": article}, "parameters": {"ArticleId": article_id}},
        "paths": {
            "/articles": {
                "get": {"operationId": "listArticles", "summary": "List articles", "parameters": [tags]},
                "post": {"operationId": "createArticle", "summary": "Create an article", "requestBody": body},
            },
            "/articles/{articleId}": {
                "parameters": [{"$ref": "#/components/parameters/ArticleId"}],
                "get": {"operationId": "readArticle", "summary": "Read an article", "description": "Read an article by its id."},
                "put": {"operationId": "replaceArticle", "requestBody": body},
                "patch": {"summary": "Change an article", "requestBody": body},
                "delete": {"operationId": "delete article!"},
                "head": {"operationId": "checkArticle"},
            },
        },
    }


def operation(
    *parameters: dict[str, Any], path: str = "/things", method: str = "get", version: str = "3.1.0", **more: Any
) -> dict[str, Any]:
    """Return a document with the single operation `ask`."""
    node = {"operationId": "ask", "parameters": list(parameters), **more}
    return {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": {path: {method: node}}}
