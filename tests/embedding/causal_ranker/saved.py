"""Rerankers that sentence-transformers saves, and their scores by it and in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from encoder_engine.embedding import CausalRanker
from encoder_engine.ops.testing import assert_within_budget
from tests.embedding.test_causal import PAIRS, build
from tests.models.exact import exact, in_float64

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Result = TypeVar("Result")
TERMS = 3 * 48
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
    import sentence_transformers
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
    import sentence_transformers

    return sentence_transformers.CrossEncoder(str(folder), device="cpu")


def tensor(values: Any) -> torch.Tensor:
    """Return numbers as a tensor; files are mapped read-only, so they are copied."""
    return torch.from_numpy(np.array(values))


def in_exact(library: Any, call: Callable[[], Result]) -> Result:
    """Call with the library's model in float64."""
    module = library[0].model
    with in_float64():
        library[0].model = exact(module)
        try:
            return call()
        finally:
            library[0].model = module


def assert_as_theirs(
    found: Any,
    library: Any,
    pairs: Any,
    activation_fn: Callable[[Any], Any] | None = None,
    **options: Any,
) -> None:
    """Assert that scores are within the budget of the library's; ``activation_fn``: its own."""

    def predict() -> torch.Tensor:
        scores: torch.Tensor = library.predict(
            pairs, convert_to_tensor=True, activation_fn=activation_fn, batch_size=2, **options
        )
        return scores

    assert_within_budget(tensor(found), predict(), in_exact(library, predict), terms=TERMS)


def assert_as_ours(
    found: Any, expected: Any, folder: Path, pairs: Any, *, template: Any = None, **options: Any
) -> None:
    """Assert that scores are within the budget of other ones of ours."""
    ranker = CausalRanker.from_pretrained(folder, "cpu", "float64", template=template)
    truth = tensor(ranker.score(pairs, **options)).double()
    assert_within_budget(tensor(found), tensor(expected), truth, terms=TERMS)


def put(expression: str) -> str:
    """Return a template that puts an expression of the document in its place."""
    return SPECIAL.replace("{{ document }}", f"{{{{ {expression} }}}}")
