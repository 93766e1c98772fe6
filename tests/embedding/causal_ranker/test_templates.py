"""Chat templates and settings of a causal reranker's directory: read, or refused by an error."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.embedding import CausalRanker, Ranker
from encoder_engine.errors import ConfigError, MissingDependencyError, UnsupportedFeatureError
from encoder_engine.opening.compiling import compile_directory
from tests.embedding.causal_ranker.saved import (
    MERGED,
    SPECIAL,
    assert_as_theirs,
    load,
    put,
    save,
)
from tests.embedding.test_causal import PAIRS, TEMPLATE
from tests.embedding.test_families import VOCAB_SIZE
from tests.embedding.tiny_model import write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("sentence_transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.mark.parametrize(
    "template",
    [
        put("document | trim"),
        put("document[:9]"),
        put("document | e"),
        put("document | tojson"),
        put("('' ~ document) | trim"),
        SPECIAL + "{% if query == document %}!{% endif %}",
        SPECIAL + "{{ {'a': 1}.get(query) }}",
        SPECIAL + "{{ query | length }}",
        SPECIAL + "{% if document.startswith('the') %}!{% endif %}",
        SPECIAL + "{% for letter in query %}.{% endfor %}",
    ],
)
def test_a_template_may_look_at_texts_and_change_them(template: str, tmp_path: Path) -> None:
    folder = save(tmp_path, template)
    found = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS)
    assert_as_theirs(found, load(folder), PAIRS)


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


def test_tokens_of_a_models_own_are_put_in(tmp_path: Path) -> None:
    template = SPECIAL + "{{ judge_token }}{{ end_token }}{{ no_token }}"
    folder = save(tmp_path, template)
    own = {"extra_special_tokens": {"judge_token": "<|start|>"}, "end_token": "<|end|>"}
    _set("tokenizer_config.json", **own)(folder)
    ranker, library = CausalRanker.from_pretrained(folder, device="cpu"), load(folder)
    rows = ranker.format.rows(PAIRS[:1], "", max_length=None, num_threads=1)
    assert rows.ids.tolist() == library[0].preprocess(PAIRS[:1])["input_ids"][0].tolist()
    tokenizer = ranker.tokenizer
    assert rows.ids[-2:].tolist() == [tokenizer.token_to_id(t) for t in ("<|start|>", "<|end|>")]


def test_templates_in_the_tokenizers_settings_are_read(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL)
    expected = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS)
    (folder / "chat_template.jinja").unlink()
    for stated in (SPECIAL, [{"name": "default", "template": SPECIAL}]):
        _set("tokenizer_config.json", chat_template=stated)(folder)
        found = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS)
        np.testing.assert_array_equal(found, expected)
        assert_as_theirs(found, load(folder), PAIRS)


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


def test_a_causal_reranker_is_not_compiled_without_its_answers(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL)
    with pytest.raises(UnsupportedFeatureError, match="a causal reranker, which answers by the"):
        compile_directory(folder, tmp_path / "compiled")
    assert not (tmp_path / "compiled").exists()
