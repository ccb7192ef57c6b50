"""Conversations in a Chroma collection, as people keep them: targets of the durability card.

Each is a function of an engine. `server_*` talk to a Chroma server; `library_*` open Chroma in the
client process, in the directory of an engine of files only (`--engine sqlite`). Chroma writes its
index to files after 1,000 records; `_indexed` says 50, so that this happens while one watches.
Embeddings are hashes: to load a model takes longer than the cut.
"""

from __future__ import annotations

import functools
from typing import Final

from holdfast.verify.adapters import chroma_store
from holdfast.verify.indexes import Hashes

INDEXED: Final = {"hnsw:batch_size": 25, "hnsw:sync_threshold": 50}

server_queued: Final = functools.partial(chroma_store.server, model=Hashes())
server_indexed: Final = functools.partial(chroma_store.server, model=Hashes(), about=INDEXED)
library_queued: Final = functools.partial(chroma_store.client, model=Hashes())
library_indexed: Final = functools.partial(chroma_store.client, model=Hashes(), about=INDEXED)
