"""Families that transformers does not read as published: configuration and layout as they are."""

from __future__ import annotations

import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

import encoder_engine as ee
from encoder_engine.errors import UnknownConfigKeyWarning, UnsupportedFeatureError
from encoder_engine.models import all_families
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.models.all_cases import ALL_CASES
from tests.models.cases import CASES, VOCAB_SIZE, Case
from tests.models.exact import exact, in_float64
from tests.models.test_families import LENGTHS, by_transformers, by_us, token_rows
from tests.models.test_heads import MODELS, build
from tests.models.test_heads import by_transformers as logits_by_transformers

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

NOMIC_CODE = "nomic-ai/nomic-bert-2048--"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")


def rewrite(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def assert_same_after_saving(folder: Path, again: Path) -> None:
    encoder = ee.Encoder.from_pretrained(folder, device="cpu")
    encoder.save_pretrained(again)
    before, after = load_file(folder / "model.safetensors"), load_file(again / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    kept = json.loads((folder / "config.json").read_text())
    said = json.loads((again / "config.json").read_text())
    assert {key: said[key] for key in kept} == kept
    assert ee.Encoder.from_pretrained(again, device="cpu").spec == encoder.spec


def assert_as_transformers(model: Any, folder: Path) -> None:
    rows = token_rows(LENGTHS)
    eager = by_transformers(model, rows, padded=True)
    with in_float64():
        truth = by_transformers(exact(model), rows, padded=True)
    found = by_us(ee.Encoder.from_pretrained(folder, device="cpu"), rows)
    for name in truth:
        theirs, true = torch.cat(eager[name]), torch.cat(truth[name])
        assert_within_budget(found[name], theirs, true, name, terms=3 * true.shape[1])


def first(model_type: str) -> Case:
    return next(case for case in CASES if case.model_type == model_type)


SNOWFLAKE = {
    "model_type": "gte",
    "architectures": ["GteModel"],
    "auto_map": {
        "AutoConfig": "configuration_hf_alibaba_nlp_gte.GteConfig",
        "AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel",
    },
}


@pytest.mark.parametrize("own", [{}, SNOWFLAKE], ids=["Alibaba", "Snowflake"])
@pytest.mark.parametrize("stretch", [None, 8.0])
def test_gte_as_its_authors_publish_it(
    stretch: float | None, own: dict[str, Any], tmp_path: Path
) -> None:
    head_dim = first("gte").sizes["hidden_size"] // first("gte").sizes["num_attention_heads"]
    turned = {"rope_type": "default", "rope_theta": 20_000.0}
    if stretch is not None:
        # The same angles in transformers' words.
        divisor = stretch ** (2 / head_dim)
        turned = {"rope_type": "linear", "factor": divisor, "rope_theta": 20_000.0 * stretch}
    model = first("gte").save(tmp_path, rope_parameters=turned)
    config = model.config.to_dict()
    published = {
        "model_type": "new",
        "architectures": ["NewModel"],
        "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
        "position_embedding_type": "rope",
        "pack_qkv": True,
        "rope_theta": 20_000.0,
        "rope_scaling": None if stretch is None else {"type": "ntk", "factor": stretch},
    }
    kept = {key: value for key, value in config.items() if key != "rope_parameters"}
    rewrite(tmp_path, kept | published | own)
    assert_as_transformers(model, tmp_path)
    assert_same_after_saving(tmp_path, tmp_path / "again")


@pytest.mark.parametrize("task", [layout.task for layout in all_families()["new"].layouts])
def test_heads_of_gte_as_its_authors_publish_it(task: str, tmp_path: Path) -> None:
    layout = next(one for one in all_families()["gte"].layouts if one.task == task)
    model = build(first("gte"), layout, tmp_path, rope_parameters={"rope_theta": 20_000.0})
    tensors = load_file(tmp_path / "model.safetensors")
    published = {name.replace("gte.", "new.", 1): tensor for name, tensor in tensors.items()}
    assert published.keys() != tensors.keys()
    save_file(published, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict()
    kept = {key: value for key, value in config.items() if key != "rope_parameters"}
    rewrite(tmp_path, kept | {"model_type": "new", "rope_theta": 20_000.0, "rope_scaling": None})
    ours = MODELS[task].from_pretrained(tmp_path, device="cpu")
    assert ours.encoder.spec.model_type == "new"
    rows = token_rows(LENGTHS)
    with torch.no_grad():
        eager = logits_by_transformers(model, rows)
        with in_float64():
            truth = logits_by_transformers(exact(model), rows)
        found = ours(pack(rows))
    assert_within_budget(found, eager[0], truth[0], terms=3 * ours.encoder.spec.width)
    ours.save_pretrained(tmp_path / "again")
    saved = load_file(tmp_path / "again" / "model.safetensors")
    assert saved.keys() == published.keys()
    assert all(torch.equal(saved[name], published[name]) for name in saved)


def test_modernbert_as_composer_writes_its_configuration(tmp_path: Path) -> None:
    model = first("modernbert").save(tmp_path)
    own = {
        "position_embedding_type": "sans_pos",
        "causal_mask": False,
        "is_causal": False,
        "layer_norm_eps": 1e-5,
    }
    rewrite(tmp_path, model.config.to_dict() | own)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownConfigKeyWarning)
        assert_as_transformers(model, tmp_path)
    for key in ("causal_mask", "is_causal"):
        rewrite(tmp_path, model.config.to_dict() | own | {key: True})
        with pytest.raises(UnsupportedFeatureError, match=key):
            ee.Encoder.from_pretrained(tmp_path, device="cpu")


def test_nomic_bert_by_the_keys_it_was_first_published_with(tmp_path: Path) -> None:
    model = first("nomic_bert").save(tmp_path)
    config = model.config
    published = {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "auto_map": {"AutoModel": f"{NOMIC_CODE}modeling_hf_nomic_bert.NomicBertModel"},
        "activation_function": "swiglu",
        "vocab_size": config.vocab_size,
        "n_embd": config.hidden_size,
        "n_layer": config.num_hidden_layers,
        "n_head": config.num_attention_heads,
        "n_inner": config.intermediate_size,
        "n_positions": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "layer_norm_epsilon": config.layer_norm_eps,
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
        "qkv_proj_bias": False,
        "prenorm": False,
    }
    rewrite(tmp_path, published)
    assert_as_transformers(model, tmp_path)
    assert_same_after_saving(tmp_path, tmp_path / "again")


NEOBERT: dict[str, Any] = {
    "model_type": "neobert",
    "architectures": ["NeoBERTLMHead"],
    "auto_map": {
        "AutoConfig": "model.NeoBERTConfig",
        "AutoModel": "model.NeoBERT",
        "AutoModelForMaskedLM": "model.NeoBERTLMHead",
        "AutoModelForSequenceClassification": "model.NeoBERTForSequenceClassification",
    },
    "decoder_init_range": 0.02,
    "embedding_init_range": 0.02,
    "kwargs": {"trust_remote_code": True},
    "max_length": 96,
    "norm_eps": 1e-05,
    "pad_token_id": 0,
}


def to_neobert(tensors: dict[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Lay EuroBERT's tensors out as NeoBERT's are: by head, pairs of features side by side."""

    def paired(weight: Tensor) -> Tensor:
        by_head = weight.view(heads, 2, -1, weight.shape[1])
        return by_head.transpose(1, 2).reshape(heads, -1, weight.shape[1])

    found = {
        "model.encoder.weight": tensors["embed_tokens.weight"],
        "model.layer_norm.weight": tensors["norm.weight"],
    }
    layer = 0
    while f"layers.{layer}.input_layernorm.weight" in tensors:
        theirs, ours = f"layers.{layer}", f"model.transformer_encoder.{layer}"
        query, key, value = (
            tensors[f"{theirs}.self_attn.{part}_proj.weight"] for part in ("q", "k", "v")
        )
        value = value.view(heads, -1, value.shape[1])
        stacked = torch.cat([paired(query), paired(key), value], dim=1)
        gate, up = (tensors[f"{theirs}.mlp.{part}_proj.weight"] for part in ("gate", "up"))
        found |= {
            f"{ours}.qkv.weight": stacked.flatten(0, 1),
            f"{ours}.wo.weight": tensors[f"{theirs}.self_attn.o_proj.weight"],
            f"{ours}.ffn.w12.weight": torch.cat([gate, up]),
            f"{ours}.ffn.w3.weight": tensors[f"{theirs}.mlp.down_proj.weight"],
            f"{ours}.attention_norm.weight": tensors[f"{theirs}.input_layernorm.weight"],
            f"{ours}.ffn_norm.weight": tensors[f"{theirs}.post_attention_layernorm.weight"],
        }
        layer += 1
    return {name: tensor.contiguous() for name, tensor in found.items()}


def test_neobert_as_its_authors_publish_it(tmp_path: Path) -> None:
    """Its layers are EuroBERT's with equally many heads, in another layout."""
    case = next(one for one in ALL_CASES if one.model_type == "eurobert")
    model = case.save(
        tmp_path,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    config = model.config
    tensors = to_neobert(load_file(tmp_path / "model.safetensors"), config.num_attention_heads)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    # Two thirds of 95, rounded down, are 63, and the next multiple of 8 is the layers' width.
    sizes = {"intermediate_size": 95} | {
        key: getattr(config, key)
        for key in ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
    }
    rewrite(tmp_path, NEOBERT | sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownConfigKeyWarning)
        assert_as_transformers(model, tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    encoder.save_pretrained(tmp_path / "again")
    saved = load_file(tmp_path / "again" / "model.safetensors")
    for name, tensor in saved.items():
        assert torch.equal(tensor, tensors[f"model.{name}"])
    assert ee.Encoder.from_pretrained(tmp_path / "again", device="cpu").spec == encoder.spec
    for change in ({"hidden_act": "gelu"}, {"ngpt": True}, {"rms_norm": False}, {"rope": False}):
        rewrite(tmp_path, NEOBERT | sizes | change)
        with pytest.raises(UnsupportedFeatureError, match=next(iter(change))):
            ee.Encoder.from_pretrained(tmp_path, device="cpu")


JINA: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["JinaBertModel"],
    "auto_map": {
        "AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig",
        "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel",
    },
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "emb_pooler": "mean",
    "vocab_size": VOCAB_SIZE,
    "hidden_act": "gelu",
    "type_vocab_size": 2,
    "max_position_embeddings": 96,
    "pad_token_id": 0,
    "layer_norm_eps": 1e-12,
}


def jina_tensors(width: int, layers: int, inner: int) -> dict[str, Tensor]:
    """Draw a checkpoint in the layout of jinaai/jina-bert-implementation."""
    generator = torch.Generator().manual_seed(width)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCAB_SIZE, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "pooler.dense.weight": (width, width),
        "pooler.dense.bias": (width,),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{place}" for place in range(layers)):
        for name in ("attention.self.query", "attention.self.key", "attention.self.value"):
            shapes[f"{layer}.{name}.weight"] = (width, width)
            shapes[f"{layer}.{name}.bias"] = (width,)
        shapes[f"{layer}.attention.output.dense.weight"] = (width, width)
        shapes[f"{layer}.attention.output.dense.bias"] = (width,)
        shapes[f"{layer}.mlp.gated_layers.weight"] = (2 * inner, width)
        shapes[f"{layer}.mlp.wo.weight"] = (width, inner)
        shapes[f"{layer}.mlp.wo.bias"] = (width,)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.mlp.layernorm"]
    shapes |= {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    drawn = {k: torch.randn(shape, generator=generator) * 0.1 for k, shape in shapes.items()}
    return {k: x + (1.0 if k.removesuffix(".weight") in norms else 0.0) for k, x in drawn.items()}


def published_slopes(num_heads: int) -> list[float]:
    """Follow the ALiBi paper's own recipe."""
    if math.log2(num_heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(num_heads) - 3)))
        return [start * start**i for i in range(num_heads)]
    closest = 2 ** math.floor(math.log2(num_heads))
    more = published_slopes(2 * closest)[0::2][: num_heads - closest]
    return published_slopes(closest) + more


def read_jina(weights: dict[str, Tensor], heads: int, ids: list[int]) -> list[Tensor]:
    """Compute every hidden state of one text, from the paper and the published code's layout."""

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
    while f"encoder.layer.{layer}.mlp.wo.weight" in weights:
        base = f"encoder.layer.{layer}"
        query, key, value = (
            dense(x, f"{base}.attention.self.{part}").view(len(ids), heads, -1).transpose(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.mT / math.sqrt(query.shape[2]) - slopes[:, None, None] * distance
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(len(ids), -1)
        mixed = dense(mixed, f"{base}.attention.output.dense")
        x = norm(x + mixed, f"{base}.attention.output.LayerNorm")
        gate, other = dense(x, f"{base}.mlp.gated_layers").chunk(2, dim=1)
        x = norm(x + dense(F.gelu(gate) * other, f"{base}.mlp.wo"), f"{base}.mlp.layernorm")
        hidden.append(x)
        layer += 1
    return hidden


def by_rows(texts: list[list[Tensor]]) -> list[Tensor]:
    """Put the texts' hidden states end to end, layer by layer."""
    return [torch.cat(states) for states in zip(*texts, strict=True)]


@pytest.mark.parametrize(("width", "heads", "layers"), [(36, 6, 2), (64, 4, 1)])
def test_jina_bert_computes_what_its_authors_publish(
    width: int, heads: int, layers: int, tmp_path: Path
) -> None:
    inner = 2 * width + 2
    weights = jina_tensors(width, layers, inner)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    sizes = {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers}
    rewrite(tmp_path, JINA | sizes | {"intermediate_size": inner})
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    assert encoder.spec.model_type == "jina_bert_v2"
    rows = token_rows(LENGTHS)
    with torch.no_grad():
        found = encoder(pack(rows), output_hidden_states=True).hidden_states
    wide = {name: tensor.double() for name, tensor in weights.items()}
    eager = by_rows([read_jina(weights, heads, row) for row in rows])
    truth = by_rows([read_jina(wide, heads, row) for row in rows])
    assert found is not None
    for place, states in enumerate(zip(found, eager, truth, strict=True)):
        assert_within_budget(*states, f"hidden_states[{place}]", terms=3 * width)
    assert_same_after_saving(tmp_path, tmp_path / "again")


def test_jina_bert_is_not_taken_for_a_bert_nor_code_of_others_for_it(tmp_path: Path) -> None:
    sizes = {"hidden_size": 36, "num_attention_heads": 6, "num_hidden_layers": 1}
    save_file(jina_tensors(36, 1, 74), tmp_path / "model.safetensors", metadata={"format": "pt"})
    whole = JINA | sizes | {"intermediate_size": 74}
    changes: list[dict[str, Any]] = [
        {"feed_forward_type": "reglu"},
        {"position_embedding_type": "absolute"},
        {"auto_map": {"AutoModel": "somebody/else--modeling_bert.JinaBertModel"}},
    ]
    for change in changes:
        rewrite(tmp_path, whole | change)
        with pytest.raises(UnsupportedFeatureError):
            ee.Encoder.from_pretrained(tmp_path, device="cpu")
