"""Causal rerankers as sentence-transformers 6.2 saves them: the same scores, or a typed refusal."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine import load_vectors
from encoder_engine.cli import main
from encoder_engine.embedding import CausalRanker, PairTemplate, Ranker, Scorer
from encoder_engine.embedding.any_model import load_ranker
from encoder_engine.embedding.steps.window import TokenizedWindow
from encoder_engine.errors import (
    ConfigError,
    InputError,
    MissingDependencyError,
    ResumeError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.serving.tasks import CallOptions, steps_of
from tests.embedding.test_causal import ENGINES, PAIRS, TEMPLATE, build
from tests.embedding.test_families import VOCAB_SIZE
from tests.embedding.tiny_model import write_json
from tests.models.exact import exact, in_float64

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

sentence_transformers = pytest.importorskip("sentence_transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ROLES = "".join(
    f'{{%- set {name} = messages | selectattr("role", "eq", "{role}") | map(attribute="content")'
    f" | first{default} -%}}\n"
    for name, role, default in (
        ("task", "system", ' | default("Judge {it}.")'),
        ("query", "query", ""),
        ("document", "document", ""),
    )
)
# As Qwen3-Reranker's: words between special tokens, the instruction by a system message.
SPECIAL = ROLES + (
    "<|start|>system: {{ task }}<|end|>\n<|start|>Query: {{ query }}\n"
    "Document: {{ document }}<|end|>\n<|start|>answer:\n\n\n"
)
# The words around the texts share tokens with them, the document comes first, and twice.
MERGED = ROLES + (
    "{{ document }}the query: t{{ query }}he document: t{{ document }}he{{ bos_token }}"
)
# A chat's own loop over roles, as zerank-2 formats pairs, with a prompt for the answer. As in
# Qwen's, a comparison that decides nothing here.
LOOP = (
    "{% set ns = namespace(last=0) %}{% for message in messages[::-1] %}{% if message.content is "
    "string and not (message.content.startswith('<tool>') and message.content.endswith('</tool>'))"
    "%}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for message in messages %}{% if message.content is string %}"
    "{{ '<|start|>' + message.role + '\\n' + message['content'] + '<|end|>' + '\\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start|>answer\\n' }}{% endif %}"
    "{{ thinking | default('no') }}"
)
STRUCTURED = (
    "{% for message in messages %}{{ message.role }}: {{ message.content[0].text }}\n"
    "{% endfor %}yes?"
)
LONG_PAIRS = [
    *PAIRS,
    ("the {query}", "{document} %s " + "of text the the " * 30),
    ("the " * 60, "a"),
]
Chat = dict[str, Any]


def put(expression: str) -> str:
    """Return a template that puts an expression of the document in its place."""
    return SPECIAL.replace("{{ document }}", f"{{{{ {expression} }}}}")


def save(
    folder: Path,
    template: str | dict[str, str] | None,
    *,
    negative: int | None = 7,
    chat: Chat | None = None,
    text: Chat | None = None,
    **settings: Any,
) -> Path:
    """Save a reranker by sentence-transformers: a chat template, and a LogitScore."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules.logit_score import LogitScore

    base = folder / "base"
    _, tokenizer = build("qwen3", base, max_position_embeddings=300)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|end|>"]})
    tokenizer.chat_template = template
    tokenizer.model_max_length = settings.pop("model_max_length", 300)
    tokenizer.save_pretrained(base)
    processing = {} if chat is None else {"chat_template": chat}
    processing |= {} if text is None else {"text": text}
    transformer = Transformer(
        str(base), transformer_task="text-generation", processing_kwargs=processing
    )
    score = LogitScore(true_token_id=30, false_token_id=negative)
    model = sentence_transformers.CrossEncoder(
        modules=[transformer, score], device="cpu", **settings
    )
    model.save(str(folder / "saved"))
    return folder / "saved"


def load(folder: Path) -> Any:
    """Load a directory by sentence-transformers."""
    return sentence_transformers.CrossEncoder(str(folder), device="cpu")


def predict(library: Any, pairs: Any, **options: Any) -> torch.Tensor:
    found: torch.Tensor = library.predict(
        pairs, convert_to_tensor=True, activation_fn=torch.nn.Identity(), batch_size=2, **options
    )
    return found


