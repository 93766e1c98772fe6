"""The pipelines of each task: convert keywords to the model's settings, predictions to dicts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.embedder import Embedder
from encoder_engine.engine.choosing import torch_engine
from encoder_engine.errors import InputError, TruncationWarning
from encoder_engine.kinds.texts import open_texts
from encoder_engine.prediction.classifier import Classifier
from encoder_engine.prediction.entities import EntityTask
from encoder_engine.prediction.mask_filler import MaskFiller
from encoder_engine.prediction.pipeline_answers import PipelineAnswers
from encoder_engine.prediction.pipeline_base import Pipeline, check_keywords
from encoder_engine.prediction.reader import Reader
from encoder_engine.prediction.tagger import Tagger
from encoder_engine.prediction.zero_shot import ZeroShotClassifier
from encoder_engine.tasks.question_answering import QuestionExample
from encoder_engine.tasks.task import Windows
from encoder_engine.text.arguments import check_integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.prediction.pipeline_base import Options

__all__ = ["PIPELINES"]

# Keywords for the tokenizer; rows are never padded.
_TOKENIZING = ("truncation", "max_length", "padding")


class TextClassification(Pipeline):
    """Pipeline of text classification: labels of texts or ``{"text": ..., "text_pair": ...}``."""

    loads = Classifier
    keywords = ("top_k", "function_to_apply", "return_all_scores", *_TOKENIZING)
    single = (str, Mapping)

    def run(self, inputs: Sequence[Any], options: Options) -> list[Any]:
        """Return for each input its best label and score; with ``top_k`` a list of the best."""
        classifier = copy(self.model)
        limit = _limit(options, classifier.windows.max_length)
        classifier.windows = replace(classifier.windows, max_length=limit)
        function = _lowered(options, "function_to_apply", ("softmax", "sigmoid", "none"))
        regression = classifier.problem == "regression"
        constant = function == "softmax" and regression
        texts = [_text_or_pair(row, one) for row, one in enumerate(inputs)]
        with _accepting_cuts(options):
            found = classifier.predict(texts, function=None if constant else function)
        return [
            self._labels([1.0 if constant else one.score], options)
            if regression
            else self._labels(one.probabilities.tolist(), options)
            for one in found
        ]

    def _labels(self, scores: list[float], options: Options) -> Any:
        names = self.model.labels
        rows = [{"label": n, "score": score} for n, score in zip(names, scores, strict=True)]
        if "top_k" not in options and options.get("return_all_scores"):
            return rows
        best = sorted(rows, key=lambda row: -row["score"])
        if "top_k" not in options:
            return best[0]
        top_k = options["top_k"]
        return best if top_k is None else best[: check_integer(top_k, "top_k", least=1)]

    def unwrapped(self, inputs: Any, result: Any, given: Options) -> Any:
        """Return the result for one ``str`` as a list, unless ``top_k`` made it one already."""
        return [result] if isinstance(inputs, str) and "top_k" not in given else result


class TokenClassification(Pipeline):
    """Pipeline of token classification: labelled tokens or, with an aggregation, entities."""

    loads = Tagger
    keywords = ("aggregation_strategy", "ignore_labels", "stride")

    def run(self, inputs: Sequence[Any], options: Options) -> list[Any]:
        """Return the labelled tokens or entities of each text, as dicts."""
        texts, stride = list(open_texts(inputs).rows), options.get("stride")
        aggregation = str(options.get("aggregation_strategy") or "none").lower()
        if stride is not None:
            stride = check_integer(stride, "stride", least=0)
            if aggregation == "none" and options.get("aggregation_strategy") is not None:
                raise InputError(
                    "stride joins the entities of windows, and aggregation_strategy='none' gives "
                    "tokens; leave stride out: texts are read to their end without it"
                )
        settings: dict[str, Any] = {"aggregation": aggregation, "stride": stride}
        if options.get("ignore_labels") is not None:
            settings["ignored"] = tuple(options["ignore_labels"])
        task = EntityTask.of(self.model.task, **settings)
        found = self.model.predict_examples(texts, task=task)
        form = self._token if aggregation == "none" else _group
        return [[form(one) for one in row] for row in found]

    def _token(self, found: Any) -> dict[str, Any]:
        entity, tokenizer = found.entity, self.model.tokenizer
        is_unknown = found.token_id == tokenizer.unk_token_id
        word = entity.text if is_unknown else tokenizer.id_to_token(found.token_id)
        return {
            "entity": entity.label,
            "score": entity.score,
            "index": found.place,
            "word": word,
            "start": entity.start,
            "end": entity.stop,
        }


def _group(found: Any) -> dict[str, Any]:
    label, start, stop, text, score = found.entity
    return {
        "entity_group": label,
        "score": score,
        "word": text.strip(),
        "start": start,
        "end": stop,
    }


class ZeroShotClassification(Pipeline):
    """Pipeline of zero-shot classification: scores labels given in the call by an NLI model."""

    loads = ZeroShotClassifier
    keywords = ("candidate_labels", "hypothesis_template", "multi_label")

    def sample(self, text: str) -> tuple[Any, Options]:
        """Return an example input that contains a text, and the keywords that its call needs."""
        return text, {"candidate_labels": ["label"]}

    def rows_of_an_input(self, options: Options) -> int:
        """Return the number of labels: the model reads each label together with the text."""
        labels = (self.options | options).get("candidate_labels")
        return max(len(_label_list(labels)), 1)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Score labels for each text; they are ``candidate_labels`` or the second argument."""
        if len(inputs) != 2:
            return super().__call__(*inputs, **options)
        if "candidate_labels" in options:
            raise TypeError("the labels are given twice; pass candidate_labels once")
        return super().__call__(inputs[0], candidate_labels=inputs[1], **options)

    def run(self, inputs: Sequence[Any], options: Options) -> list[Any]:
        """Return for each text the labels, the most probable first, and their scores."""
        labels = _label_list(options.get("candidate_labels", ()))
        texts = list(open_texts(inputs).rows)
        found = self.model.predict(
            texts,
            labels,
            template=options.get("hypothesis_template", "This example is {}."),
            multi_label=bool(options.get("multi_label", False)),
        )
        return [_zero_shot(text, one) for text, one in zip(texts, found, strict=True)]


