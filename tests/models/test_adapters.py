"""Low-rank adapters are merged at loading to what peft computes, or refused by a typed error."""

from __future__ import annotations

import copy
import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import encoder_engine as ee
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    EncoderEngineError,
    OutputError,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.inference.saving import save_checkpoint
from encoder_engine.models import SequenceClassification
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.models.all_cases import MORE_CASES
from tests.models.cases import CASES
from tests.models.test_families import LENGTHS, token_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
BERT = next(case for case in CASES if case.model_type == "bert")
TARGETS = ["query", "value", "dense"]


def adapt(model: Any, **options: Any) -> Any:
    """Wrap a model with an adapter whose weights are drawn, B's too."""
    adapted = peft.get_peft_model(model, peft.LoraConfig(**({"r": 3} | options)))
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return adapted.eval()


def save(folder: Path, case: Any = BERT, **options: Any) -> Any:
    """Save a base model, and beside it an adapter that names it; return the adapted model."""
    import transformers

    case.save(folder / "base")
    adapted = adapt(transformers.AutoModel.from_pretrained(folder / "base"), **options)
    adapted.save_pretrained(folder / "adapter")
    return adapted


def rows_of(model: Any, rows: list[list[int]]) -> Any:
    with torch.no_grad():
        found = [model(input_ids=torch.tensor([row])).last_hidden_state[0] for row in rows]
    return torch.cat(found)


def assert_as_peft(folder: Path, adapted: Any, **options: Any) -> None:
    rows = token_rows(LENGTHS)
    eager, truth = (rows_of(m, rows) for m in (adapted, copy.deepcopy(adapted).double()))
    encoder = ee.Encoder.from_pretrained(folder, device="cpu", **options)
    with torch.no_grad():
        found = encoder(pack(rows)).last_hidden_state
    assert_within_budget(found, eager, truth, terms=3 * truth.shape[1])
    compiled = ee.CompiledEncoder.from_pretrained(folder, **options)
    batch = pack(rows)
    ids, starts = batch.input_ids.numpy(), batch.cu_seqlens.numpy()
    values = torch.from_numpy(compiled.hidden(ids, starts)), eager, truth
    assert_within_budget(*values, terms=3 * truth.shape[1])
    assert (
        compiled.fingerprint()
        == ee.CompiledEncoder.from_parameters(
            encoder.spec, {name: t.detach().numpy() for name, t in encoder.state_dict().items()}
        ).fingerprint()
    )


KINDS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["query", "value"]},
    "all dense layers": {"target_modules": TARGETS, "lora_alpha": 7},
    "rank-stabilised": {"target_modules": TARGETS, "use_rslora": True, "r": 4},
    "ranks and alphas by module": {
        "target_modules": TARGETS,
        "rank_pattern": {"query": 5, "layer.1.output.dense": 2},
        "alpha_pattern": {r"layer\.0.*query": 11, "value": 1},
    },
    "embeddings": {"target_modules": ["word_embeddings", "query"]},
    "biases": {"target_modules": ["query"], "bias": "all"},
    "biases of the adapted": {"target_modules": ["query"], "bias": "lora_only"},
    "biases of B": {"target_modules": ["query"], "lora_bias": True},
    "trained tokens": {"target_modules": ["query"], "trainable_token_indices": [3, 1]},
    "trained tokens of a table": {
        "target_modules": ["query"],
        "trainable_token_indices": {"word_embeddings": [2, 4]},
    },
    "a module saved whole": {"target_modules": ["query"], "modules_to_save": ["value"]},
}


# peft takes the bias of B for a part of a tensor, and warns.
@pytest.mark.filterwarnings("ignore:Adapter 'default'")
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_is_merged_into_the_model_that_it_names(kind: str, tmp_path: Path) -> None:
    adapted = save(tmp_path, **KINDS[kind])
    assert_as_peft(tmp_path / "adapter", adapted)


@pytest.mark.filterwarnings("ignore:Adapter 'default'", "ignore:fan_in_fan_out")
def test_weights_with_a_row_for_each_input_are_merged_transposed(tmp_path: Path) -> None:
    gpt2 = next(case for case in MORE_CASES if case.model_type == "gpt2")
    adapted = save(tmp_path, gpt2, target_modules=["c_attn", "c_proj", "c_fc"], lora_alpha=5)
    stated = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text("utf-8"))
    assert stated["fan_in_fan_out"] is True
    assert_as_peft(tmp_path / "adapter", adapted)


