"""Everything but modules, GPUs and training runs where importing PyTorch raises."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from encoder_engine.models import MaskedLM, SequenceClassification
from tests import ROOT
from tests.embedding.tiny_model import write_head_directory, write_sentence_directory
from tests.finetuning.task_rows import TASK_CASES, write_task_model
from tests.finetuning.tiny import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
NO_TORCH = """
import faulthandler, sys
faulthandler.dump_traceback_later(300, exit=True)
# Every import of these, and of what is in them, raises ModuleNotFoundError.
sys.modules["torch"] = sys.modules["triton"] = None
"""
IMPORTS = """
import encoder_engine.cli
import encoder_engine.embedding
import encoder_engine.embedding.accuracy
import encoder_engine.errors
import encoder_engine.packing.pooling_modes
import encoder_engine.packing.token_rows
from encoder_engine import EmbedBatch, Embedder, StoredVectors, Tokenizer, load_vectors
"""
EMBEDDING = """
import os, signal, warnings
import numpy as np
from encoder_engine.embedding import *
from encoder_engine.errors import ConfigError, MissingDependencyError
sentences, masked, ranking, out = sys.argv[1:]
texts = ["the text", "a row of words", "long " * 40]
embedder = Embedder.from_pretrained(sentences)
assert embedder.engine.name == "compiled", embedder
assert embedder.encode(texts, on_truncation="ignore").shape == (3, 16)
for options in ({"precision": "ubinary"}, {"truncate_dim": 5}, {"prompt_name": "query"}):
    embedder.encode(texts, on_truncation="ignore", **options)
for quantization in (None, "int8"):
    loaded = Embedder.from_pretrained(sentences, "cpu", "bfloat16", quantization)
    assert np.isfinite(loaded.encode(texts[:2])).all()
layered = Embedder.from_pretrained(sentences, layers=[-2, -1], pooling=["mean", "max"])
assert layered.encode(texts[:2]).shape == (2, 32)
assert embedder.encode_long(texts).shape == (3, 16)
assert len(embedder.encode_tokens(texts[:2])) == 2
assert EmbedBatch(sentences)({"text": texts[:2]})["embedding"].shape == (2, 16)
assert len(SparseEmbedder.from_pretrained(masked).encode(texts[:2])) == 2
ranker = Ranker.from_pretrained(ranking)
assert len(ranker.rank("the query", texts[:2])) == 2
many = MultiVectorEmbedder(embedder, np.ones((4, 16), np.float32))
assert many.encode_queries(texts[:2])[0].shape[1] == 4
static = StaticEmbedder.distill(sentences, dimension=8)
static.save_pretrained(out + "-static")
again = StaticEmbedder.from_pretrained(out + "-static")
assert np.array_equal(again.encode(texts), static.encode(texts))
embedder.save_pretrained(out + "-saved")
saved = Embedder.from_pretrained(out + "-saved")
assert saved.engine.fingerprint() == embedder.engine.fingerprint()
vectors = embedder.encode_query(texts[:2], batch_size=1)
assert embedder.similarity(vectors, vectors).shape == (2, 2)
assert Ranker.from_pretrained(ranking, quantization="int8").engine.quantization == "int8"
with open(out + ".txt", "w") as file:
    file.write("the text\\na row\\n" * 50)
for workers in (1, 2):
    embedder.encode_dataset(out + ".txt", f"{out}{workers}.npy", workers=workers)
