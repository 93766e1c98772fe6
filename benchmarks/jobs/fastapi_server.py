"""Serves sentence-transformers behind FastAPI, as its users write it: one call a request."""

from __future__ import annotations

import base64
import sys
from typing import Any


def main(directory: str, port: int, threads: int, max_length: int) -> None:
    """Serve ``/v1/embeddings`` until the process is ended."""
    import torch
    import uvicorn
    from fastapi import Body, FastAPI
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(directory, device="cpu")
    model.max_seq_length = max_length
    app = FastAPI()

    # A plain function: FastAPI runs it in a thread, so that other requests are read meanwhile.
    def embeddings(request: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008
        texts = request["input"]
        vectors = model.encode([texts] if isinstance(texts, str) else texts)
        encoded = request.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": row,
                "embedding": base64.b64encode(vector.tobytes()).decode()
                if encoded
                else vector.tolist(),
            }
            for row, vector in enumerate(vectors)
        ]
        return {"object": "list", "data": data, "model": request.get("model")}

    def health() -> dict[str, str]:
        return {}

    app.post("/v1/embeddings")(embeddings)
    app.get("/health")(health)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
