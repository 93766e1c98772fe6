"""``python -m encoder_engine.cli``: the command line where no script is installed."""

import sys

from encoder_engine.cli import main

sys.exit(main())