CASES: dict[str, dict[str, Any]] = {
    "special": {"template": SPECIAL},
    "merged": {"template": MERGED},
    "loop": {"template": LOOP, "chat": {"add_generation_prompt": True, "thinking": "yes"}},
    "structured": {"template": STRUCTURED},
    "positive alone": {"template": SPECIAL, "negative": None},
    "of several": {
        "template": {"default": LOOP, "reranker": STRUCTURED},
        "chat": {"chat_template": "reranker"},
    },
    "in the settings": {"template": "no roles", "chat": {"chat_template": SPECIAL}},
    "text": {"template": None},
    "prompts": {
        "template": SPECIAL,
        "prompts": {"a": "task {a}", "b": ""},
        "default_prompt_name": "a",
    },
    "text with prompts": {
        "template": None,
        "prompts": {"a": "task "},
        "default_prompt_name": "a",
    },
}


@pytest.mark.parametrize("length", [None, 90])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_the_library(
    name: str, engine: Any, length: int | None, tmp_path: Path
) -> None:
    limit: dict[str, Any] = {} if length is None else {"model_max_length": length}
    folder = save(tmp_path, **CASES[name], **limit)
    library = load(folder)
    ranker = CausalRanker.from_pretrained(folder, device="cpu", engine=engine)
    assert ranker.max_seq_length == (length or 300)
    pairs = PAIRS if length is None else LONG_PAIRS
    found = ranker.score(pairs, activation="identity", on_truncation="ignore")
    eager = predict(library, pairs)
    with in_float64():
        library[0].model = exact(library[0].model)
        truth = predict(library, pairs)
    assert_within_budget(torch.from_numpy(found), eager, truth, terms=3 * 48)
    # The directory states no activation but the library's default, which it saves.
    np.testing.assert_allclose(ranker.score(pairs, on_truncation="ignore"), _sigmoid(found))
    alone = [ranker.score([pair], activation="identity", on_truncation="ignore") for pair in pairs]
    np.testing.assert_allclose(np.concatenate(alone), found, atol=1e-5)


def _sigmoid(odds: Any) -> Any:
    return (1 / (1 + np.exp(-odds.astype(np.float64)))).astype(np.float32)


@pytest.mark.parametrize("name", ["special", "merged", "loop", "structured", "text"])
def test_rows_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    """Every length of a document around the limit, where words and texts share tokens."""
    folder = save(tmp_path, **CASES[name], model_max_length=90)
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    library = load(folder)[0]
    documents = [letters[:n] for letters in ("the " * 30, "\n" * 90) for n in range(90)]
    pairs = [("the query", document) for document in documents]
    for prompt in ("", "Find {it}"):
        options: dict[str, Any] = {"max_length": ranker.max_seq_length, "num_threads": 1}
        rows = ranker.format.rows(pairs, prompt, **options)
        parts = np.split(rows.ids, rows.cu_seqlens[1:-1])
        for pair, part in zip(pairs, parts, strict=True):
            features = library.preprocess([pair], prompt=prompt)
            assert part.tolist() == features["input_ids"][0].tolist(), pair


def test_prompts_are_the_system_message(tmp_path: Path) -> None:
    folder = save(tmp_path, **CASES["prompts"])
    ranker, library = CausalRanker.from_pretrained(folder, device="cpu"), load(folder)
    plain = ranker.score(PAIRS, activation="identity")
    found = [
        ranker.score(PAIRS, prompt="other", activation="identity"),
        ranker.score(PAIRS, instruction="other", activation="identity"),
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], predict(library, PAIRS, prompt="other"), atol=1e-5)
    assert np.abs(found[0] - plain).max() > 1e-3
    empty = ranker.score(PAIRS, prompt_name="b", activation="identity")
    np.testing.assert_allclose(empty, predict(library, PAIRS, prompt_name="b"), atol=1e-5)
    with pytest.raises(InputError, match="no prompt 'c'"):
        ranker.score(PAIRS, prompt_name="c")
    with pytest.raises(InputError, match="instruction or prompt, not both"):
        ranker.score(PAIRS, prompt="a", instruction="b")


@pytest.mark.parametrize("name", ["Identity", "Sigmoid"])
def test_the_activation_is_the_directorys(name: str, tmp_path: Path) -> None:
    function = getattr(torch.nn, name)()
    folder = save(tmp_path, SPECIAL, activation_fn=function)
    found = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS)
    np.testing.assert_allclose(found, load(folder).predict(PAIRS), atol=1e-5)


