"""XLM-R (Conneau et al. 2020): RoBERTa with a multilingual vocabulary."""

from dataclasses import replace

from encoder_engine.models.families import roberta

FAMILY = replace(roberta.FAMILY, model_type="xlm-roberta", architecture="XLMRobertaModel")