def test_an_adapter_beside_the_weights_is_merged_into_these(tmp_path: Path) -> None:
    adapted = save(tmp_path, target_modules=TARGETS)
    for path in (tmp_path / "adapter").iterdir():
        shutil.copy(path, tmp_path / "base" / path.name)
    config = json.loads((tmp_path / "base" / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "nobody/nothing"
    (tmp_path / "base" / "adapter_config.json").write_text(json.dumps(config))
    assert_as_peft(tmp_path / "base", adapted)


def test_an_adapter_of_a_classifier_is_merged_with_its_head(tmp_path: Path) -> None:
    import transformers

    base = BERT.build()
    torch.manual_seed(4)
    kind = transformers.BertForSequenceClassification
    kind(base.config).save_pretrained(tmp_path / "base")
    model = kind.from_pretrained(tmp_path / "base")
    adapted = adapt(model, target_modules=["query", "value"], task_type="SEQ_CLS")
    adapted.save_pretrained(tmp_path / "adapter")
    rows = token_rows(LENGTHS)

    def logits(theirs: Any) -> Any:
        with torch.no_grad():
            return torch.cat([theirs(input_ids=torch.tensor([row])).logits for row in rows])

    ours = SequenceClassification.from_pretrained(tmp_path / "adapter", device="cpu")
    with torch.no_grad():
        found = ours(pack(rows))
    eager, truth = logits(adapted), logits(copy.deepcopy(adapted).double())
    assert_within_budget(found, eager, truth, terms=3 * base.config.hidden_size)


def test_a_quantized_encoder_of_an_adapter_is_that_of_the_merged_model(tmp_path: Path) -> None:
    adapted = save(tmp_path, target_modules=TARGETS)
    merged = adapted.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    prints = {
        ee.CompiledEncoder.from_pretrained(tmp_path / name, dtype="bfloat16").fingerprint()
        for name in ("adapter", "merged")
    }
    batch = pack(token_rows(LENGTHS))
    ids, starts = batch.input_ids.numpy(), batch.cu_seqlens.numpy()
    int8 = ee.CompiledEncoder.from_pretrained(tmp_path / "adapter", quantization="int8")
    assert int8.hidden(ids, starts).shape[0] == len(ids)
    assert len(prints) <= 2


OTHER_KINDS: dict[str, tuple[dict[str, Any], type[EncoderEngineError], str]] = {
    "another type": ({"peft_type": "IA3"}, UnsupportedFeatureError, "IA3"),
    "no type": ({"peft_type": None}, UnsupportedFeatureError, "type None"),
    "DoRA": ({"use_dora": True}, UnsupportedFeatureError, "use_dora"),
    "replicated layers": ({"layer_replication": [[0, 2]]}, UnsupportedFeatureError, "layer_rep"),
    "tokens that it lacks": ({"trainable_token_indices": [1]}, TensorNamesError, "no trained tok"),
    "PiSSA": ({"init_lora_weights": "pissa"}, UnsupportedFeatureError, "pissa"),
    "a key of tomorrow": ({"use_moonlight": 3}, UnsupportedFeatureError, "use_moonlight"),
    "a pattern that is none": ({"alpha_pattern": {"(": 3}}, ConfigError, "regular expression"),
    "no base": ({"base_model_name_or_path": None}, ConfigError, "base_model_name_or_path"),
    "a base that is nowhere": (
        {"base_model_name_or_path": "/nowhere/at all"},
        CheckpointFileError,
        "nowhere",
    ),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_an_adapter_that_cannot_be_merged_is_refused(kind: str, tmp_path: Path) -> None:
    values, error, words = OTHER_KINDS[kind]
    save(tmp_path, target_modules=["query"])
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    for load in (ee.Encoder.from_pretrained, ee.CompiledEncoder.from_pretrained):
        with pytest.raises(error, match=words):
            load(tmp_path / "adapter")


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, path)


def test_tensors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save(tmp_path, target_modules=["query"])
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    whole = load_file(path)
    name = next(name for name in whole if name.endswith("lora_A.weight"))

    def load(change: Callable[[dict[str, Any]], None]) -> None:
        save_file(whole, path)
        edit(path, change)
        ee.Encoder.from_pretrained(tmp_path / "adapter", device="cpu")

    with pytest.raises(TensorNamesError, match="belong together"):
        load(lambda tensors: tensors.pop(name))
    with pytest.raises(TensorShapeError, match="the weight"):
        load(lambda tensors: tensors.update({name: tensors[name][:, :-1]}))
    with pytest.raises(TensorNamesError, match="another model"):
        load(
            lambda tensors: tensors.update(
                {key.replace("layer.0", "layer.7"): value for key, value in list(tensors.items())}
            )
        )
    with pytest.raises(UnsupportedFeatureError, match="plain LoRA"):
        load(lambda tensors: tensors.update({"base_model.model.x.lora_C": torch.ones(2)}))
    path.unlink()
    with pytest.raises(CheckpointFileError, match=r"adapter_model\.safetensors"):
        ee.Encoder.from_pretrained(tmp_path / "adapter", device="cpu")


def test_trained_tokens_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save(tmp_path, target_modules=["query"], trainable_token_indices=[3, 1])
    path = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text("utf-8"))
    for indices, error, words in (
        ([3], TensorShapeError, "trained tokens of .* expected"),
        ([3, 10**6], ConfigError, "at most"),
        ({"other": [3, 1], "more": [3, 1]}, TensorNamesError, "names other, more"),
        ({}, TensorNamesError, "names no table"),
    ):
        path.write_text(json.dumps(config | {"trainable_token_indices": indices}), "utf-8")
        with pytest.raises(error, match=words):
            ee.Encoder.from_pretrained(tmp_path / "adapter", device="cpu")


def test_the_base_is_of_the_revision_that_the_adapter_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    adapted = save(tmp_path, target_modules=["query"])
    path = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text("utf-8"))
    # A directory has no revision.
    path.write_text(json.dumps(config | {"revision": "abc"}), "utf-8")
    assert_as_peft(tmp_path / "adapter", adapted)
    asked: list[Any] = []

    def fetch(name: str, **options: Any) -> str:
        asked.append((name, options.get("revision")))
        return str(tmp_path / "base")

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    stated = {"base_model_name_or_path": "someone/base", "revision": "abc"}
    path.write_text(json.dumps(config | stated), "utf-8")
    ee.Encoder.from_pretrained(tmp_path / "adapter", device="cpu")
    assert set(asked) == {("someone/base", "abc")}