def test_the_limit_of_the_settings_is_the_librarys(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL, text={"max_length": 100})
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    assert ranker.max_seq_length == 100
    with pytest.warns(TruncationWarning):
        found = ranker.score(LONG_PAIRS, activation="identity")
    np.testing.assert_allclose(found, predict(load(folder), LONG_PAIRS), atol=1e-5)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (put("document | trim"), r"changes them \(strip\)"),
        (put("document[:9]"), r"changes them \(getitem\)"),
        (put("document | e"), "it changes them or the words around them"),
        (put("document | tojson"), "it changes them or the words around them"),
        (put("('' ~ document) | trim"), "it changes them or the words around them"),
        (SPECIAL + "{% if query == document %}!{% endif %}", "a comparison"),
        (SPECIAL + "{{ {'a': 1}.get(query) }}", "a look-up"),
        (SPECIAL + "{{ query | int }}", "it changes them or the words around them"),
        (SPECIAL + "{{ query | length }}", r"looks at them or changes them \(len\)"),
        *(
            (SPECIAL + f"{{% if {condition} %}}!{{% endif %}}", "or the words around them")
            for condition in (
                "query",
                "document != 'yes'",
                "'the' in query",
                "document.startswith('<a>') and document.endswith('</a>')",
            )
        ),
        (SPECIAL + "{% for letter in query %}.{% endfor %}", "the words around them"),
    ],
)
def test_a_template_that_does_more_than_put_texts_is_refused(
    template: str, message: str, tmp_path: Path
) -> None:
    folder = save(tmp_path, template)
    with pytest.raises(UnsupportedFeatureError, match=message) as found:
        CausalRanker.from_pretrained(folder, device="cpu")
    assert "pass template=PairTemplate(" in str(found.value)
    CausalRanker.from_pretrained(folder, device="cpu", template=TEMPLATE)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for message in messages %}{{ message.role }}{% endfor %}", "not put the query any"),
        (SPECIAL.replace("{{ document }}", ""), "does not put the document anywhere"),
        ("{% for", "is not a template"),
        ("{{ raise_exception('no pairs') }}", "cannot be rendered: no pairs"),
        ("{{ messages[7].content }}", "cannot be rendered"),
        ("{{ ''.__class__.__mro__ }}" + SPECIAL, "cannot be rendered"),
    ],
)
def test_a_template_of_no_reranker_is_refused(template: str, message: str, tmp_path: Path) -> None:
    folder = save(tmp_path, template)
    with pytest.raises(ConfigError, match=message):
        CausalRanker.from_pretrained(folder, device="cpu")


def _set(name: str, **values: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / name
        write_json(path, json.loads(path.read_text("utf-8")) | values)

    return write


BERT = "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("1_LogitScore/config.json", true_token_id=VOCAB_SIZE), f"the model has {VOCAB_SIZE}"),
        (_set("1_LogitScore/config.json", false_token_id=-1), "an integer of at least 0"),
        (_set("1_LogitScore/config.json", module_input_name="x"), "must be 'causal_logits'"),
        (_set("1_LogitScore/config.json", bias=1.0), "keys that are unknown"),
        (_set(BERT, transformer_task="fill-mask"), "only 'text-generation'"),
        (_set(BERT, transformer_task=None), "no sentence_bert_config.json with transformer_task"),
        (_set(BERT, processing_kwargs={"text": {"padding": True}}), "keys that are unknown"),
        (_set(BERT, processing_kwargs={"common": {"a": 1}}), "common is not implemented"),
        (_set(BERT, processing_kwargs={"chat_template": {"tools": []}}), "tools is not impl"),
        (
            _set(BERT, processing_kwargs={"chat_template": {"restore_suffix": False}}),
            "restore_suffix: false",
        ),
        (_set(BERT, processing_kwargs={"text": {"max_length": 30}}), "leaves no room for a pair"),
        (
            _set("tokenizer_config.json", model_max_length=24),
            "tokens and leaves no room for a pair: the limit is 24",
        ),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "no default one"),
    ],
)
def test_settings_that_are_not_read_are_refused(
    change: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    folder = save(tmp_path, SPECIAL)
    change(folder)
    with pytest.raises(ConfigError, match=message):
        CausalRanker.from_pretrained(folder, device="cpu")


def test_a_special_token_that_no_file_states_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, MERGED)
    path = folder / "tokenizer_config.json"
    stated = json.loads(path.read_text("utf-8"))
    del stated["bos_token"]
    write_json(path, stated)
    with pytest.raises(UnsupportedFeatureError, match="uses bos_token, which"):
        CausalRanker.from_pretrained(folder, device="cpu")


