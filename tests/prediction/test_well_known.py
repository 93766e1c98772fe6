"""The configurations of well-known fine-tuned models: each loads, or is refused by its sentence.

Weights and vocabularies are small and random. Classes, labels and the fields of config.json are
those of the published models, as far as they matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import encoder_engine as ee
from encoder_engine.errors import EncoderEngineError
from encoder_engine.prediction.any_predictor import load_predictor
from encoder_engine.tasks.token_classification import TokenClassificationTask
from tests.prediction.published import edit_config, publish

if TYPE_CHECKING:
    from pathlib import Path

SEQUENCE, TOKENS, ANSWERS, CHOICE = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
MULTI = {"problem_type": "multi_label_classification"}
REGRESSION = {"problem_type": "regression"}
SINGLE = {"problem_type": "single_label_classification"}
CLASSES = {
    "albert": "Albert",
    "bert": "Bert",
    "big_bird": "BigBird",
    "camembert": "Camembert",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "eurobert": "EuroBert",
    "longformer": "Longformer",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "qwen3": "Qwen3",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}


def numbered(count: int) -> list[str]:
    return [f"LABEL_{number}" for number in range(count)]


def tags(*names: str, marks: str = "BI") -> list[str]:
    return ["O", *(f"{mark}-{name}" for name in names for mark in marks)]


class Known(NamedTuple):
    """A model: its family, the end of its class, its labels, and other fields of config.json."""

    name: str
    family: str
    ending: str
    labels: list[str]
    changes: dict[str, Any] = {}  # noqa: RUF012


NEGATIVE = ["NEGATIVE", "POSITIVE"]
TONES = ["negative", "neutral", "positive"]
STARS = ["1 star", *(f"{count} stars" for count in range(2, 6))]
EMOTIONS = ["anger", "disgust", "fear", "joy", "neutral", "sadness", "surprise"]
TOXIC = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"]
CNE, ENC = ["contradiction", "neutral", "entailment"], ["entailment", "neutral", "contradiction"]
CONLL = ["O", *(f"{mark}-{name}" for name in ("MISC", "PER", "ORG", "LOC") for mark in "BI")]
TAGGED = {"finetuning_task": "ner"}

CLASSIFIERS = [
    Known(
        "distilbert-base-uncased-finetuned-sst-2-english",
        "distilbert",
        SEQUENCE,
        NEGATIVE,
        {"finetuning_task": "sst-2"},
    ),
    Known("cardiffnlp/twitter-roberta-base-sentiment", "roberta", SEQUENCE, numbered(3)),
    Known("cardiffnlp/twitter-roberta-base-sentiment-latest", "roberta", SEQUENCE, TONES),
    Known("cardiffnlp/twitter-xlm-roberta-base-sentiment", "xlm-roberta", SEQUENCE, TONES),
    Known(
        "nlptown/bert-base-multilingual-uncased-sentiment",
        "bert",
        SEQUENCE,
        STARS,
        {"_num_labels": 5, "directionality": "bidi", "pooler_type": "first_token_transform"},
    ),
    Known("siebert/sentiment-roberta-large-english", "roberta", SEQUENCE, NEGATIVE, SINGLE),
    Known("ProsusAI/finbert", "bert", SEQUENCE, ["positive", "negative", "neutral"]),
    Known("yiyanghkust/finbert-tone", "bert", SEQUENCE, ["Neutral", "Positive", "Negative"]),
    Known(
        "lxyuan/distilbert-base-multilingual-cased-sentiments-student",
        "distilbert",
        SEQUENCE,
        ["positive", "neutral", "negative"],
    ),
    Known("finiteautomata/bertweet-base-sentiment-analysis", "roberta", SEQUENCE, ["NEG", "POS"]),
    Known("j-hartmann/emotion-english-distilroberta-base", "roberta", SEQUENCE, EMOTIONS, SINGLE),
    Known("bhadresh-savani/distilbert-base-uncased-emotion", "distilbert", SEQUENCE, EMOTIONS[:6]),
    Known("SamLowe/roberta-base-go_emotions", "roberta", SEQUENCE, numbered(28), MULTI),
    Known("oliverguhr/german-sentiment-bert", "bert", SEQUENCE, ["positive", "negative"]),
    Known("tabularisai/multilingual-sentiment-analysis", "distilbert", SEQUENCE, numbered(5)),
    Known("unitary/toxic-bert", "bert", SEQUENCE, TOXIC, MULTI),
    Known("unitary/unbiased-toxic-roberta", "roberta", SEQUENCE, numbered(16), MULTI),
    Known("unitary/multilingual-toxic-xlm-roberta", "xlm-roberta", SEQUENCE, ["toxic"], MULTI),
    Known("s-nlp/roberta_toxicity_classifier", "roberta", SEQUENCE, ["neutral", "toxic"]),
    Known("martin-ha/toxic-comment-model", "distilbert", SEQUENCE, ["non-toxic", "toxic"], SINGLE),
    Known("cardiffnlp/tweet-topic-21-multi", "roberta", SEQUENCE, numbered(19), MULTI),
    Known("facebook/roberta-hate-speech-dynabench-r4-target", "roberta", SEQUENCE, ["no", "hate"]),
    Known("KoalaAI/Text-Moderation", "deberta-v2", SEQUENCE, numbered(9), SINGLE),
    Known("Hate-speech-CNERG/dehatebert-mono-english", "bert", SEQUENCE, ["NON_HATE", "HATE"]),
    Known(
        "protectai/deberta-v3-base-prompt-injection-v2",
        "deberta-v2",
        SEQUENCE,
        ["SAFE", "INJECTION"],
    ),
    Known(
        "meta-llama/Prompt-Guard-86M", "deberta-v2", SEQUENCE, ["BENIGN", "INJECTION", "JAILBREAK"]
    ),
    Known("madhurjindal/autonlp-Gibberish-Detector", "distilbert", SEQUENCE, numbered(4), SINGLE),
    Known("mrm8488/bert-tiny-finetuned-sms-spam-detection", "bert", SEQUENCE, numbered(2)),
    Known("openai-community/roberta-base-openai-detector", "roberta", SEQUENCE, ["Fake", "Real"]),
    Known("textattack/albert-base-v2-CoLA", "albert", SEQUENCE, numbered(2)),
    Known("HuggingFaceFW/fineweb-edu-classifier", "bert", SEQUENCE, ["LABEL_0"], REGRESSION),
    Known("textattack/bert-base-uncased-STS-B", "bert", SEQUENCE, ["LABEL_0"]),
    Known("cross-encoder/stsb-distilroberta-base", "roberta", SEQUENCE, ["LABEL_0"]),
    Known("papluca/xlm-roberta-base-language-detection", "xlm-roberta", SEQUENCE, numbered(20)),
    Known("roberta-large-mnli", "roberta", SEQUENCE, [name.upper() for name in CNE]),
    Known("MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli", "deberta-v2", SEQUENCE, ENC),
    Known(
        "MoritzLaurer/ModernBERT-base-zeroshot-v2.0",
        "modernbert",
        SEQUENCE,
        ["entailment", "not_entailment"],
        {"classifier_pooling": "mean"},
    ),
    Known(
        "cross-encoder/nli-deberta-v3-base",
        "deberta-v2",
        SEQUENCE,
        ["contradiction", "entailment", "neutral"],
    ),
    Known("joeddav/xlm-roberta-large-xnli", "xlm-roberta", SEQUENCE, CNE),
    Known("typeform/distilbert-base-uncased-mnli", "distilbert", SEQUENCE, [*map(str.upper, ENC)]),
    Known("sileod/deberta-v3-base-tasksource-nli", "deberta-v2", SEQUENCE, ENC),
    Known("textattack/bert-base-uncased-MRPC", "bert", SEQUENCE, numbered(2)),
    Known("EuroBERT/EuroBERT-210m-sentiment", "eurobert", SEQUENCE, numbered(3)),
    Known("tomaarsen/Qwen3-Reranker-0.6B-seq-cls", "qwen3", SEQUENCE, ["LABEL_0"]),
]
TAGGERS = [
    Known("dslim/bert-base-NER", "bert", TOKENS, CONLL, {"_num_labels": 9}),
    Known("dslim/distilbert-NER", "distilbert", TOKENS, CONLL),
    Known("dbmdz/bert-large-cased-finetuned-conll03-english", "bert", TOKENS, CONLL),
    Known(
        "FacebookAI/xlm-roberta-large-finetuned-conll03-english",
        "xlm-roberta",
        TOKENS,
        ["B-LOC", "B-MISC", "B-ORG", "I-LOC", "I-MISC", "I-ORG", "I-PER", "O"],
    ),
    Known(
        "Davlan/bert-base-multilingual-cased-ner-hrl", "bert", TOKENS, tags("DATE", "PER", "LOC")
    ),
    Known("Babelscape/wikineural-multilingual-ner", "bert", TOKENS, CONLL, TAGGED),
    Known("Jean-Baptiste/camembert-ner", "camembert", TOKENS, ["O", "LOC", "PER", "MISC", "ORG"]),
    Known(
        "Jean-Baptiste/roberta-large-ner-english", "roberta", TOKENS, ["O", "MISC", "PER", "ORG"]
    ),
    Known("d4data/biomedical-ner-all", "distilbert", TOKENS, tags("Age", "Biological_structure")),
    Known("blaze999/Medical-NER", "deberta-v2", TOKENS, tags("AGE", "DRUG_NAME")),
    Known("obi/deid_roberta_i2b2", "roberta", TOKENS, tags("AGE", "PATIENT", marks="BILU")),
    Known("StanfordAIMI/stanford-deidentifier-base", "bert", TOKENS, ["VENDOR", "DATE", "O"]),
    Known("iiiorg/piiranha-v1", "deberta-v2", TOKENS, [*tags("CITY", "EMAIL", marks="I")]),
    Known("vblagoje/bert-english-uncased-finetuned-pos", "bert", TOKENS, ["ADJ", "NOUN", "VERB"]),
    Known(
        "oliverguhr/fullstop-punctuation-multilang-large",
        "xlm-roberta",
        TOKENS,
        ["0", ".", ",", "?", "-", ":"],
    ),
]
READERS = [
    Known("deepset/roberta-base-squad2", "roberta", ANSWERS, []),
    Known("deepset/minilm-uncased-squad2", "bert", ANSWERS, []),
    Known("deepset/deberta-v3-base-squad2", "deberta-v2", ANSWERS, []),
    Known("deepset/xlm-roberta-large-squad2", "xlm-roberta", ANSWERS, []),
    Known("deepset/electra-base-squad2", "electra", ANSWERS, []),
    Known("distilbert-base-cased-distilled-squad", "distilbert", ANSWERS, []),
    Known("etalab-ia/camembert-base-squadFR-fquad-piaf", "camembert", ANSWERS, []),
]
CHOOSERS = [
    Known("LIAMF-USP/roberta-large-finetuned-race", "roberta", CHOICE, []),
    Known("microsoft/mpnet-base-swag", "mpnet", CHOICE, []),
]
KINDS = [
    (CLASSIFIERS, "Classifier"),
    (TAGGERS, "Tagger"),
    (READERS, "Reader"),
    (CHOOSERS, "Chooser"),
]
LOADED = [(known, kind) for models, kind in KINDS for known in models]
# The family and the class whose weights are published, changes of config.json, and the sentence.
REFUSED: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("facebook/bart-large-mnli", "bart", "BartForSequenceClassification", {}, "end in a decoder"),
    ("knowledgator/t5-sentiment", "t5", "T5ForSequenceClassification", {}, "end in a decoder"),
    ("joeddav/xlnet-mnli", "bert", CLASSES["bert"] + SEQUENCE, {"model_type": "xlnet"}, "xlnet"),
    (
        "typeform/squeezebert-mnli",
        "bert",
        CLASSES["bert"] + SEQUENCE,
        {"model_type": "squeezebert"},
        "squeezebert",
    ),
    (
        "nvidia/prompt-task-and-complexity-classifier",
        "deberta-v2",
        "DebertaV2Model",
        {"architectures": ["CustomModel"]},
        "names CustomModel",
    ),
    (
        "vectara/hallucination_evaluation_model",
        "bert",
        CLASSES["bert"] + SEQUENCE,
        {"model_type": "HHEMv2Config", "auto_map": {"AutoModel": "modeling_hhem_v2.HHEM"}},
        "HHEMv2",
    ),
]


def test_there_are_sixty() -> None:
    assert len({known.name for known, _ in LOADED} | {row[0] for row in REFUSED}) >= 60


@pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning")
@pytest.mark.parametrize(("known", "kind"), LOADED, ids=[known.name for known, _ in LOADED])
def test_a_published_configuration_predicts(known: Known, kind: str, tmp_path: Path) -> None:
    settings = {
        k: v for k, v in known.changes.items() if k in ("problem_type", "classifier_pooling")
    }
    labels = known.labels or (["start", "end"] if kind == "Reader" else ["choice"])
    publish(tmp_path, known.family, CLASSES[known.family] + known.ending, labels, **settings)
    edit_config(tmp_path, **known.changes)
    model: Any = load_predictor(tmp_path, "cpu")
    assert type(model).__name__ == kind
    if isinstance(model, ee.Classifier):
        assert model.labels == tuple(known.labels)
        one, problem = len(labels) == 1, known.changes.get("problem_type")
        several = "multi" if problem == MULTI["problem_type"] else "single"
        assert model.problem == ("regression" if one else several)
        found = model.predict(["a b", ("a", "b")])
        for prediction in found:
            scores = [prediction.score] if one else prediction.probabilities
            free = one and problem == "regression"
            assert free or all(0.0 <= score <= 1.0 for score in scores)
    elif isinstance(model, ee.Tagger):
        assert isinstance(model.task, TokenClassificationTask)
        assert set(model.task.labels) == set(known.labels)
        (row,) = model.predict([["a", "b"]])
        assert set(row.tags) <= set(known.labels)
    elif isinstance(model, ee.Reader):
        assert model.predict(("a", "b a b")).text in "b a b"
    else:
        assert model.predict(("a", ["b", "a b"])).choice in (0, 1)


@pytest.mark.parametrize(
    ("family", "architecture", "changes", "sentence"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
def test_another_class_is_refused_by_its_sentence(
    family: str, architecture: str, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    publish(tmp_path, family, architecture, CNE)
    edit_config(tmp_path, **changes)
    with pytest.raises(EncoderEngineError, match=sentence):
        load_predictor(tmp_path, "cpu")
