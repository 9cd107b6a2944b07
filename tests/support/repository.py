"""Names the folders of this repository, so that no test counts its own depth."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT / "tests" / "data"
TRANSCRIPTS: Final = DATA / "transcripts"
