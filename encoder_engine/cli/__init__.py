"""The command ``encoder-engine``: a file for each subcommand ("verb"); exit code 0, 1 or 2.

0: done; 1: failed; 2: wrong usage.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
import warnings
from itertools import chain
from typing import TYPE_CHECKING

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.accent import accent
from encoder_engine.cli.analysis.attention import attention
from encoder_engine.cli.analysis.heads import heads
from encoder_engine.cli.analysis.isotropy import isotropy
from encoder_engine.cli.analysis.probe import probe
from encoder_engine.cli.analysis.prune import prune
from encoder_engine.cli.analysis.retrieval import retrieval
from encoder_engine.cli.analysis.senses import senses
from encoder_engine.cli.bench import bench
from encoder_engine.cli.common import engine_version
from encoder_engine.cli.compile import compile_
from encoder_engine.cli.corpora.card import card
from encoder_engine.cli.corpora.clean import clean
from encoder_engine.cli.distill import distill
from encoder_engine.cli.doctor import doctor
from encoder_engine.cli.embed import embed
from encoder_engine.cli.plot import plot
from encoder_engine.cli.prepare import prepare
from encoder_engine.cli.pretrain import pretrain
from encoder_engine.cli.rows.inverse_cloze import inverse_cloze
from encoder_engine.cli.rows.noise import noise
from encoder_engine.cli.search import search
from encoder_engine.cli.serve import serve
from encoder_engine.cli.stores.index import index
from encoder_engine.cli.stores.mine_negatives import mine_negatives
from encoder_engine.cli.stores.quantize import quantize
from encoder_engine.cli.stores.recall import recall
from encoder_engine.cli.tokenize import tokenize
from encoder_engine.cli.train_tokenizer import train_tokenizer
from encoder_engine.cli.tuning.evaluate import evaluate
from encoder_engine.cli.tuning.fill_mask import fill_mask, score
from encoder_engine.cli.tuning.finetune import finetune
from encoder_engine.cli.tuning.predict import predict
from encoder_engine.errors import EncoderEngineError, EncoderEngineWarning
from encoder_engine.records import LOGGER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

__all__ = ["main"]

DONE, FAILED, USAGE = 0, 1, 2


# The verbs as --help lists them; tests/cli/test_style.py holds their options to one style.
SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Texts to vectors and labels": (embed, tokenize, distill, predict, fill_mask, score),
    "Stores": (search, index, quantize, plot, recall, mine_negatives),
    "Training": (
        *(clean, card, prepare, noise, inverse_cloze, train_tokenizer),
        *(pretrain, finetune, evaluate),
    ),
    "Looking inside": (accent, attention, heads, isotropy, probe, prune, retrieval, senses),
    "Serving": (serve, compile_),
    "Checks": (doctor, bench),
}


class _Sections(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, self.commands))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                rows = [(f"{verb.name:<{width}}", verb.get_short_help_str(100)) for verb in verbs]
                formatter.write_dl(rows)


@click.group(cls=_Sections, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(engine_version(), message="%(prog)s %(version)s")
@option.debug
def cli() -> None:
    """Run and train text encoders."""


for _verb in chain.from_iterable(SECTIONS.values()):
    cli.add_command(option.debug(_verb))
# A keyword of Python as errors name it, with its value or without: keep=, on_error='skip'. Paths
# and what is quoted are data.
_KEYWORD = re.compile(
    r"(?<!\w)(['\"]).*?\1(?!\w)"
    r"|(?<![^\s(])(?P<name>\w+)=(?P<value>'\w+'|\w*)(?=[\s;:,)]|\.?$|\. )"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    An error is printed as one line on standard error, with a traceback only under ``--debug``.
    """
    LOGGER.addHandler(_NOTES)
    LOGGER.setLevel(logging.INFO)
    with warnings.catch_warnings():
        warnings.simplefilter("always", EncoderEngineWarning)
        warnings.showwarning = _show_warning
        try:
            code = cli.main(arguments, prog_name="encoder-engine", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return USAGE if isinstance(error, click.UsageError) else FAILED
        except (click.Abort, KeyboardInterrupt) as error:
            # click raises its own Abort; the interrupted run's message is in the cause.
            causes = (error, error.__cause__)
            message = next((str(e) for e in causes if e is not None and str(e)), "")
            return _fail(message or "stopped; no partial output is left")
        except BrokenPipeError:
            # The reader of our output, such as head, has closed it: discard the last flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except EncoderEngineError as error:
            return _fail(str(error))
        except Exception as error:  # the last line of defence
            return _fail(f"unexpected {type(error).__name__}: {error} (see it with --debug)")
    return code if isinstance(code, int) else DONE


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        context = click.get_current_context(silent=True)
        options = {"quiet": True} if context is None else context.params
        if not (options.get("quiet") or options.get("as_json")):
            click.echo(record.getMessage(), err=True)


_NOTES = _Notes()


def _fail(reason: str) -> int:
    if option.CommandLine.debug:
        traceback.print_exc()
    click.echo(f"error: {in_options(' '.join(reason.split()))}", err=True)
    return FAILED


def in_options(message: str) -> str:
    """Rename keywords in a message to options: ``on_error='skip'`` becomes ``--on-error skip``."""
    verb = option.CommandLine.verb
    # A message about a store may advise to embed it again, so that it names options of embed.
    again = embed.params if verb in SECTIONS["Stores"] else []
    options = {one.name: one for one in (*again, *verb.params)}

    def name(found: re.Match[str]) -> str:
        named, value = options.get(found["name"]), (found["value"] or "").strip("'")
        if not isinstance(named, click.Option):
            return found[0]
        if named.is_flag:
            names = named.secondary_opts if value == "False" else named.opts
            return names[0] if names else found[0]
        return f"{named.opts[0]} {value}".rstrip()

    return _KEYWORD.sub(name, message)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del filename, lineno, file, line
    name = "" if issubclass(category, EncoderEngineWarning) else f"{category.__name__}: "
    click.echo(f"warning: {name}{in_options(' '.join(str(message).split()))}", err=True)
