"""Modules around pooling are computed as sentence-transformers computes them, or refused."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.embedding import Embedder, StaticEmbedder
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    EncoderEngineError,
    NonFiniteWeightsError,
    UnsupportedFeatureError,
)
from encoder_engine.opening.stack import ACTIVATIONS
from encoder_engine.packing.module_stack import LayerNormModule, ModuleStack
from tests.embedding.test_breadth import TERMS, tensor
from tests.embedding.tiny_model import WIDTH, write_json, write_transformers_directory
from tests.vectors.drawn import assert_vectors_agree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

library = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TEXTS = ["the long query", "", "a row of text", "words " * 9]
ENGINES: tuple[Any, ...] = ("compiled", "torch")


def draw(modules: list[Any]) -> list[Any]:
    """Fill the weights of modules from a seed; those of layers are above 0, as their sum is."""
    torch.manual_seed(5)
    for module in modules:
        for name, parameter in module.named_parameters():
            with torch.no_grad():
                parameter.normal_(mean=1.0 if name == "layer_weights" else 0.1, std=0.4)
    return modules


def dense(rows: int, columns: int, **options: Any) -> Any:
    from sentence_transformers.base.modules import Dense

    return Dense(columns, rows, **options)


def stacks() -> dict[str, Callable[[], list[Any]]]:
    """Return the modules after pooling of each published layout."""
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm

    identity = {"activation_function": torch.nn.Identity()}
    return {
        "LaBSE": lambda: [dense(WIDTH, WIDTH), Normalize()],
        "distiluse": lambda: [dense(7, WIDTH)],
        "sentence-t5": lambda: [dense(7, WIDTH, bias=False, **identity), Normalize()],
        "embeddinggemma": lambda: [
            dense(40, WIDTH, bias=False, **identity),
            dense(WIDTH, 40, bias=False, **identity),
            Normalize(),
        ],
        "norms within": lambda: [Normalize(), dense(5, WIDTH), LayerNorm(5), Dropout(0.5)],
        "residual": lambda: [dense(WIDTH, WIDTH, use_residual=True), Dropout(0.1), Normalize()],
        "projected residual": lambda: [dense(7, WIDTH, use_residual=True, bias=False)],
    }


def save(folder: Path, after: list[Any], before: list[Any] | None = None) -> Any:
    """Save a model of sentence-transformers around the tiny model, and return it."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    plain = write_transformers_directory(folder / "plain")
    if before:
        config = json.loads((plain / "config.json").read_text("utf-8"))
        write_json(plain / "config.json", config | {"output_hidden_states": True})
        (plain / "SHA256SUMS").unlink()
    first = Transformer(str(plain), max_seq_length=20)
    modules = [first, *(before or []), Pooling(WIDTH, "mean"), *after]
    model = library.SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder / "saved"), create_model_card=False)
    return model


def assert_agrees(embedder: Embedder, model: Any, **options: Any) -> None:
    ours = embedder.encode(TEXTS, on_truncation="ignore", **options)
    eager, truth = (m.encode(TEXTS, **options) for m in (model, copy.deepcopy(model).double()))
    assert_vectors_agree(ours, eager, truth, terms=TERMS)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", list(stacks()))
def test_vectors_are_those_of_sentence_transformers(name: str, engine: Any, tmp_path: Path) -> None:
    model = save(tmp_path, draw(stacks()[name]()))
    embedder = Embedder.from_pretrained(tmp_path / "saved", device="cpu", engine=engine)
    assert embedder.engine.name == engine
    assert_agrees(embedder, model)
    assert_agrees(embedder, model, truncate_dim=3, normalize_embeddings=True)
    assert_agrees(embedder, model, normalize_embeddings=True)
    assert embedder.dimension == model.get_sentence_embedding_dimension()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", list(stacks()))
def test_modules_are_saved_with_an_embedder(name: str, engine: Any, tmp_path: Path) -> None:
    save(tmp_path, draw(stacks()[name]()))
    embedder = Embedder.from_pretrained(tmp_path / "saved", device="cpu", engine=engine)
    embedder.save_pretrained(tmp_path / "again")
    again = Embedder.from_pretrained(tmp_path / "again", device="cpu", engine=engine)
    assert again.engine.fingerprint() == embedder.engine.fingerprint()
    expected = embedder.encode(TEXTS, on_truncation="ignore")
    assert (again.encode(TEXTS, on_truncation="ignore") == expected).all()
    assert_agrees(again, library.SentenceTransformer(str(tmp_path / "again"), device="cpu"))


