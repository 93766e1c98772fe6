"""XLM-R as Jina publishes it: one projection, rotary positions, and an adapter for each task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

import encoder_engine as ee
from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.opening.compiling import compile_directory
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.embedding.test_families import save_tokenizer
from tests.embedding.tiny_model import write_json
from tests.models.cases import VOCAB_SIZE, Case
from tests.models.exact import exact, in_float64
from tests.models.published.test_published_layouts import by_rows, first
from tests.models.test_families import LENGTHS, by_transformers, token_rows

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
CODE = "jinaai/xlm-roberta-flash-implementation--"
TASKS = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
WIDTH, HEADS, LAYERS, INNER, RANK, BASE = 36, 3, 2, 80, 4, 20_000.0
CONFIG: dict[str, Any] = {
    "model_type": "xlm-roberta",
    "architectures": ["XLMRobertaModel"],
    "auto_map": {
        "AutoConfig": f"{CODE}configuration_xlm_roberta.XLMRobertaFlashConfig",
        "AutoModel": f"{CODE}modeling_lora.XLMRobertaLoRA",
    },
    "position_embedding_type": "rotary",
    "rotary_emb_base": BASE,
    "vocab_size": VOCAB_SIZE,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": INNER,
    "max_position_embeddings": 98,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    "hidden_act": "gelu",
    "use_flash_attn": True,
    "lora_adaptations": TASKS,
    "lora_alpha": 3,
    "lora_rank": RANK,
    "lora_dropout_p": 0.0,
    "lora_main_params_trainable": False,
    "load_trained_adapters": True,
    "task_instructions": dict.fromkeys(TASKS, ""),
    "matryoshka_dimensions": [32, 64],
    "truncate_dim": None,
    "emb_pooler": "mean",
    "use_reentrant": False,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the weights that have adapters; the first two are embeddings."""
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings": (VOCAB_SIZE, WIDTH),
        "embeddings.token_type_embeddings": (1, WIDTH),
        "pooler.dense": (WIDTH, WIDTH),
    }
    for layer in (f"encoder.layers.{place}" for place in range(LAYERS)):
        found |= {
            f"{layer}.mixer.Wqkv": (3 * WIDTH, WIDTH),
            f"{layer}.mixer.out_proj": (WIDTH, WIDTH),
            f"{layer}.mlp.fc1": (INNER, WIDTH),
            f"{layer}.mlp.fc2": (WIDTH, INNER),
        }
    return found


def draw() -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """Draw a checkpoint's tensors, and the plain weights of each task; "" is that of none."""
    generator = torch.Generator().manual_seed(2)

    def drawn(*shape: int) -> Tensor:
        return 0.2 * torch.randn(shape, generator=generator)

    stored: dict[str, Tensor] = {}
    plain: dict[str, dict[str, Tensor]] = {task: {} for task in ["", *TASKS]}
    for name, (rows, columns) in shapes().items():
        weight = drawn(rows, columns)
        stored[f"{name}.parametrizations.weight.original"] = weight
        is_embedding = name.startswith("embeddings.")
        first_shape, second_shape = (RANK, columns), (rows, RANK)
        if is_embedding:
            first_shape, second_shape = second_shape, first_shape
        a, b = drawn(len(TASKS), *first_shape), drawn(len(TASKS), *second_shape)
        stored[f"{name}.parametrizations.weight.0.lora_A"] = a
        stored[f"{name}.parametrizations.weight.0.lora_B"] = b
        plain[""][f"{name}.weight"] = weight
        for place, task in enumerate(TASKS):
            product = a[place] @ b[place] if is_embedding else b[place] @ a[place]
            plain[task][f"{name}.weight"] = weight + product * (3 / RANK)
        if not is_embedding:
            stored[f"{name}.bias"] = drawn(rows)
    norms = ["emb_ln", *(f"encoder.layers.{n}.norm{i}" for n in range(LAYERS) for i in (1, 2))]
    for norm in norms:
        stored |= {f"{norm}.weight": 1 + drawn(WIDTH), f"{norm}.bias": drawn(WIDTH)}
    rest = {name: x for name, x in stored.items() if ".parametrizations." not in name}
    return {f"roberta.{n}": x for n, x in stored.items()}, {t: p | rest for t, p in plain.items()}


