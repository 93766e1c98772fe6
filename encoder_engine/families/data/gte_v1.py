"""GTE as Snowflake publishes it (snowflake-arctic-embed-m-v2.0): a copy of Alibaba-NLP/new-impl.

Its ``model_type`` is transformers' "gte", with the keys of
:mod:`encoder_engine.families.data.new`; ``position_embedding_type`` distinguishes it.
"""

from dataclasses import replace

from encoder_engine.families.data import gte, new

FAMILY = replace(
    new.FAMILY,
    model_type="gte_v1",
    architecture="GteModel",
    prefix="gte.",
    padding_id=1,
    layouts=gte.FAMILY.layouts,
    written_as="gte",
    marks={"position_embedding_type": "rope"},
    code=("configuration_hf_alibaba_nlp_gte.Gte", "modeling_hf_alibaba_nlp_gte.Gte"),
)
