"""Makes everything of a release in dist, and tags the commit; see docs/release.md."""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"


def main() -> None:
    """Check the version, build, try, list and tag."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="", help="options of build.py")
    parser.add_argument("--check", default="", help="options of check.py")
    chosen = parser.parse_args()
    version = released_version()
    tag = f"v{version}"
    if git("status", "--porcelain"):
        raise SystemExit("the checkout has changes; commit them, for a release is a commit")
    if git("tag", "--list", tag) and git("rev-parse", f"{tag}^{{}}") != git("rev-parse", "HEAD"):
        raise SystemExit(f"{tag} is another commit; raise encoder_engine.__version__")
    shutil.rmtree(DIST, ignore_errors=True)
    python("deploy/wheels/build.py", *shlex.split(chosen.build))
    python("-m", "build", "--sdist", "--no-isolation", "--outdir", str(DIST))
    python("-m", "twine", "check", "--strict", *map(str, sorted(DIST.iterdir())))
    table, installed = str(DIST / "wheels.md"), str(ROOT / "build" / "released")
    python(
        "deploy/wheels/check.py",
        f"--table={table}",
        f"--keep={installed}",
        *shlex.split(chosen.check),
    )
    sbom = DIST / f"encoder_engine-{version}.cdx.json"
    python("-m", "cyclonedx_py", "environment", "--output-file", str(sbom), installed)
    files = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
    if not git("tag", "--list", tag):
        git("tag", "--annotate", tag, "--message", f"encoder-engine {version}")
    print(f"{tag}: {len(files)} files in dist; upload them, and push the tag")


def released_version() -> str:
    """Return the version; raise where CHANGELOG.md does not begin with it and a date."""
    code = (ROOT / "encoder_engine" / "__init__.py").read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    heading = re.findall(r"^## .*$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0]
    if not re.fullmatch(rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        raise SystemExit(f"CHANGELOG.md begins with '{heading}'; write '## {version} (YYYY-MM-DD)'")
    return str(version)


def git(*arguments: str) -> str:
    """Return what git prints in the checkout."""
    command = ["git", *arguments]
    ran = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return str(ran.stdout).strip()


def python(*arguments: str) -> None:
    """Run this interpreter in the checkout."""
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
