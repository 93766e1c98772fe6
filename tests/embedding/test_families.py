"""Every family embeds text by its own kind of tokenizer, as transformers would."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

import encoder_engine as ee
from encoder_engine.families.config import spec_from_config
from encoder_engine.models import all_families
from encoder_engine.ops.testing import assert_within_budget, dtype_id
from tests.models.all_cases import ALL_CASES
from tests.models.cases import Case, one_per_family
from tests.models.exact import exact, in_float64
from tests.models.test_families import PUBLISHED

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.DefaultPoolingWarning"),
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.MissingPoolerWarning"),
]
TEXTS = ["The model of a text", "a", "text of the model, the text"]
VOCAB_SIZE = 300
WORDS = ["the", "a", "of", "model", "text", *string.ascii_lowercase]
LETTERS = [*string.ascii_lowercase[:20], "T", "<null_1>"]
BRACKETS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ANGLES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def wordpiece(*special: str) -> dict[str, Any]:
    pieces = [*special, *WORDS, *(f"##{letter}" for letter in string.ascii_lowercase)]
    return {"vocab": {piece: number for number, piece in enumerate(pieces)}}


def unigram(*special: str) -> dict[str, Any]:
    pieces = [*(f"\u2581{word}" for word in WORDS), "\u2581"]
    scores = [(piece, -1.0 - place) for place, piece in enumerate(dict.fromkeys(pieces))]
    return {"vocab": [*((token, 0.0) for token in special), *scores]}


def byte_bpe(*special: str) -> dict[str, Any]:
    pieces = [*special, *sorted(ByteLevel.alphabet()), "th", "the"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    return {"vocab": vocab, "merges": [("t", "h"), ("th", "e")]}


BERT = ("BertTokenizer", wordpiece(*BRACKETS))
XLM_R = ("XLMRobertaTokenizer", unigram(*ANGLES))
GPT2 = ("GPT2Tokenizer", byte_bpe("<|endoftext|>") | {"pad_token": "<|endoftext|>"})
T5 = ("T5Tokenizer", unigram("<pad>", "</s>", "<unk>") | {"extra_ids": 2})
# Byte-level BPE stands for the tokenizers of all, which differ in their rules for words.
DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma3_text", "eurobert", "ultrabert")
CAMEMBERT_TOKENS = (
    *("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"),
    *("<unk>NOTUSED", "<s>", "</s>", "<mask>"),
)
# What a family's checkpoints are published with: transformers' class, and a small vocabulary.
# RoFormer's own finds words by a dictionary, and is refused: BERT's stands for it.
TOKENIZERS: dict[str, tuple[str, dict[str, Any] | str]] = {
    "esm": ("EsmTokenizer", "\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *LETTERS, "<mask>"])),
    **dict.fromkeys(("data2vec-text", "xlm-roberta-xl"), ("RobertaTokenizer", byte_bpe(*ANGLES))),
    **dict.fromkeys(("ernie", "megatron-bert", "roformer"), BERT),
    **dict.fromkeys(DECODERS, GPT2),
    "bart": ("BartTokenizer", byte_bpe(*ANGLES)),
    "big_bird": XLM_R,
    "mbart": ("MBartTokenizer", unigram(*ANGLES)),
    "mt5": T5,
    "umt5": T5,
    "rembert": XLM_R,
    "albert": ("AlbertTokenizer", unigram("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")),
    "bert": BERT,
    "camembert": ("CamembertTokenizer", unigram(*CAMEMBERT_TOKENS)),
    "deberta": ("DebertaTokenizer", byte_bpe(*BRACKETS)),
    "deberta-v2": (
        "DebertaV2Tokenizer",
        unigram("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
    ),
    "distilbert": BERT,
    "electra": ("ElectraTokenizer", wordpiece(*BRACKETS)),
    "gte": XLM_R,
    "gte_v1": XLM_R,
    "jina_bert_v2": BERT,
    "jina_bert_v2_qk": BERT,
    "longformer": ("LongformerTokenizer", byte_bpe(*ANGLES)),
    "modernbert": ("RobertaTokenizer", byte_bpe(*ANGLES)),
    "mpnet": (
        "MPNetTokenizer",
        wordpiece("<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"),
    ),
    "neobert": BERT,
    "new": BERT,
    "nomic_bert": BERT,
    "nomic_bert_v1": BERT,
    "roberta": ("RobertaTokenizer", byte_bpe(*ANGLES)),
    "t5": T5,
    "xlm-roberta": XLM_R,
    "xlm_roberta_flash": XLM_R,
    "xlm_roberta_rotary": XLM_R,
}
CASES = one_per_family(ALL_CASES)


def save_tokenizer(model_type: str, folder: Path) -> Any:
    import transformers

    name, arguments = TOKENIZERS[model_type]
    if isinstance(arguments, str):
        (folder / "pieces").write_text(arguments)
        arguments = {"vocab_file": str(folder / "pieces")}
    tokenizer = getattr(transformers, name)(**arguments)
    tokenizer.save_pretrained(folder)
    return tokenizer


def means(model: Any, inputs: Any) -> torch.Tensor:
    hidden = model(**inputs).last_hidden_state
    hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    mask = inputs["attention_mask"][..., None].to(hidden.dtype)
    pooled: torch.Tensor = (hidden * mask).sum(1) / mask.sum(1)
    return pooled


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=dtype_id)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model_type)
def test_text_becomes_the_vectors_of_transformers(
    case: Case, dtype: torch.dtype, tmp_path: Path
) -> None:
    tokenizer = save_tokenizer(case.model_type, tmp_path)
    model = case.save(tmp_path, vocab_size=VOCAB_SIZE, pad_token_id=tokenizer.pad_token_id)
    embedder = ee.Embedder.from_pretrained(tmp_path, device="cpu", dtype=dtype)
    assert embedder.engine.name == "compiled"
    found = torch.from_numpy(embedder.encode(TEXTS, normalize_embeddings=False))
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    assert embedder.tokenizer.encode_batch(TEXTS).tolist() == tokenizer(TEXTS)["input_ids"]
    with torch.no_grad():
        with in_float64():
            truth = means(exact(model), inputs)
        eager = means(model.to(dtype), inputs)
    # Means of rows that were rounded to the dtype.
    assert_within_budget(found.to(dtype), eager.to(dtype), truth, terms=3 * found.shape[1])


SIZES = {"vocab_size": VOCAB_SIZE, "pad_token_id": 0, "type_vocab_size": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "jina_bert_v2_qk": {
        "model_type": "bert",
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        "auto_map": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"},
    },
    "gte_v1": {"model_type": "gte", "position_embedding_type": "rope", "rope_theta": 160000},
    "xlm_roberta_flash": {
        "model_type": "xlm-roberta",
        "position_embedding_type": "absolute",
        "auto_map": {"AutoModel": "modeling_xlm_roberta.XLMRobertaModel"},
    },
    "xlm_roberta_rotary": {
        "model_type": "xlm-roberta",
        "position_embedding_type": "rotary",
        "rotary_emb_base": 20000.0,
        "auto_map": {
            "AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"
        },
    },
    "jina_bert_v2": {
        "model_type": "bert",
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
    },
    "neobert": {
        "model_type": "neobert",
        "max_length": 64,
        "max_position_embeddings": None,
        "type_vocab_size": None,
    },
    "new": {"model_type": "new", "position_embedding_type": "rope", "rope_theta": 160000},
    "nomic_bert_v1": {
        "model_type": "nomic_bert",
        "activation_function": "swiglu",
        "n_embd": 24,
        "n_head": 3,
        "n_layer": 2,
        "n_inner": 48,
        "n_positions": 64,
    },
}
PLAIN_SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize("model_type", sorted(PUBLISHED))
def test_text_becomes_the_means_of_the_rows_of_what_is_published(
    model_type: str, tmp_path: Path
) -> None:
    published = CONFIGS[model_type]
    sizes = {} if "n_embd" in published else PLAIN_SIZES
    torch.manual_seed(0)
    config = {k: v for k, v in (SIZES | sizes | published).items() if v is not None}
    ee.Encoder(spec_from_config(config), config=config).save_pretrained(tmp_path)
    save_tokenizer(model_type, tmp_path)
    assert (
        json.loads((tmp_path / "config.json").read_text())["model_type"]
        == (published["model_type"])
    )
    embedder = ee.Embedder.from_pretrained(tmp_path, device="cpu")
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    batch = embedder.tokenizer.encode_batch(TEXTS).to_packed("cpu")
    with torch.no_grad():
        rows = encoder(batch).last_hidden_state
        expected = ee.ops.pooling(rows, batch.sequences)
        truth = ee.ops.pooling(encoder.double()(batch).last_hidden_state, batch.sequences)
    found = torch.from_numpy(embedder.encode(TEXTS, normalize_embeddings=False))
    assert_within_budget(found, expected, truth, terms=3 * encoder.spec.width)


def test_every_family_has_a_tokenizer_here() -> None:
    assert set(TOKENIZERS) == set(all_families())
    assert set(CONFIGS) == PUBLISHED