def test_nothing_is_saved_beside_files_that_would_change_it(tmp_path: Path) -> None:
    save(tmp_path, target_modules=["query"])
    encoder = ee.Encoder.from_pretrained(tmp_path / "adapter", device="cpu")
    with pytest.raises(OutputError, match=r"adapter_config\.json, which changes the weights"):
        encoder.save_pretrained(tmp_path / "adapter")
    compiled = ee.CompiledEncoder.from_pretrained(tmp_path / "base")
    compiled.save_compiled(tmp_path / "base")
    for save_to in (encoder.save_pretrained, partial(save_checkpoint, compiled)):
        with pytest.raises(OutputError, match=r"compiled\.safetensors, which is loaded instead"):
            save_to(tmp_path / "base")


def test_a_compiled_directory_holds_the_merged_weights(tmp_path: Path) -> None:
    from encoder_engine.embedding import Embedder
    from encoder_engine.opening.compiling import compile_directory
    from tests.embedding.tiny_model import write_sentence_directory

    folder = write_sentence_directory(tmp_path / "sentences")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "base").mkdir(exist_ok=True)
        shutil.move(folder / name, tmp_path / "base" / name)
    (folder / "SHA256SUMS").unlink()
    import transformers

    model = transformers.AutoModel.from_pretrained(tmp_path / "base")
    adapt(model, target_modules=["query"]).save_pretrained(folder)
    before = Embedder.from_pretrained(folder, device="cpu").encode("the text")
    compile_directory(folder, tmp_path / "compiled")
    shutil.rmtree(tmp_path / "base")
    after = Embedder.from_pretrained(tmp_path / "compiled", device="cpu").encode("the text")
    assert before.tobytes() == after.tobytes()