def _label_list(labels: Any) -> list[Any]:
    """Return labels as a list; a single string is split at its commas."""
    if isinstance(labels, str):
        return [part.strip() for part in labels.split(",") if part.strip()]
    return list(labels or ())


def _zero_shot(text: str, found: Any) -> dict[str, Any]:
    scores = found.scores.tolist()
    # Among equal scores, the last label comes first.
    order = sorted(range(len(scores)), key=lambda n: (-scores[n], -n))
    return {
        "sequence": text,
        "labels": [found.labels[n] for n in order],
        "scores": [scores[n] for n in order],
    }


class QuestionAnswering(Pipeline):
    """Pipeline of question answering, as transformers 4.57 had it."""

    loads = Reader
    keywords = (
        *("top_k", "topk", "max_answer_len", "max_seq_len", "doc_stride", "max_question_len"),
        *("handle_impossible_answer", "align_to_words", "padding"),
    )
    single = (Mapping,)

    def sample(self, text: str) -> tuple[Any, Options]:
        """Return an example input that contains a text, and the keywords that its call needs."""
        return {"question": "what?", "context": text}, {}

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Answer ``question=`` from ``context=``, each a string or a list; or dicts of both."""
        question, context = (options.pop(name, None) for name in ("question", "context"))
        if question is not None or context is not None:
            given: Any = _pair_up(question, context)
        elif len(inputs) == 2 and all(isinstance(one, str) for one in inputs):
            given = {"question": inputs[0], "context": inputs[1]}
        else:
            given = inputs[0] if len(inputs) == 1 else list(inputs)
        if isinstance(given, (list, tuple)) and len(given) == 1:
            given = given[0]
        return self.results(given, options)

    def run(self, inputs: Sequence[Any], options: Options) -> list[Any]:
        """Return the best answer to each question; if there are several, a list of them."""
        reader, top_k = self.model, options.get("top_k", options.get("topk"))
        examples = [_question(row, one) for row, one in enumerate(inputs)]
        settings: dict[str, Any] = {
            "top_k": check_integer(1 if top_k is None else top_k, "top_k", least=1),
            "align_to_words": options.get("align_to_words") in (None, True),
            "no_answer": "yes" if options.get("handle_impossible_answer") else "no",
        }
        if options.get("max_answer_len") is not None:
            most = options["max_answer_len"]
            settings["max_tokens"] = check_integer(most, "max_answer_len", least=1)
        found = reader.predict_examples(
            examples,
            task=PipelineAnswers.of(reader.task, **settings),
            windows=self._windows(options),
        )
        results = []
        for one in found:
            rows = [
                {"score": best.score, "start": best.start, "end": best.stop, "answer": best.text}
                for best in one.best
            ]
            results.append(rows[0] if len(rows) == 1 else rows)
        return results

    def _windows(self, options: Options) -> Windows:
        given, stride = options.get("max_seq_len"), options.get("doc_stride")
        windows: Windows = self.model.windows
        if given is None and stride is None:
            return windows
        length = windows.max_length
        if given is not None:
            most = self.model.engine.spec.max_length
            length = check_integer(given, "max_seq_len", least=1)
            length = length if most is None else min(length, most)
        if stride is None:
            stride = min(length // 2, 128)
        return Windows(max_length=length, stride=check_integer(stride, "doc_stride", least=0))


def _pair_up(question: Any, context: Any) -> Any:
    if isinstance(question, (list, tuple)):
        contexts = [context] * len(question) if isinstance(context, str) else list(context or ())
        if len(contexts) != len(question):
            raise InputError(
                f"there are {len(question)} questions and {len(contexts)} contexts; give as many, "
                "or one context"
            )
        return [{"question": q, "context": c} for q, c in zip(question, contexts, strict=True)]
    return {"question": question, "context": context}


def _question(row: int, one: Any) -> QuestionExample:
    names = ("question", "context")
    found: list[Any] = [one.get(name) for name in names] if isinstance(one, Mapping) else []
    if not found or not all(isinstance(text, str) and text for text in found):
        raise InputError(
            f"row {row} is {one!r:.60}; give a dict of a question and its context, texts that are "
            "not empty",
            row=row,
        )
    return QuestionExample(str(row), found[0], found[1])


class FillMask(Pipeline):
    """Pipeline of mask filling: the most probable tokens, of all or of ``targets``."""

    loads = MaskFiller
    keywords = ("top_k", "targets", "tokenizer_kwargs")

    def sample(self, text: str) -> tuple[Any, Options]:
        """Return an example input with a text and a mask, and the keywords of its call."""
        mask = self.tokenizer.mask_token_id
        assert mask is not None
        return f"{text} {self.tokenizer.id_to_token(mask)}", {}

    def results(self, inputs: Any, options: Options) -> Any:
        """Return one result for one text, or for a list of one; else a list of results."""
        found = super().results(inputs, options)
        return found[0] if isinstance(inputs, list) and len(inputs) == 1 else found

    def run(self, inputs: Sequence[Any], options: Options) -> list[Any]:
        """Return for each text the best tokens for its mask; for several masks, a list of lists."""
        filler = self.model
        tokenizing = options.get("tokenizer_kwargs") or {}
        check_keywords("tokenizer_kwargs", tokenizing, _TOKENIZING)
        limit = None
        if tokenizing.get("truncation"):
            limit = _limit(tokenizing, filler.engine.spec.max_length, filler.tokenizer)
        texts = open_texts(inputs).rows
        rows = [filler.masked_ids(text, row, limit) for row, text in enumerate(texts)]
        top_k = options.get("top_k")
        found = filler.fill_rows(
            rows,
            check_integer(5 if top_k is None else top_k, "top_k", least=1),
            self._targets(options.get("targets")),
        )
        return [self._filled(ids, masks) for ids, masks in zip(rows, found, strict=True)]

    def _targets(self, targets: Any) -> list[int] | None:
        if targets is None:
            return None
        tokenizer, found = self.model.tokenizer, set()
        for target in [targets] if isinstance(targets, str) else list(targets):
            token = tokenizer.token_to_id(target)
            ids = [token]
            if token is None:
                ids = tokenizer.encode(target, add_special_tokens=False).tolist()
            if len(ids) != 1:
                raise InputError(
                    f"the target {target!r} has {len(ids)} tokens, a mask takes one; "
                    "MaskFiller.rank compares words of several"
                )
            found.add(ids[0])
        if not found:
            raise InputError("targets is empty; give the tokens to choose among")
        return sorted(found)

    def _filled(self, ids: list[int], masks: list[Any]) -> Any:
        tokenizer = self.model.tokenizer
        places = [n for n, one in enumerate(ids) if one == tokenizer.mask_token_id]
        rows = []
        for place, candidates in zip(places, masks, strict=True):
            row = []
            for one in candidates:
                filled = [*ids[:place], one.token_id, *ids[place + 1 :]]
                kept = [token for token in filled if token != tokenizer.pad_token_id]
                row.append(
                    {
                        "score": one.probability,
                        "token": one.token_id,
                        "token_str": tokenizer.decode([one.token_id], skip_special_tokens=False),
                        "sequence": tokenizer.decode(kept, skip_special_tokens=len(places) == 1),
                    }
                )
            rows.append(row)
        return rows[0] if len(rows) == 1 else rows


class FeatureExtraction(Pipeline):
    """Pipeline of feature extraction: each token's last hidden state, as lists [1, T, D]."""

    loads = Embedder
    keywords = ("truncation", "tokenize_kwargs", "return_tensors")

    def run(self, inputs: Sequence[Any], options: Options) -> list[Any]:
        """Return the vectors of each text's tokens, [1, T, D], as lists or tensors."""
        tokenizing = dict(options.get("tokenize_kwargs") or {})
        check_keywords("tokenize_kwargs", tokenizing, _TOKENIZING)
        if options.get("truncation") is not None:
            tokenizing["truncation"] = options["truncation"]
        embedder = copy(self.model)
        cuts = bool(tokenizing.get("truncation"))
        limit = embedder.engine.spec.max_length
        if cuts:
            limit = _limit(tokenizing, limit, embedder.tokenizer)
        if limit is not None:
            embedder.max_seq_length = limit
        found = embedder.encode_tokens(
            inputs, prompt="", on_truncation="ignore" if cuts else "warn"
        )
        if options.get("return_tensors"):
            as_tensor = torch_engine("return_tensors=True").as_tensor
            return [as_tensor(vectors[None].copy()) for vectors in found]
        return [[vectors.tolist()] for vectors in found]