assert np.array_equal(np.load(out + "1.npy"), embedder.encode(["the text", "a row"] * 50))
threaded = Embedder.from_pretrained(sentences, num_threads=2)
expected = threaded.encode(texts * 50, on_truncation="ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's, of a fork beside threads
    child = os.fork()
if child == 0:
    signal.alarm(60)
    found = threaded.encode(texts * 50, on_truncation="ignore")
    os._exit(not np.array_equal(found, expected))
assert os.waitpid(child, 0)[1] == 0
for call in (
    lambda: embedder.encode(texts[:1], output="torch"),
    lambda: Embedder.from_pretrained(sentences, dtype="float64"),
    lambda: Embedder.from_pretrained(sentences, device="cuda"),
    lambda: Embedder.from_pretrained(sentences, engine="torch"),
):
    try:
        call()
    except MissingDependencyError as error:
        assert error.extra == "torch", error
    else:
        raise AssertionError("nothing was raised")
for choice in ({"dtype": "bogus"}, {"device": "bogus"}, {"device": "bogus:1"}):
    try:
        Embedder.from_pretrained(sentences, **choice)
    except ConfigError as error:
        assert {"dtype": "float16", "device": "cuda"}[next(iter(choice))] in str(error), error
    else:
        raise AssertionError("nothing was raised")
assert sys.modules["torch"] is None
"""
NEEDING_TORCH = """
import importlib
import encoder_engine as ee
import encoder_engine.analysis
import encoder_engine.packing.clean
import encoder_engine.packing.pooling_modes
import encoder_engine.packing.token_rows
from encoder_engine.errors import MissingDependencyError
def name_of(module, name):
    return lambda: getattr(module, name)
def module_of(name):
    return lambda: importlib.import_module(f"encoder_engine.{name}")
for call in (
    *(name_of(ee, name) for name in ("Encoder", "PackedBatch", "SelectedRows", "Sequences")),
    *(name_of(ee.packing, name) for name in ee.packing.__all__),
    *(module_of(f"integrations.{name}") for name in ("sentence_transformers", "transformers")),
    *(module_of(name) for name in ("integrations.torch", "models", "ops", "training")),
):
    try:
        call()
    except MissingDependencyError as error:
        assert error.extra == "torch", error
    else:
        raise AssertionError("nothing was raised")
assert not hasattr(ee.packing, "no_such_name")
# Every public name is there, or says what brings it.
needing, names = set(), {ee: [*ee.__all__, "finetune"], ee.analysis: ee.analysis.__all__}
for package, listed in names.items():
    for name in listed:
        try:
            getattr(package, name)
        except MissingDependencyError as error:
            assert error.extra == "torch", error
            needing.add(name)
print(sorted(needing))
"""
# Public names of modules, and of what trains and analyses them; all others do without PyTorch.
OF_MODULES = {
    *("Encoder", "EncoderOutput", "PackedBatch", "SelectedRows", "Sequences", "finetune", "ops"),
    *("HeadSummary", "LayerProbe", "MixProbe", "ProbeData", "Subject", "attention_page"),
    *("cut_heads", "head_importance", "kinds_of", "least_important", "measure_attention"),
    *("measure_heads", "probe_layers", "probe_mixes", "prune_curve", "save_pruned", "zero_heads"),
    "zeroed",
}
PREDICTIONS = """
import json, sys
from pathlib import Path
import numpy as np
import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.errors import MissingDependencyError
from encoder_engine.prediction.predictor import Predictor
folder, out = Path(sys.argv[1]), Path(sys.argv[2])
for model in sorted(folder.iterdir()):
    loaded = Predictor.from_pretrained(model)
    assert loaded.engine.name == "compiled", model
    assert isinstance(loaded.model, object)
    rows = str(model / "rows.jsonl")
    written = out / f"{model.name}.jsonl"
    assert main(["predict", "--model", str(model), rows, "-o", str(written)]) == 0, model
    assert len(written.read_text().splitlines()) == 24
    assert main(["evaluate", "--model", str(model), rows, "--json"]) == 0, model
    assert main(["evaluate", "--model", str(model), rows, "--against", str(model)]) == 0, model
    for call in ({"engine": "torch"}, {"dtype": "float64"}):
        try:
            Predictor.from_pretrained(model, **call)
        except MissingDependencyError as error:
            assert error.extra == "torch"
        else:
            raise AssertionError("nothing was raised")
texts = ["a good film", "the very bad plot"]
assert len(ee.Classifier.from_pretrained(folder / "sequence-classification").predict(texts)) == 2
assert len(ee.Chooser.from_pretrained(folder / "multiple-choice").predict([("a", texts)])) == 1
assert len(ee.Reader.from_pretrained(folder / "question-answering").predict([texts])) == 1
words = [text.split() for text in texts]
assert len(ee.Tagger.from_pretrained(folder / "token-classification").predict(words)) == 2
assert len(ee.SpanTagger.from_pretrained(folder / "span-classification").predict(words)) == 2
assert sys.modules["torch"] is None
"""
MASKS = """
import sys
import encoder_engine as ee
from encoder_engine.cli import main
masked, out = sys.argv[1:]
filler = ee.MaskFiller.from_pretrained(masked)
assert filler.engine.name == "compiled"
assert len(filler.fill(["the [MASK] row"], top_k=3)[0][0]) == 3
assert filler.score(["the text"])[0].tokens == ("the", "text")
with open(out + ".txt", "w") as file:
    file.write("the text\\na row\\n")
with open(out + ".tsv", "w") as file:
    file.write("own\\tenglish\\nthe text\\ta row\\na row\\tthe text\\n")
for more in ([], ["--joint"], ["--target", "text"]):
    assert main(["fill-mask", "--model", masked, "the [MASK] row", *more]) == 0
with open(out + ".jsonl", "w") as file:
    file.write('{"text": "the text"}\\n')
assert main(["score", "--model", masked, out + ".jsonl", "-o", out + "-scores.jsonl"]) == 0
constructions = ["accent", "--model", masked, out + ".tsv", "--english-like-column", "english"]
assert main(constructions) == 0
assert sys.modules["torch"] is None
"""
SERVING = """
import http.client, json, os, signal, socket, sys, threading, time, traceback
from encoder_engine.cli import main
model, path = sys.argv[1:]
found = []
def connect():
    # The socket's file is there before the server listens.
    for _ in range(12_000):
        try:
            taken = socket.socket(socket.AF_UNIX)
            taken.connect(path)
            taken.settimeout(60)
            return taken
        except (FileNotFoundError, ConnectionRefusedError):
            taken.close()
            time.sleep(0.01)
    raise TimeoutError("the server did not listen within two minutes")
def ask():
    try:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = connect()
        headers = {"content-type": "application/json"}
        connection.request("POST", "/embed", json.dumps({"inputs": ["the text", "a row"]}), headers)
        found.extend(json.loads(connection.getresponse().read()))
        connection.close()
    except Exception:
        traceback.print_exc()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=ask, daemon=True).start()