def test_templates_in_the_tokenizers_settings_are_read(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL)
    expected = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS)
    (folder / "chat_template.jinja").unlink()
    for stated in (SPECIAL, [{"name": "default", "template": SPECIAL}]):
        _set("tokenizer_config.json", chat_template=stated)(folder)
        found = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(found, load(folder).predict(PAIRS), atol=1e-5)


def test_without_jinja_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path, SPECIAL)
    plain = save(tmp_path / "plain", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"jinja2>=3.1.6.*\[chat\]"):
        CausalRanker.from_pretrained(folder, device="cpu")
    CausalRanker.from_pretrained(folder, device="cpu", template=TEMPLATE)
    CausalRanker.from_pretrained(plain, device="cpu")


def test_a_plain_ranker_names_the_causal_one(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL)
    with pytest.raises(UnsupportedFeatureError, match=r"which CausalRanker.from_pretrained loads"):
        Ranker.from_pretrained(folder)


def test_int8_scores_are_near(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL)
    plain = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS, activation="identity")
    ranker = CausalRanker.from_pretrained(folder, quantization="int8")
    assert ranker.engine.quantization == "int8"
    found = ranker.score(PAIRS, activation="identity")
    assert np.abs(found - plain).max() < 0.2 * max(1.0, float(np.abs(plain).max()))
    assert np.abs(found - plain).max() > 0.0
    alone = np.concatenate([ranker.score([pair], activation="identity") for pair in PAIRS])
    np.testing.assert_allclose(found, alone, atol=1e-5)
    other = CausalRanker.from_pretrained(folder, quantization="int8", template=TEMPLATE)
    assert other.score(PAIRS).shape == (len(PAIRS),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("reranker"), SPECIAL)


CALLS: dict[str, dict[str, Any]] = {
    "batch_size": {"batch_size": 2},
    "convert_to_numpy": {"convert_to_numpy": True},
    "convert_to_tensor": {"convert_to_tensor": True},
    "show_progress_bar": {"show_progress_bar": False},
    "activation_fn": {"activation_fn": torch.nn.Identity()},
    "sigmoid": {"activation_fn": torch.nn.Sigmoid()},
    "tanh": {"activation_fn": torch.tanh},
    "apply_softmax": {"apply_softmax": True},
    "prompt": {"prompt": "Find it"},
    "device": {"device": "cpu"},
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_return_what_the_library_returns(name: str, folder: Path) -> None:
    ranker, library, options = CausalRanker.from_pretrained(folder), load(folder), CALLS[name]
    inputs: list[Any] = [PAIRS, PAIRS[0], list(PAIRS[0])]
    for pairs in inputs:
        found, expected = ranker.predict(pairs, **options), library.predict(pairs, **options)
        assert type(found) is type(expected)
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-5)
    of_rank = {"batch_size", "show_progress_bar", "activation_fn", "prompt", "device"}
    if of_rank >= options.keys():
        documents = [document for _, document in PAIRS]
        call = ("a", documents, 2, True)
        rows, theirs = ranker.rank(*call, **options), library.rank(*call, **options)
        assert [row["text"] for row in rows] == [row["text"] for row in theirs]
        scores = [row["score"] for row in theirs]
        np.testing.assert_allclose([row["score"] for row in rows], scores, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"convert_to_numpy": False}, "convert_to_tensor=True"),
        ({"activation_fn": torch.nn.Sigmoid(), "activation": "sigmoid"}, "not both"),
        ({"device": "cuda"}, r"from_pretrained\(..., device=\)"),
        ({"pool": {}}, r"score_dataset\(workers=\)"),
        ({"chunk_size": 4}, r"score_dataset\(workers=\)"),
        ({"batch_size": 0}, "batch_size must be a positive"),
    ],
)
def test_other_meanings_are_refused_by_name(
    options: dict[str, Any], message: str, folder: Path
) -> None:
    with pytest.raises(InputError, match=message):
        CausalRanker.from_pretrained(folder, device="cpu").predict(PAIRS, **options)


def test_a_misspelt_keyword_is_no_option(folder: Path) -> None:
    ranker: Any = CausalRanker.from_pretrained(folder, device="cpu")
    with pytest.raises(TypeError, match="did you mean 'batch_size'"):
        ranker.predict(PAIRS, batchsize=4)
    with pytest.raises(TypeError, match=r"rank\(\) got an unexpected"):
        ranker.rank("a", ["b"], convert_to_tensor=True)
    with pytest.raises(InputError, match="pair 1 must be two texts"):
        ranker.predict([("a", "b"), ("a", 3)])


