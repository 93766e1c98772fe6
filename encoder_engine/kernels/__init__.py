"""Bridge to the Triton kernels, which live in kernels/ beside this package in a checkout.

An installed wheel holds the kernel packages right here, a checkout in ``<repo>/kernels``.
"""

from pathlib import Path

_checkout = Path(__file__).resolve().parents[2] / "kernels"
if not (Path(__file__).parent / "attention").is_dir() and _checkout.is_dir():
    __path__.append(str(_checkout))
del Path