assert main(["serve", "--model", model, "--unix-socket", path, "--access-log", "off"]) == 0
assert [len(vector) for vector in found] == [16, 16], found
assert sys.modules["torch"] is None
"""
LAYOUTS = """
import numpy as np
from encoder_engine.embedding import *
stacked, colbert, sparse, hybrid, adapter, lora = sys.argv[1:]
texts = ["the text", "a row of words"]
for folder, options in ((stacked, {}), (lora, {}), (adapter, {"task": "separation"})):
    embedder = Embedder.from_pretrained(folder, **options)
    assert embedder.engine.name == "compiled"
    assert np.isfinite(embedder.encode(texts)).all()
for folder in colbert.split(","):
    late = MultiVectorEmbedder.from_pretrained(folder)
    scores = max_similarity(late.encode_queries(texts), late.encode_documents(texts))
    assert np.isfinite(scores).all()
found = SparseEmbedder.from_pretrained(sparse)
assert len(found.encode_queries(texts)) == len(found.encode_documents(texts)) == 2
every = HybridEmbedder.from_pretrained(hybrid).encode(texts)
assert every.dense.shape[0] == len(every.sparse) == len(every.tokens) == 2
assert sys.modules["torch"] is None
"""
COMMANDS = """
import importlib.util, json, os
from encoder_engine.cli import main
sentences, out = sys.argv[1:]
with open(out + ".txt", "w") as file:
    file.write("the text\\na row\\nlong words\\n")
with open(out + "-long.txt", "w") as file:
    file.write("The text is long. A row has words. The words are the text.\\n" * 20)
with open(out + ".jsonl", "w") as file:
    file.write('{"query": "the row", "positive": "a row"}\\n')
INDEX = []
if importlib.util.find_spec("faiss") is not None:
    INDEX = [["index", out, "-o", out + ".faiss", "--kind", "flat"]]
for command in (
    ["--help"],
    ["embed", out + ".txt", "-o", out + "/", "-m", sentences, "--quiet", "--threads", "1"],
    ["search", out, "a row", "--top", "2"],
    ["plot", out, "-o", out + ".html"],
    ["tokenize", out + ".txt", "-m", sentences],
    ["doctor", "--json"],
    ["doctor", "--model", sentences],
    ["compile", "-m", sentences, "-o", out + "-compiled"],
    ["embed", out + ".txt", "-o", out + "4/", "-m", out + "-compiled", "--quiet"],
    ["distill", "-m", sentences, "-o", out + "-static", "--dimension", "8"],
    ["quantize", out, "-o", out + "-int8.npy", "--precision", "int8"],
    ["search", out, "a row", "--top", "2", "--quantized", out + "-int8.npy"],
    ["mine-negatives", out, out + ".jsonl", "-o", out + "-mined.jsonl", "--negatives", "1"],
    ["recall", out, out + ".jsonl", "--at", "1"],
    ["noise", out + ".txt", "-o", out + "-noise.jsonl"],
    ["inverse-cloze", out + "-long.txt", "-o", out + "-cloze.jsonl"],
    ["clean", out + ".jsonl", "-o", out + "-clean.jsonl", "--column", "query"],
    ["retrieval", "-m", sentences, out + ".jsonl", "--translations", "query,positive"],
    ["train-tokenizer", out + "-long.txt", "-o", out + "-words", "--vocab-size", "60", "-q"],
    ["prepare", out + "-long.txt", "-o", out + "-corpus", "--tokenizer", sentences],
    *INDEX,
):
    assert main(command) == 0, command