def test_an_instruction_is_the_prompt_of_every_call(folder: Path, tmp_path: Path) -> None:
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    query, texts = PAIRS[0][0], [document for _, document in PAIRS]
    calls: list[Callable[..., Any]] = [
        partial(ranker.score, PAIRS),
        partial(ranker.predict, PAIRS),
        partial(ranker.rank, query, texts),
    ]
    for call in calls:
        assert np.array_equal(call(instruction="Find it"), call(prompt="Find it"))
        assert not np.array_equal(call(instruction="Find it"), call())
        with pytest.raises(InputError, match="instruction or prompt, not both"):
            call(instruction="Find it", prompt="Find it")
    with pytest.raises(UnsupportedFeatureError, match="copy the directory"):
        ranker.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_job_writes_the_scores(
    template: PairTemplate | None, engine: Any, folder: Path, tmp_path: Path
) -> None:
    rows = [{"query": f"query {n % 5}", "text": f"text {n} row"} for n in range(30)]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    options: dict[str, Any] = {"device": "cpu", "engine": engine, "template": template}
    ranker = CausalRanker.from_pretrained(folder, **options)
    expected = ranker.score([(row["query"], row["text"]) for row in rows])
    out = tmp_path / "out"
    assert ranker.score_dataset(source, out, shard_rows=12).rows == 30
    np.testing.assert_allclose(load_vectors(out).scores, expected, atol=1e-6)
    (out / "part-00001.npy").unlink()
    again = CausalRanker.from_pretrained(folder, **options)
    assert again.score_dataset(source, out, shard_rows=12).resumed_rows == 18
    np.testing.assert_allclose(load_vectors(out).scores, expected, atol=1e-6)
    with pytest.raises(ResumeError, match="prompt"):
        again.score_dataset(source, out, shard_rows=12, prompt="other")
    other = replace(TEMPLATE, positive="a")
    with pytest.raises(ResumeError, match=r"model\.answers was"):
        CausalRanker.from_pretrained(folder, **(options | {"template": other})).score_dataset(
            source, out, shard_rows=12
        )
    reload: Any = ranker.reload()
    pair = [("a", "b")]
    np.testing.assert_allclose(reload("cpu", 1).score(pair), ranker.score(pair), atol=1e-6)


def test_a_job_does_not_go_on_with_another_output_layer(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    build("qwen3", tmp_path, max_position_embeddings=300, tie_word_embeddings=False)
    names: list[Any] = [*ENGINES]
    engines = [Scorer.from_pretrained(tmp_path, device="cpu", engine=e).engine for e in names]
    before = [engine.fingerprint() for engine in engines]
    assert before[0] == before[1]
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    weights["lm_head.weight"] = weights["lm_head.weight"].neg()
    save_file(weights, path, {"format": "pt"})
    for name in names:
        engine = Scorer.from_pretrained(tmp_path, device="cpu", engine=name).engine
        assert engine.fingerprint() not in before


def test_the_verb_embed_scores_pairs(folder: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "a.jsonl", tmp_path / "out.npy"
    rows = [{"query": query, "text": document} for query, document in PAIRS]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    verb = ["embed", str(source), "-o", str(out), "-q", "--task", "scores", "--device", "cpu"]
    assert main([*verb, "-m", str(folder), "--prompt", "Find it"]) == 0
    expected = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS, prompt="Find it")
    np.testing.assert_allclose(load_vectors(out).scores, expected, atol=1e-6)
    # A plain directory of a causal model's class.
    assert isinstance(load_ranker(folder.parent / "base", template=TEMPLATE), CausalRanker)


def test_a_service_ranks_pairs_alone(folder: Path) -> None:
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    steps = steps_of(ranker)
    assert steps.keys() == {"rank"}
    options = steps["rank"].resolve(CallOptions(raw_scores=True))
    rows = steps["rank"].prepare(list(PAIRS), options)
    window = TokenizedWindow(encoding=rows, first_row=0, seconds=0.0)
    expected = ranker.score(PAIRS, activation="identity")
    np.testing.assert_allclose(steps["rank"].compute(window, options)[:, 0], expected, atol=1e-6)
    with pytest.raises(InputError, match="pair 0 must be two texts"):
        steps["rank"].prepare(["a text"], options)
