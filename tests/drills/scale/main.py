"""Implements ``scripts/drill scale``: a structured-streaming job over a stream that is scaled up and down meanwhile."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from pravega_spark.standalone.process import StandaloneProcess
from tests.drills.scale.audit import audit
from tests.drills.scale.job import Job
from tests.drills.scale.plan import Plan
from tests.drills.scale.report import Report, document_of, keep

events_min = 20_000
REPOSITORY = Path(__file__).parents[3]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill scale", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000, help="events to move (default 10,000,000)")
    parser.add_argument("--at-least-once", action="store_true", help="write with exactly_once=false")
    parser.add_argument("--tier2", choices=("dir", "minio"), default="dir", help="long-term storage")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    args = parser.parse_args(arguments)
    if args.events < events_min:
        parser.error(f"--events {args.events}: must be at least {events_min}")
    return args


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pravega-spark scale drill")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")  # A query that is stopped in a batch fills the screen; errors are raised too.
    return spark


def end_in_order(number: int, frame: object) -> None:
    """Ends the drill in order, and its processes with it."""
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, end_in_order)
    args = parse(arguments)
    plan = Plan.of(args.events)
    report = Report(plan)
    started_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="pravega-spark-scale-"))
    try:
        with StandaloneProcess(folder / "services", tier2=args.tier2) as services:
            report.say(f"services are ready, Tier 2 {args.tier2}")
            spark = session(folder)
            sink = {"exactly_once": "false"} if args.at_least_once else {}
            job = Job(spark, services.controller_uri, "drill", folder, plan, report.tell, **sink)
            outcome = job.run()
            spark.stop()
            report.say("counting what was read")
            found = audit(job.read_folder, plan)
    except BaseException:
        report.say(f"failed; logs are in {folder}")
        raise
    document = document_of(plan, outcome, found, time.monotonic() - started_s)
    report.table(document)
    if args.json is not None:
        keep(args.json, document)
    if not found.exact:
        report.say(f"what was read is in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
