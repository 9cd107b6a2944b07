"""Prints the last lines of ``scripts/test``: one row a suite, then the total.

usage: summarise_tests.py FOLDER_OF_JUNIT_XML [FAILED_SUITE ...]; the exit status says whether all passed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from rich.console import Console
from rich.table import Table


def counts_of(report: Path) -> tuple[int, int, int, float]:
    """Returns passed, failed, skipped, seconds."""
    suite = next(iter(ElementTree.parse(report).getroot()))
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return total - failed - skipped, failed, skipped, float(suite.get("time", 0))


def main(folder: str, *failed_suites: str) -> int:
    totals = [0, 0, 0]
    table = Table("suite", box=None, pad_edge=False, padding=(0, 1))
    for name in ("passed", "failed", "skipped", "seconds"):
        table.add_column(name, justify="right")
    for report in sorted(Path(folder).glob("*.xml")):
        passed, failed, skipped, seconds = counts_of(report)
        table.add_row(report.stem, str(passed), str(failed), str(skipped), f"{seconds:.1f}")
        totals = [totals[0] + passed, totals[1] + failed, totals[2] + skipped]
    console = Console(highlight=False)
    console.print()
    console.print(table)
    if failed_suites:
        print(f"failed suites: {', '.join(failed_suites)}")
        # A suite that broke before it could count its tests is a failure too.
        totals[1] = max(totals[1], len(failed_suites))
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