assert main(["doctor", "--model", sentences, "--accuracy"]) == 1
assert main(["pretrain", "tiny", "--corpus", sentences, "--output", out + "3"]) == 1
assert main(["embed", out + ".txt", "-o", out + "2/", "-m", sentences, "--dtype", "float64"]) == 1
assert sys.modules["torch"] is None
"""


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a process where importing PyTorch raises."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", NO_TORCH + script, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return ran


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a sentence-transformers directory."""
    return write_sentence_directory(tmp_path_factory.mktemp("sentences"))


def test_everything_that_embeds_can_be_imported() -> None:
    run(IMPORTS)


def test_what_needs_pytorch_says_what_brings_it() -> None:
    ran = run(NEEDING_TORCH)
    assert set(ast.literal_eval(ran.stdout)) == OF_MODULES


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_every_task_predicts_and_evaluates(tmp_path: Path, every: bool) -> None:
    checkpoint, folder = write_checkpoint(tmp_path / "checkpoint"), tmp_path / "models"
    folder.mkdir()
    # In the usual run each task once.
    cases = TASK_CASES if every else dict(reversed(TASK_CASES)).items()
    for number, (task, settings) in enumerate(cases):
        name = task if not (folder / task).exists() else f"{task}-{number}"
        write_task_model(folder / name, checkpoint, task, settings)
    (tmp_path / "out").mkdir()
    run(PREDICTIONS, folder, tmp_path / "out")


def test_masks_are_filled_and_texts_scored(tmp_path: Path) -> None:
    run(MASKS, write_head_directory(tmp_path / "masked", MaskedLM), tmp_path / "out")


def test_everything_that_embeds_runs(sentences: Path, tmp_path: Path) -> None:
    masked = write_head_directory(tmp_path / "masked", MaskedLM)
    ranking = write_head_directory(tmp_path / "ranking", SequenceClassification, num_labels=1)
    run(EMBEDDING, sentences, masked, ranking, tmp_path / "out")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_every_published_layout_runs(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    pytest.importorskip("sentence_transformers")
    import transformers

    from tests.embedding.hybrid_model import write_hybrid_directory
    from tests.models.published.test_published_xlm_roberta import embedder_directory
    from tests.opening import test_late_interaction as late
    from tests.opening import test_module_stacks as stacks
    from tests.opening.test_sparse_layouts import routed

    stacks.save(tmp_path / "stacked", stacks.draw(stacks.stacks()["embeddinggemma"]()))
    lora = write_sentence_directory(tmp_path / "lora")
    base = transformers.AutoModel.from_pretrained(lora)
    config = peft.LoraConfig(target_modules=["query"])
    peft.get_peft_model(base, config).save_pretrained(lora)
    colberts = (
        late.stanford(tmp_path / "stanford", query_maxlen=12),
        late.pylate(tmp_path / "pylate", query_prefix="[unused0] ", query_length=12),
    )
    run(
        LAYOUTS,
        tmp_path / "stacked" / "saved",
        ",".join(map(str, colberts)),
        routed(tmp_path / "sparse"),
        write_hybrid_directory(tmp_path / "hybrid"),
        embedder_directory(tmp_path / "adapter"),
        lora,
    )


def test_a_model_is_served(sentences: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed; it comes with the extra serve")
    run(SERVING, sentences, tmp_path / "s")


def test_the_command_line_runs(sentences: Path, tmp_path: Path) -> None:
    ran = run(COMMANDS, sentences, tmp_path / "out")
    report = next(json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"mach'))
    assert report["operations"] == {}
    assert report["native_extension"]["present"]
    assert ran.stderr.count("needs torch, which is not installed; install it with") >= 2
