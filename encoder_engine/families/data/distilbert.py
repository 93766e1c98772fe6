"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler, with its own tensor names."""

from dataclasses import replace

from encoder_engine.families.data.bert import SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.family import DROPOUTS, ConfigKeys, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename

BLOCK = "transformer.layer.{block}"
CLASSIFIER = HeadLayout(
    task="sequence-classification",
    architecture="DistilBertForSequenceClassification",
    rows="first",
    dense=DenseLayout(activation="relu"),
    dropouts=("seq_classif_dropout",),
    dropout=0.2,
    renames=(Rename("dense", "pre_classifier"), Rename("output", "classifier")),
)
FAMILY = Family(
    model_type="distilbert",
    architecture="DistilBertModel",
    prefix="distilbert.",
    padding_id=0,
    pooler=False,
    keys=ConfigKeys(
        width="dim",
        num_blocks="n_layers",
        num_heads="n_heads",
        feed_forward_width="hidden_dim",
        activation="activation",
        norm_epsilon=None,
        num_segments=None,
    ),
    dropouts={
        "dropout": DROPOUTS["hidden_dropout_prob"],
        "attention_dropout": DROPOUTS["attention_probs_dropout_prob"],
    },
    renames=(
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.positions", "embeddings.position_embeddings"),
        Rename("embedding.norm", "embeddings.LayerNorm"),
        Rename(
            "blocks.{block}.attention.qkv",
            (f"{BLOCK}.attention.q_lin", f"{BLOCK}.attention.k_lin", f"{BLOCK}.attention.v_lin"),
        ),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.out_lin"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.sa_layer_norm"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.ffn.lin1"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.ffn.lin2"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.output_layer_norm"),
    ),
    heads=("vocab_", "classifier.", "pre_classifier.", "qa_outputs."),
    layouts=(
        HeadLayout(
            task="masked-lm",
            architecture="DistilBertForMaskedLM",
            dense=DenseLayout(norm=True),
            renames=(
                Rename("dense", "vocab_transform"),
                Rename("norm", "vocab_layer_norm"),
                Rename("output", "vocab_projector"),
            ),
            copies={"vocab_projector.weight": "embedding.tokens"},
        ),
        CLASSIFIER,
        replace(
            CLASSIFIER,
            task="multiple-choice",
            architecture="DistilBertForMultipleChoice",
            num_outputs=1,
        ),
        replace(
            TOKEN_CLASSIFIER, architecture="DistilBertForTokenClassification", dropouts=("dropout",)
        ),
        replace(SPANS, architecture="DistilBertForQuestionAnswering", dropouts=("qa_dropout",)),
    ),
    # Sinusoidal positions are stored in the table like learned ones.
    ignored=("sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout", "tie_weights_"),
)
