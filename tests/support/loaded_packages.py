"""Lists the packages that a statement loads in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())
