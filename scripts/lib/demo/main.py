"""Runs the demo: write, kill the store, kill the driver, finish, read back, compare."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from demo.compare import Comparison, compare
from demo.display import DemoDisplay, Figures
from demo.driver import Driver
from demo.source_lines import SourceLines, write_input
from pravega_spark.standalone.process import StandaloneProcess

poll_s = 0.2
step_time_max_s = 600.0
kill_store_at = 0.25
kill_driver_at = 0.5


class Demo:
    """One run. Every step waits for its condition and gives up, with the logs, after ``step_time_max_s``."""

    def __init__(self, folder: Path, args: argparse.Namespace, display: DemoDisplay) -> None:
        self.folder = folder
        self.args = args
        self.display = display
        self.cluster = StandaloneProcess(folder / "cluster", tier2=args.tier2)
        self.source = SourceLines()
        self.written_before = 0
        self.write_seconds = 0.0
        self.write_lines = 0
        self.counted = 0

    def run(self) -> Comparison:
        say = self.display.say
        self.source = write_input(self.folder / "input", self.args.lines)
        say(f"input: {self.source.lines:,} lines of {len(self.source.files)} source files")
        self.cluster.start()
        say(f"standalone is ready: controller {self.cluster.ready()['controller']}, Tier 2 {self.args.tier2}")
        self.display.bars(self.source.lines)
        driver = Driver(self.folder, self.cluster.controller_uri, self.source.lines)
        try:
            self._write_with_crashes(driver)
        finally:
            driver.kill()
        return self._read_back()

    def _write_with_crashes(self, driver: Driver) -> None:
        say = self.display.say
        driver.start()
        self._until(driver, lambda: self._written(driver) >= kill_store_at * self.source.lines)
        pid = self.cluster.kill("segment-store-0")
        say(f"SIGKILL to the segment store (process {pid}); it recovers from Tier 1")
        self._until(driver, lambda: self._written(driver) >= kill_driver_at * self.source.lines)
        self._until(driver, lambda: bool(driver.status().get("in_batch")))
        self.written_before = self._written(driver)
        driver.kill()
        say(f"SIGKILL to the Spark driver in the middle of a batch, {self.written_before:,} lines in")
        driver.start()
        say("driver started again from its checkpoint")
        self._until(driver, lambda: driver.exit_status() is not None)
        if driver.exit_status() != 0:
            raise RuntimeError(f"the Spark driver failed:\n{driver.log_tail()}")
        status = driver.status()
        self.write_seconds = status["batch_seconds_this_run"]
        self.write_lines = status["written_this_run"]
        self.counted = status["counted"]
        say(f"all written; the counting query saw {self.counted:,} events")

    def _written(self, driver: Driver) -> int:
        return self.written_before + int(driver.status().get("written_this_run", 0))

    def _until(self, driver: Driver, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + step_time_max_s
        while not condition():
            if driver.exit_status() not in (None, 0):
                raise RuntimeError(f"the Spark driver failed:\n{driver.log_tail()}")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"no progress for {step_time_max_s:.0f} s:\n{driver.log_tail()}")
            self.display.update(min(self._written(driver), self.source.lines), int(driver.status().get("counted", 0)))
            time.sleep(poll_s)
        self.display.update(min(self._written(driver), self.source.lines), int(driver.status().get("counted", 0)))

    def _read_back(self) -> Comparison:
        self.display.say("reading the whole stream back and comparing")
        target = self.folder / "read-back"
        started_s = time.monotonic()
        command = [sys.executable, "-m", "demo.read_back", self.cluster.controller_uri, str(target)]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"reading back failed:\n{done.stderr[-3_000:]}")
        comparison = compare(target, self.source)
        comparison.seconds = time.monotonic() - started_s
        return comparison


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--lines", type=int, default=300_000, help="lines to stream (default 300,000)")
    parser.add_argument("--tier2", choices=("dir", "minio"), default="dir", help="long-term storage")
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pravega-spark-demo-"))
    with DemoDisplay() as display:
        demo = Demo(folder, args, display)
        try:
            comparison = demo.run()
        except BaseException:
            display.say(f"failed; logs are in {folder}")
            demo.cluster.stop()
            raise
    figures = Figures(
        demo.source.lines,
        demo.source.bytes,
        demo.write_lines,
        demo.write_seconds,
        comparison.seconds,
        demo.counted,
        args.tier2,
    )
    display.result(figures, comparison)
    if args.keep:
        display.say(f"left running: controller {demo.cluster.controller_uri}, data in {folder}; stop it with Ctrl-C")
        display.say(f"the window shows its stream: http://{demo.cluster.ready()['rest']}/")
        demo.cluster.wait()
    demo.cluster.stop()
    if comparison.holds:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if comparison.holds else 1


if __name__ == "__main__":
    sys.exit(main())
