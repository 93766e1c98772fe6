"""model2vec: static embeddings by Hugging Face tokenizers and NumPy."""

from __future__ import annotations

from benchmarks.peers import Peer

PEER = Peer(name="model2vec", modules={"model2vec": "model2vec", "tokenizers": "tokenizers"})
PEERS = (PEER,)