@pytest.mark.parametrize("name", ["LaBSE", "distiluse"])
def test_a_table_is_distilled_from_the_encoder_alone(name: str, tmp_path: Path) -> None:
    save(tmp_path, draw(stacks()[name]()))
    tables = [
        StaticEmbedder.distill(tmp_path / folder, dimension=4, device="cpu").model.table.rows_VD
        for folder in ("saved", "plain")
    ]
    assert (tables[0] == tables[1]).all()


def test_a_module_that_the_layout_cannot_state_is_not_saved(tmp_path: Path) -> None:
    model = save(tmp_path, draw(stacks()["norms within"]()))
    assert model is not None
    embedder = Embedder.from_pretrained(tmp_path / "saved", device="cpu")
    *others, norm = embedder.recipe.modules.modules
    assert isinstance(norm, LayerNormModule)
    changed = ModuleStack((*others, replace(norm, epsilon=1e-12)))
    embedder.recipe = replace(embedder.recipe, modules=changed)
    with pytest.raises(UnsupportedFeatureError, match=r"this one has 1e-12"):
        embedder.save_pretrained(tmp_path / "again")


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_are_mixed_where_the_encoder_passes_them_on(engine: Any, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import WeightedLayerPooling

    mix = draw([WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1)])
    model = save(tmp_path, [], mix)
    folder = tmp_path / "saved"
    embedder = Embedder.from_pretrained(folder, device="cpu", engine=engine)
    assert embedder.recipe.layers is not None
    assert [layer for layer, _ in embedder.recipe.layers] == [1, 2]
    assert_agrees(embedder, model)
    # Without the hidden states, the module does nothing in sentence-transformers.
    config = json.loads((folder / "config.json").read_text("utf-8"))
    write_json(folder / "config.json", config | {"output_hidden_states": False})
    plain = Embedder.from_pretrained(folder, device="cpu", engine=engine)
    assert plain.recipe.layers is None
    assert_agrees(plain, library.SentenceTransformer(str(folder), device="cpu"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", [p for p in ACTIVATIONS if ".modules." in p])
def test_every_activation_is_that_of_pytorch(path: str, engine: Any, tmp_path: Path) -> None:
    from sentence_transformers.util import import_from_string

    layers = draw([dense(7, WIDTH, activation_function=import_from_string(path)())])
    model = save(tmp_path, layers)
    config = json.loads((tmp_path / "saved" / "2_Dense" / "config.json").read_text("utf-8"))
    assert config["activation_function"] == path
    assert_agrees(Embedder.from_pretrained(tmp_path / "saved", device="cpu", engine=engine), model)


def test_a_vector_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    save(tmp_path, draw(stacks()["residual"]()))
    embedder = Embedder.from_pretrained(tmp_path / "saved", device="cpu")
    together = embedder.encode(TEXTS, on_truncation="ignore")
    alone = [embedder.encode(text, on_truncation="ignore") for text in TEXTS]
    for one, other in zip(together, alone, strict=True):
        assert one.tobytes() == other.tobytes()


def test_the_modules_count_in_the_fingerprint_and_are_loaded_again(tmp_path: Path) -> None:
    save(tmp_path, draw(stacks()["LaBSE"]()))
    folder = tmp_path / "saved"
    by_engine = {
        engine: Embedder.from_pretrained(folder, device="cpu", engine=engine) for engine in ENGINES
    }
    first = by_engine["compiled"]
    assert first.loading is not None
    again = Embedder.load_again(first.loading, "cpu")
    prints = {parts.engine.fingerprint() for parts in (*by_engine.values(), again)}
    assert len(prints) == 1
    model = library.SentenceTransformer(str(folder), device="cpu")
    with torch.no_grad():
        model[2].linear.weight[0, 0] += 1.0
    model.save(str(folder), create_model_card=False)
    changed = Embedder.from_pretrained(folder, device="cpu").engine.fingerprint()
    assert changed not in prints


def test_a_compiled_directory_has_the_modules(tmp_path: Path) -> None:
    from encoder_engine.opening.compiling import compile_directory

    save(tmp_path, draw(stacks()["LaBSE"]()))
    compile_directory(tmp_path / "saved", tmp_path / "compiled")
    before, after = (
        Embedder.from_pretrained(tmp_path / name, device="cpu").encode("a row")
        for name in ("saved", "compiled")
    )
    assert before.tobytes() == after.tobytes()


def change(**values: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "2_Dense" / "config.json"
        stated = json.loads(path.read_text("utf-8")) | values
        write_json(path, {key: value for key, value in stated.items() if value != "absent"})

    return apply


def spoil(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "2_Dense" / "model.safetensors"
    tensors = load_file(path)
    tensors["linear.weight"][0, 0] = float("nan")
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (change(activation_function="os.system"), UnsupportedFeatureError, "os.system"),
        (change(activation_function="torch.load"), UnsupportedFeatureError, "not implemented"),
        (change(module_input_name="token_embeddings"), UnsupportedFeatureError, "sentence_embed"),
        (change(out_features=8), CheckpointFileError, "do not fit"),
        (change(use_residual=True), CheckpointFileError, "residual.weight"),
        (change(in_features="absent"), ConfigError, "in_features"),
        (change(scale=2), UnsupportedFeatureError, "scale"),
        (spoil, NonFiniteWeightsError, "linear.weight"),
    ],
)
def test_a_layer_that_is_not_followed_is_refused(
    damage: Callable[[Path], None], error: type[EncoderEngineError], words: str, tmp_path: Path
) -> None:
    save(tmp_path, draw(stacks()["distiluse"]()))
    damage(tmp_path / "saved")
    with pytest.raises(error, match=words):
        Embedder.from_pretrained(tmp_path / "saved", device="cpu")


def test_a_layer_without_a_stated_activation_has_tanh(tmp_path: Path) -> None:
    save(tmp_path, draw(stacks()["distiluse"]()))
    change(activation_function="absent")(tmp_path / "saved")
    model = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert_agrees(Embedder.from_pretrained(tmp_path / "saved", device="cpu"), model)


def test_a_stack_of_another_width_is_refused(tmp_path: Path) -> None:
    save(tmp_path, draw([dense(7, WIDTH), dense(3, 7)]))
    folder = tmp_path / "saved"
    config = json.loads((folder / "modules.json").read_text("utf-8"))
    write_json(folder / "modules.json", config[:2] + config[3:])
    with pytest.raises(ConfigError, match="takes 7 features and gets 16"):
        Embedder.from_pretrained(folder, device="cpu")
    with pytest.raises(ConfigError, match="takes 7 features and gets 32"):
        Embedder.from_pretrained(tmp_path / "saved", device="cpu", pooling=["mean", "cls"])


def test_a_default_dense_of_tokens_is_no_part_of_an_embedder(tmp_path: Path) -> None:
    layer = draw([dense(7, WIDTH, module_input_name="token_embeddings")])
    save(tmp_path, layer)
    with pytest.raises(UnsupportedFeatureError, match="token_embeddings"):
        Embedder.from_pretrained(tmp_path / "saved", device="cpu")


def test_weights_of_layers_that_add_up_to_nothing_are_refused(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import WeightedLayerPooling

    weights = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
    mix = WeightedLayerPooling(WIDTH, 2, layer_start=1, layer_weights=weights)
    save(tmp_path, [], [mix])
    with pytest.raises(ConfigError, match="add up to 0"):
        Embedder.from_pretrained(tmp_path / "saved", device="cpu")


def test_more_layers_than_the_encoder_has_are_refused(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import WeightedLayerPooling

    save(tmp_path, [], [WeightedLayerPooling(WIDTH, 2, layer_start=1)])
    path = tmp_path / "saved" / "1_WeightedLayerPooling"
    write_json(
        path / "config.json",
        {"embedding_dimension": WIDTH, "layer_start": 2, "num_hidden_layers": 3},
    )
    with pytest.raises(ConfigError, match="has 2 layers"):
        Embedder.from_pretrained(tmp_path / "saved", device="cpu")


def test_an_embedding_of_the_modules_is_finite_in_half_precision(tmp_path: Path) -> None:
    model = save(tmp_path, draw(stacks()["embeddinggemma"]()))
    half = copy.deepcopy(model).bfloat16()
    truth = copy.deepcopy(model).double().encode(TEXTS)
    for engine in ENGINES:
        embedder = Embedder.from_pretrained(
            tmp_path / "saved", device="cpu", dtype="bfloat16", engine=engine
        )
        ours = tensor(embedder.encode(TEXTS, on_truncation="ignore"))
        eager = half.encode(TEXTS, convert_to_tensor=True).float()
        allowed = 2 * float((eager.double() - torch.as_tensor(truth)).abs().max())
        allowed += float(torch.finfo(torch.bfloat16).eps)
        assert float((ours.double() - torch.as_tensor(truth)).abs().max()) <= allowed
