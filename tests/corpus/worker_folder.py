"""A tool that a worker process imports without the modules of its tests, which would take most of the time of the worker's start."""

from __future__ import annotations

import os

from callgate import tool

__all__ = ["folder_of_worker"]


@tool(effect="none", runner="process")
def folder_of_worker() -> str:
    """Start a worker process, so that its start takes no time of the next call."""
    return os.getcwd()
