"""Memory: store and search results of calls, notes, and the files that calls wrote.

Pass a `Memory` to an engine: it then reads the engine's journal. A model uses the memory through its tools, and the
memory's index makes searches in files faster. `PassageStore` and `Embedder` are protocols with replaceable
implementations. This package imports the built-in tools; the built-in tools do not import it. In reading order:

The memory
    `memory` puts the parts together, within `memory_limits`; `memory_tools` are a model's tools, and `notes` what it wants to remember.
        `background_thread` and `background_jobs` do the work that no call waits for.

What it remembers
    `journal_follower` reads the journal from its `journal_read_positions` on, and takes the facts of `ended_calls`. `file_passages` reads
        written files. `text_chunks` cuts texts, and `text_terms` splits them into words.

Stores and searches
    `passage` has the protocol of stores. `passage_table` is the one in the SQLite `database`, with `passage_rows` and `passage_vectors`;
        `in_memory_passages` is one for tests. `embedder_protocol` has the protocol of embedders, `embedder_calls` calls one, and
        `http_embedder` is one. `semantic_search` searches by words and meaning, combined by `rank_fusion`. `file_index` speeds up searches
        in files.
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
