"""Finds the tokenizer class of transformers 5 for a directory, and lists those with token types."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from encoder_engine.errors import TokenizerFileError
from encoder_engine.json_values import read_value

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TYPED_CLASSES", "find_class"]

# model_type of a config.json, where neither companion names a class.
CLASSES = (
    dict.fromkeys(("bert", "convbert", "distilbert", "electra", "ernie"), "BertTokenizer")
    | dict.fromkeys(("megatron-bert", "nomic_bert", "squeezebert"), "BertTokenizer")
    | dict.fromkeys(("bart", "data2vec-text", "longformer", "roberta"), "RobertaTokenizer")
    | dict.fromkeys(("longt5", "mt5", "t5", "umt5"), "T5Tokenizer")
    | dict.fromkeys(("xlm-roberta", "xlm-roberta-xl"), "XLMRobertaTokenizer")
    | {"albert": "AlbertTokenizer", "camembert": "CamembertTokenizer", "esm": "EsmTokenizer"}
    | {"deberta": "DebertaTokenizer", "deberta-v2": "DebertaV2Tokenizer"}
    | {"mobilebert": "MobileBertTokenizer", "mpnet": "MPNetTokenizer"}
    | {"roformer": "RoFormerTokenizer", "xlnet": "XLNetTokenizer"}
)
# Classes that give token_type_ids unless model_input_names says otherwise.
TYPED_CLASSES = frozenset(
    f"{name}Tokenizer"
    for name in (
        *("Bert", "ConvBert", "DPRContextEncoder", "DPRQuestionEncoder", "Deberta", "DebertaV2"),
        *("Electra", "FNet", "LayoutLM", "Lxmert", "MobileBert", "SqueezeBert"),
    )
)


def find_class(folder: Path, stated: str | None) -> str | None:
    """Return the tokenizer class, less the suffix "Fast", that a directory states or implies.

    ``stated``: the class of tokenizer_config.json. Without it config.json decides, if it can be
    read; a damaged config.json is refused later, when the model is loaded.
    """
    path = folder / "config.json"
    if stated is None and path.is_file():
        with suppress(TokenizerFileError):
            config = read_value(path, TokenizerFileError, null_is_absent=True)
            kind = config.get("model_type").string()
            named = config.get("tokenizer_class")
            stated = named.value or CLASSES.get(kind, f"a {kind} model")
    return None if stated is None else str(stated).removesuffix("Fast").replace("MT5", "T5")
