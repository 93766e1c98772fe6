"""Runs the command line by ``python -m encoder_engine.cli``, where no script is installed."""

import sys

from encoder_engine.cli import main

sys.exit(main())
