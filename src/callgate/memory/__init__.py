"""Memory: store and search results of calls, notes, and the files that calls wrote.

Pass a `Memory` to an engine: it then reads the engine's journal. A model uses the memory through its tools, and the
memory's index makes searches in files faster. `PassageStore` and `Embedder` are protocols with replaceable
implementations. This package imports the built-in tools; the built-in tools do not import it.
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