def read(weights: dict[str, Tensor], ids: list[int]) -> list[Tensor]:
    """Compute every hidden state of one text, from the layout of the published code."""

    def dense(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)

    size = WIDTH // HEADS
    turns = torch.arange(len(ids), dtype=torch.float64)[:, None] * BASE ** -(
        torch.arange(0, size, 2, dtype=torch.float64) / size
    )
    cos, sin = (
        f(turns).repeat(1, 2).to(weights["emb_ln.bias"].dtype) for f in (torch.cos, torch.sin)
    )

    def turned(x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], dim=-1) * sin

    words = weights["embeddings.word_embeddings.weight"][ids]
    x = norm(words + weights["embeddings.token_type_embeddings.weight"][0], "emb_ln")
    hidden = [x]
    for base in (f"encoder.layers.{place}" for place in range(LAYERS)):
        parts = dense(x, f"{base}.mixer.Wqkv").view(len(ids), 3, HEADS, size)
        query, key, value = (part.transpose(0, 1) for part in parts.unbind(1))
        scores = turned(query) @ turned(key).mT / size**0.5
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(len(ids), -1)
        x = norm(x + dense(mixed, f"{base}.mixer.out_proj"), f"{base}.norm1")
        raised = F.gelu(dense(x, f"{base}.mlp.fc1"))
        x = norm(x + dense(raised, f"{base}.mlp.fc2"), f"{base}.norm2")
        hidden.append(x)
    return hidden


def write(folder: Path) -> dict[str, dict[str, Tensor]]:
    stored, plain = draw()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", CONFIG)
    return plain


@pytest.mark.parametrize("task", ["", *TASKS])
def test_every_adapter_is_merged_as_its_authors_apply_it(task: str, tmp_path: Path) -> None:
    weights = write(tmp_path)[task]
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu", adapter=task or None)
    assert encoder.spec.model_type == "xlm_roberta_rotary"
    rows = token_rows(LENGTHS)
    batch = pack(rows)
    with torch.no_grad():
        found = encoder(batch, output_hidden_states=True).hidden_states
    eager = by_rows([read(weights, row) for row in rows])
    wide = {name: tensor.double() for name, tensor in weights.items()}
    truth = by_rows([read(wide, row) for row in rows])
    assert found is not None
    for place, states in enumerate(zip(found, eager, truth, strict=True)):
        assert_within_budget(*states, f"hidden_states[{place}]", terms=3 * WIDTH)
    compiled = ee.CompiledEncoder.from_pretrained(tmp_path, adapter=task or None)
    last = torch.from_numpy(compiled.hidden(batch.input_ids.numpy(), batch.cu_seqlens.numpy()))
    assert_within_budget(last, eager[-1], truth[-1], terms=3 * WIDTH)


def embedder_directory(folder: Path) -> Path:
    """Write a directory as jina-embeddings-v3's, whose first module is code of its own."""
    write(folder)
    save_tokenizer("xlm-roberta", folder)
    kinds = {"": "custom_st.Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {
            "idx": place,
            "name": str(place),
            "path": path,
            "type": kind if "." in kind else f"sentence_transformers.models.{kind}",
        }
        for place, (path, kind) in enumerate(kinds.items())
    ]
    listed[0]["kwargs"] = ["task"]
    write_json(folder / "modules.json", listed)
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    prompts = {"retrieval.query": "a: ", "text-matching": ""}
    write_json(folder / "config_sentence_transformers.json", {"prompts": prompts})
    return folder


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_an_embedder_takes_a_task(engine: Any, tmp_path: Path) -> None:
    folder = embedder_directory(tmp_path / "model")
    by_task = {
        task: Embedder.from_pretrained(folder, device="cpu", engine=engine, task=task)
        for task in (None, "retrieval.query", "text-matching")
    }
    prints = {embedder.engine.fingerprint() for embedder in by_task.values()}
    assert len(prints) == 3
    queries = by_task["retrieval.query"]
    assert queries.recipe.default_prompt_name == "retrieval.query"
    assert queries.encode("b").tobytes() == queries.encode("a: b", prompt="").tobytes()
    assert by_task[None].recipe.default_prompt_name is None
    assert queries.loading is not None
    again = Embedder.load_again(queries.loading, "cpu")
    assert again.engine.fingerprint() == queries.engine.fingerprint()


