"""Memory: store and search results of calls, notes, and the files that calls wrote.

A `Memory` is given to an engine and follows its journal. Its tools let a model use it, and its index speeds up searches in files.
`PassageStore` and `Embedder` can be replaced. Uses the built-in tools, which do not know it.
"""

from __future__ import annotations

from callgate.memory.embedding import Embedder, EmbedderFailed
from callgate.memory.http_embedder import EmbeddingsEndpoint
from callgate.memory.limits import MemoryLimits
from callgate.memory.memory import Memory, MemoryStatus
from callgate.memory.memory_passages import MemoryPassages
from callgate.memory.passage_table import TablePassages
from callgate.memory.passages import FoundPassage, Passage, PassageKind, PassageQuery, PassageStore

__all__ = [
    "Embedder",
    "EmbedderFailed",
    "EmbeddingsEndpoint",
    "FoundPassage",
    "Memory",
    "MemoryLimits",
    "MemoryPassages",
    "MemoryStatus",
    "Passage",
    "PassageKind",
    "PassageQuery",
    "PassageStore",
    "TablePassages",
]
