"""JinaBERT with layer norms of query and key, against a plain reading of its published layout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import save_file

import encoder_engine as ee
from encoder_engine.families.data.jina_bert_v2_qk import REPOSITORY
from encoder_engine.inference import CompiledEncoder
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.inference.native_module import use_native_products
from tests.models.cases import VOCAB_SIZE
from tests.models.published.test_published_layouts import (
    JINA,
    assert_same_after_saving,
    by_rows,
    published_slopes,
    rewrite,
)
from tests.models.test_families import LENGTHS, token_rows

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

CODE = {
    "auto_map": {
        "AutoConfig": f"{REPOSITORY}configuration_bert.JinaBertConfig",
        "AutoModel": f"{REPOSITORY}modeling_bert.JinaBertModel",
    }
}
NORMS = (
    "attention.self.layer_norm_q",
    "attention.self.layer_norm_k",
    "attention.output.LayerNorm",
    "layer_norm_1",
    "layer_norm_2",
)


def draw(width: int, layers: int, inner: int) -> dict[str, Tensor]:
    """Draw a checkpoint in the layout of jinaai/jina-bert-v2-qk-post-norm."""
    generator = torch.Generator().manual_seed(width)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCAB_SIZE, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    dense = {"pooler.dense": (width, width)}
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{place}" for place in range(layers)):
        for part in ("query", "key", "value"):
            dense[f"{layer}.attention.self.{part}"] = (width, width)
        dense[f"{layer}.attention.output.dense"] = (width, width)
        dense[f"{layer}.mlp.down_layer"] = (width, inner)
        shapes[f"{layer}.mlp.up_gated_layer.weight"] = (2 * inner, width)
        norms += [f"{layer}.{name}" for name in NORMS]
    for name, shape in dense.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    shapes |= {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    drawn = {k: torch.randn(shape, generator=generator) * 0.1 for k, shape in shapes.items()}
    return {k: x + (1.0 if k.removesuffix(".weight") in norms else 0.0) for k, x in drawn.items()}


def read(weights: dict[str, Tensor], heads: int, ids: list[int]) -> list[Tensor]:
    """Compute every hidden state of one text from the layout."""

    def dense(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(
            x, x.shape[1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12
        )

    words = weights["embeddings.word_embeddings.weight"][ids]
    x = norm(words + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    places = torch.arange(len(ids))
    distance = (places[:, None] - places[None, :]).abs()
    slopes = torch.tensor(published_slopes(heads), dtype=x.dtype)
    hidden, layer = [x], 0
    while f"encoder.layer.{layer}.layer_norm_1.weight" in weights:
        base = f"encoder.layer.{layer}"
        own = f"{base}.attention.self"
        flat = [
            norm(dense(x, f"{own}.query"), f"{own}.layer_norm_q"),
            norm(dense(x, f"{own}.key"), f"{own}.layer_norm_k"),
            dense(x, f"{own}.value"),
        ]
        query, key, value = (one.view(len(ids), heads, -1).transpose(0, 1) for one in flat)
        scores = query @ key.mT / math.sqrt(query.shape[2]) - slopes[:, None, None] * distance
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(len(ids), -1)
        mixed = dense(mixed, f"{base}.attention.output.dense")
        mixed = norm(mixed + x, f"{base}.attention.output.LayerNorm")
        x = norm(mixed + x, f"{base}.layer_norm_1")
        other, gate = dense(x, f"{base}.mlp.up_gated_layer").chunk(2, dim=1)
        raised = dense(other * F.gelu(gate), f"{base}.mlp.down_layer")
        x = norm(x + raised, f"{base}.layer_norm_2")
        hidden.append(x)
        layer += 1
    return hidden


def save(folder: Path, width: int, heads: int, layers: int) -> dict[str, Tensor]:
    folder.mkdir(exist_ok=True)
    inner = 2 * width + 2
    weights = draw(width, layers, inner)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    sizes = {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers}
    rewrite(folder, JINA | CODE | sizes | {"intermediate_size": inner})
    return weights


@pytest.mark.parametrize(("width", "heads", "layers"), [(36, 6, 2), (64, 4, 1)])
def test_every_layer_is_within_budget(width: int, heads: int, layers: int, tmp_path: Path) -> None:
    weights = save(tmp_path, width, heads, layers)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    assert encoder.spec.model_type == "jina_bert_v2_qk"
    rows = token_rows(LENGTHS)
    with torch.no_grad():
        found = encoder(pack(rows), output_hidden_states=True).hidden_states
    wide = {name: tensor.double() for name, tensor in weights.items()}
    eager = by_rows([read(weights, heads, row) for row in rows])
    truth = by_rows([read(wide, heads, row) for row in rows])
    assert found is not None
    for place, states in enumerate(zip(found, eager, truth, strict=True)):
        assert_within_budget(*states, f"hidden_states[{place}]", terms=3 * width)
    assert_same_after_saving(tmp_path, tmp_path / "again")


@pytest.mark.parametrize("precision", [("float32", None), ("bfloat16", None), ("bfloat16", "int8")])
def test_the_compiled_encoder_has_the_modules_bits(
    precision: tuple[str, str | None], tmp_path: Path
) -> None:
    save(tmp_path, 48, 6, 2)
    compiled = CompiledEncoder.from_pretrained(tmp_path, *precision)
    dtype, quantization = precision
    module = ee.Encoder.from_pretrained(
        tmp_path, device="cpu", dtype=dtype, quantization=quantization
    )
    batch = pack(token_rows(LENGTHS))
    again = module.compile_for_inference()
    arrays = [x.numpy().astype(np.int32) for x in (batch.input_ids, batch.cu_seqlens)]
    found = compiled.hidden(*arrays)
    np.testing.assert_array_equal(found, again.hidden(*arrays))
    with torch.inference_mode():
        rows = module(batch).last_hidden_state
        use_native_products(module)
        bits = module(batch).last_hidden_state
    np.testing.assert_array_equal(found, bits.float().numpy())
    exact = ee.Encoder.from_pretrained(tmp_path, device="cpu", dtype="float64")
    if quantization is None:
        truth = exact(batch).last_hidden_state.detach()
        assert_within_budget(torch.from_numpy(found).to(rows.dtype), rows, truth, terms=3 * 48)


def test_a_fresh_encoder_is_found_again(tmp_path: Path) -> None:
    save(tmp_path / "published", 36, 6, 1)
    spec = ee.Encoder.from_pretrained(tmp_path / "published", device="cpu").spec
    ee.Encoder(spec).save_pretrained(tmp_path / "fresh")
    assert ee.Encoder.from_pretrained(tmp_path / "fresh", device="cpu").spec == spec