def test_a_compiled_directory_has_the_adapter_of_its_task(tmp_path: Path) -> None:
    folder = embedder_directory(tmp_path / "model")
    compile_directory(folder, tmp_path / "compiled", task="separation")
    before = Embedder.from_pretrained(folder, device="cpu", task="separation").encode("b a")
    after = Embedder.from_pretrained(tmp_path / "compiled", device="cpu").encode("b a")
    assert before.tobytes() == after.tobytes()
    with pytest.raises(ConfigError, match="chosen then"):
        Embedder.from_pretrained(tmp_path / "compiled", device="cpu", task="classification")


def test_a_task_that_is_none_names_those_there_are(tmp_path: Path) -> None:
    write(tmp_path / "whole")
    with pytest.raises(ConfigError, match="separation, classification"):
        ee.Encoder.from_pretrained(tmp_path / "whole", device="cpu", adapter="clustering")
    first("bert").save(tmp_path / "bert")
    with pytest.raises(ConfigError, match="no adapters by name"):
        ee.Encoder.from_pretrained(tmp_path / "bert", device="cpu", adapter="separation")


def test_code_of_a_directory_is_followed_with_adapters_alone(tmp_path: Path) -> None:
    folder = embedder_directory(tmp_path)
    config = {key: value for key, value in CONFIG.items() if key != "lora_adaptations"}
    write_json(folder / "config.json", config)
    with pytest.raises(UnsupportedFeatureError, match="never runs"):
        Embedder.from_pretrained(folder, device="cpu")


def flash(folder: Path, prefix: str) -> None:
    """Rewrite a checkpoint of transformers' XLM-R as Jina's code names and stacks its tensors."""
    theirs = {
        "attention.output.dense": "mixer.out_proj",
        "attention.output.LayerNorm": "norm1",
        "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
        "output.LayerNorm": "norm2",
    }
    tensors = load_file(folder / "model.safetensors")
    found = {}
    for name, tensor in tensors.items():
        if ".attention.self." in name:
            if ".query." in name:
                parts = [tensors[name.replace("query", p)] for p in ("query", "key", "value")]
                changed = name.replace("attention.self.query", "mixer.Wqkv")
                found[changed.replace("encoder.layer.", "encoder.layers.")] = torch.cat(parts)
            continue
        changed = name.replace("embeddings.LayerNorm", "emb_ln")
        for old, new in theirs.items():
            if f".{old}." in changed and "encoder.layer." in changed:
                changed = changed.replace(old, new)
                break
        found[prefix + changed.replace("encoder.layer.", "encoder.layers.")] = tensor
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    own = {"AutoModel": "modeling_xlm_roberta.XLMRobertaModel"}
    write_json(
        folder / "config.json",
        config | {"auto_map": own, "position_embedding_type": "absolute", "use_flash_attn": True},
    )


def test_learned_positions_are_those_of_xlm_roberta(tmp_path: Path) -> None:
    case: Case = first("xlm-roberta")
    model = case.save(tmp_path)
    flash(tmp_path, "")
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    assert encoder.spec.model_type == "xlm_roberta_flash"
    rows = token_rows(LENGTHS)
    eager = by_transformers(model, rows, padded=True)["last_hidden_state"]
    with in_float64():
        truth = by_transformers(exact(model), rows, padded=True)["last_hidden_state"]
    with torch.no_grad():
        found = encoder(pack(rows)).last_hidden_state
    assert_within_budget(found, torch.cat(eager), torch.cat(truth), terms=3 * found.shape[1])


def test_a_reranker_of_that_layout_scores_as_xlm_roberta(tmp_path: Path) -> None:
    import transformers

    case: Case = first("xlm-roberta")
    tokenizer = save_tokenizer("xlm-roberta", tmp_path)
    torch.manual_seed(1)
    sizes = case.sizes | {"num_labels": 1, "pad_token_id": tokenizer.pad_token_id}
    model = transformers.XLMRobertaForSequenceClassification(transformers.XLMRobertaConfig(**sizes))
    model.train(False).save_pretrained(tmp_path)
    flash(tmp_path, "")
    pairs = [("a b", "b"), ("b", "a a b"), ("a", "b b")]
    found = Ranker.from_pretrained(tmp_path, device="cpu", activation="identity").score(pairs)

    def logits(theirs: Any) -> Tensor:
        with torch.no_grad():
            return torch.cat(
                [theirs(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in pairs]
            )

    eager = logits(model)
    with in_float64():
        truth = logits(exact(model))
    assert_within_budget(torch.from_numpy(found), eager, truth, terms=3 * case.sizes["hidden_size"])
