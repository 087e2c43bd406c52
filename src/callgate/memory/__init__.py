"""Memory: store and search results of calls, notes, and the files that calls wrote.

A `Memory` is given to an engine and follows its journal. A model uses the memory through its tools, and searches in files are faster with
its index. `PassageStore` and `Embedder` can be replaced. This package uses the built-in tools; they do not know it.
"""

from __future__ import annotations

from callgate.memory.embedder_protocol import Embedder, EmbedderFailed
from callgate.memory.http_embedder import EmbeddingsEndpoint
from callgate.memory.in_memory_passages import MemoryPassages
from callgate.memory.memory import Memory, MemoryStatus
from callgate.memory.memory_limits import MemoryLimits
from callgate.memory.passage import FoundPassage, Passage, PassageKind, PassageQuery, PassageStore
from callgate.memory.passage_table import TablePassages

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
