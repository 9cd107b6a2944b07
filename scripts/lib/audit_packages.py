"""Asks pip-audit whether a package of scripts/requirements has a known vulnerability.

Skips, with a sentence, where there is no pip-audit or no network; fails for what is known to be vulnerable.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "requirements"
answer_time_max_s: Final = 120
_OPTIONS: Final = ("--disable-pip", "--no-deps", "--require-hashes", "--progress-spinner", "off", "--format", "json")


def main() -> int:
    program = shutil.which("pip-audit", path=str(Path(sys.executable).parent)) or shutil.which("pip-audit")
    if program is None:
        print("skipped: there is no pip-audit; `pip install pip-audit` somewhere on the path brings it")
        return 0
    return max(audit(program, file) for file in sorted(FOLDER.glob("*.txt")))


def audit(program: str, file: Path) -> int:
    """1 if a package of the list is vulnerable, else 0."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [program, *_OPTIONS, "--output", str(answer), "--requirement", str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=answer_time_max_s, check=False)
        except subprocess.TimeoutExpired:
            print(f"skipped: pip-audit did not answer within {answer_time_max_s} s; is there a network?")
            return 0
        try:
            found = json.loads(answer.read_text())["dependencies"]
        except (OSError, ValueError, KeyError):
            print(f"skipped: pip-audit could not ask: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
            return 0
    vulnerable = [package for package in found if package.get("vulns")]
    for package in vulnerable:
        ids = ", ".join(vulnerability["id"] for vulnerability in package["vulns"])
        print(f"{file.name}: {package['name']} {package['version']} is vulnerable: {ids}")
    if not vulnerable:
        print(f"{file.name}: no known vulnerability in {len(found)} packages")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
