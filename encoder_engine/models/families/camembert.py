"""CamemBERT (Martin et al. 2020): RoBERTa of French text, its vocabulary by SentencePiece."""

from dataclasses import replace

from encoder_engine.models.families import roberta

FAMILY = replace(roberta.FAMILY, model_type="camembert", architecture="CamembertModel")
