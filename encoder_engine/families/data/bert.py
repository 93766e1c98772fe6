"""BERT (Devlin et al. 2019), and models of its layout: MiniLM, BGE, E5, SciBERT."""

from encoder_engine.families.facts.family import Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename

BLOCK = "encoder.layer.{block}"
RENAMES = (
    Rename("embedding.tokens", "embeddings.word_embeddings"),
    Rename("embedding.positions", "embeddings.position_embeddings"),
    Rename("embedding.segments", "embeddings.token_type_embeddings"),
    Rename("embedding.norm", "embeddings.LayerNorm"),
    Rename(
        "blocks.{block}.attention.qkv",
        (
            f"{BLOCK}.attention.self.query",
            f"{BLOCK}.attention.self.key",
            f"{BLOCK}.attention.self.value",
        ),
    ),
    Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.output.dense"),
    Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.output.LayerNorm"),
    Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.intermediate.dense"),
    Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.output.dense"),
    Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.output.LayerNorm"),
)
# Without the norms, which models of other layouts name otherwise.
WITHOUT_NORMS = tuple(rename for rename in RENAMES if not rename.ours.endswith("norm"))
POOLER = Rename("pooler.dense", "pooler.dense")
PREDICTIONS = HeadLayout(
    task="masked-lm",
    architecture="BertForMaskedLM",
    dense=DenseLayout(norm=True, to_embedding_width=True),
    renames=(
        Rename("dense", "cls.predictions.transform.dense"),
        Rename("norm", "cls.predictions.transform.LayerNorm"),
        Rename("output", "cls.predictions"),
    ),
    copies={
        "cls.predictions.decoder.weight": "embedding.tokens",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
# The dropout keys of classifiers in most families.
CLASSIFIER_DROPOUTS = ("classifier_dropout", "hidden_dropout_prob")
CLASSIFIER = HeadLayout(
    task="sequence-classification",
    architecture="BertForSequenceClassification",
    rows="pooled",
    dropouts=CLASSIFIER_DROPOUTS,
    renames=(Rename("output", "classifier"),),
)
CHOICES = HeadLayout(
    task="multiple-choice",
    architecture="BertForMultipleChoice",
    rows="pooled",
    num_outputs=1,
    dropouts=CLASSIFIER_DROPOUTS,
    renames=(Rename("output", "classifier"),),
)
TOKEN_CLASSIFIER = HeadLayout(
    task="token-classification",
    architecture="BertForTokenClassification",
    dropouts=CLASSIFIER_DROPOUTS,
    renames=(Rename("output", "classifier"),),
)
SPANS = HeadLayout(
    task="question-answering",
    architecture="BertForQuestionAnswering",
    num_outputs=2,
    renames=(Rename("output", "qa_outputs"),),
)
NEXT_SENTENCE = HeadLayout(
    task="next-sentence",
    architecture="BertForNextSentencePrediction",
    rows="pooled",
    num_outputs=2,
    renames=(Rename("output", "cls.seq_relationship"),),
)

FAMILY = Family(
    model_type="bert",
    architecture="BertModel",
    prefix="bert.",
    renames=(*RENAMES, POOLER),
    padding_id=0,
    pooler=True,
    heads=("cls.", "classifier.", "qa_outputs."),
    layouts=(PREDICTIONS, NEXT_SENTENCE, CLASSIFIER, CHOICES, TOKEN_CLASSIFIER, SPANS),
    # rubert-tiny2 repeats its width in it.
    ignored=("emb_size",),
)
