"""Memory: what calls came to, notes, and the files that calls wrote, to be found again.

`Memory` goes into an engine and follows its record; its tools give it to a model, and its index makes searches in files faster. Stands
above the tools that come along, because it uses theirs; nothing below knows it. `PassageStore` and `Embedder` are what others may plug in.
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
