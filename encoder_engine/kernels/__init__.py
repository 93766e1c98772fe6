"""Makes the Triton kernels importable as submodules of this package.

In a checkout they are in ``<repo>/kernels``, in an installed wheel in this folder.
"""

from pathlib import Path

_checkout = Path(__file__).resolve().parents[2] / "kernels"
if not (Path(__file__).parent / "attention").is_dir() and _checkout.is_dir():
    __path__.append(str(_checkout))
del Path