def _text_or_pair(row: int, one: Any) -> Any:
    """Return a classification pipeline's input as a text, or as a tuple of two texts."""
    if isinstance(one, str):
        return one
    if isinstance(one, Mapping) and one.keys() <= {"text", "text_pair"} and "text" in one:
        return one["text"] if one.get("text_pair") is None else (one["text"], one["text_pair"])
    if isinstance(one, list) and len(one) == 1 and isinstance(one[0], list) and len(one[0]) == 2:
        return tuple(one[0])
    raise InputError(
        f"row {row} is {one!r:.60}; give a text, or a dict of 'text' and 'text_pair'", row=row
    )


def _limit(options: Options, most: int | None, tokenizer: Any = None) -> Any:
    """Return the smallest of the limits on an input's tokens; None: there is no limit.

    They are ``most``, the tokenizer's, and with truncation the option ``max_length``.
    """
    limits = [most, None if tokenizer is None else tokenizer.spec.model_max_length]
    given = options.get("max_length")
    if given is not None and options.get("truncation"):
        limits.append(check_integer(given, "max_length", least=1))
    return min((limit for limit in limits if limit is not None), default=None)


def _lowered(options: Options, name: str, known: tuple[str, ...]) -> Any:
    value = options.get(name)
    if value is None:
        return None
    if str(value).lower() not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return str(value).lower()


@contextmanager
def _accepting_cuts(options: Options) -> Iterator[None]:
    """Suppress warnings of truncated texts if the caller requested truncation."""
    with warnings.catch_warnings():
        if options.get("truncation"):
            warnings.simplefilter("ignore", TruncationWarning)
        yield


PIPELINES: dict[str, type[Pipeline]] = {
    "text-classification": TextClassification,
    "sentiment-analysis": TextClassification,
    "token-classification": TokenClassification,
    "ner": TokenClassification,
    "zero-shot-classification": ZeroShotClassification,
    "question-answering": QuestionAnswering,
    "fill-mask": FillMask,
    "feature-extraction": FeatureExtraction,
}
