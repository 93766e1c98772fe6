"""datasketch: near duplicates by its MinHash and LSH, in Python and NumPy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.peers import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PEER = Peer(name="datasketch", modules={"datasketch": "datasketch"})
PEERS = (PEER,)
NUM_PERMUTATIONS = 128
# Of false positives and false negatives.
WEIGHTS = (0.1, 0.9)


def build(texts: Sequence[str], threshold: float, size: int) -> Callable[[], Any]:
    """Return a call that says of each text whether it is near a kept one, as its documents do.

    What the index returns counts as near. Its bands weigh misses above false alarms; by its
    defaults they miss 18% of the copies of this case.
    """
    from datasketch import MinHash, MinHashLSH

    def find() -> list[bool]:
        index = MinHashLSH(threshold=threshold, num_perm=NUM_PERMUTATIONS, weights=WEIGHTS)
        found = []
        for row, text in enumerate(texts):
            words = re.findall(r"\w+", text.casefold())
            runs = {" ".join(words[n : n + size]) for n in range(max(1, len(words) - size + 1))}
            signature = MinHash(num_perm=NUM_PERMUTATIONS)
            signature.update_batch([run.encode() for run in runs])
            near = bool(index.query(signature))
            found.append(near)
            if not near:
                index.insert(row, signature)
        return found

    return find
