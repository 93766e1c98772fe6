"""ESM-2 (Lin et al. 2023) and ESM-1b (Rives et al. 2021): proteins, whose letters are the tokens.

Pre-norm; rotary positions in ESM-2, learned ones in ESM-1b. With token dropout, mask tokens are
zero and all other rows are multiplied by 0.88 / (1 - the share of mask tokens).
"""

from dataclasses import replace

from encoder_engine.families.data import bert, roberta
from encoder_engine.families.facts.embedding_quirks import EsmEmbedding
from encoder_engine.families.facts.family import PLAIN_BLOCK, ConfigKeys, Family
from encoder_engine.families.facts.names import Rename

BLOCK = bert.BLOCK
FAMILY = Family(
    model_type="esm",
    architecture="EsmModel",
    prefix="esm.",
    padding_id=1,
    pooler=True,
    block=replace(PLAIN_BLOCK, norm_first=True),
    embedding_norm=False,
    final_norm=True,
    position_table=False,
    keys=ConfigKeys(activation=None, num_segments=None),
    dropouts={
        "hidden_dropout_prob": (
            "blocks.attention.output_dropout",
            "blocks.feed_forward.output_dropout",
        ),
        "attention_probs_dropout_prob": ("blocks.attention.dropout",),
    },
    quirks=(EsmEmbedding(),),
    renames=(
        *bert.WITHOUT_NORMS,
        Rename("embedding.norm", "embeddings.layer_norm"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.LayerNorm"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.LayerNorm"),
        Rename("final_norm", "encoder.emb_layer_norm_after"),
        bert.POOLER,
    ),
    heads=("lm_head.", "classifier."),
    in_place=False,
    layouts=(
        replace(
            roberta.CLASSIFIER,
            architecture="EsmForSequenceClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(bert.TOKEN_CLASSIFIER, architecture="EsmForTokenClassification"),
    ),
    # The contact head reads attentions, and is in every file, whether it was trained or not.
    buffers=(
        r"contact_head\..*",
        r"rotary_embeddings\.inv_freq",
        r"encoder\.layer\.(\d+|\*)\.attention\.self\.rotary_embeddings\.inv_freq",
    ),
    required={"position_embedding_type": ("absolute", "rotary"), "is_folding_model": (False,)},
    # The activation is GELU, whatever the key says.
    ignored=("esmfold_config", "hidden_act", "vocab_list"),
)
