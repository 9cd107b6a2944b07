"""Runs a real Prometheus with the shipped configuration, rules and targets, for tests that ask it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pravega_spark.standalone.binaries import cache_bin_folder
from tests.support.alert_rules import RULES
from tests.support.eventually import eventually_blocking
from tests.support.servers import free_port

start_time_max_s: Final = 60.0
answer_time_max_s: Final = 10.0
stop_time_max_s: Final = 20.0
CONFIGURATION: Final = RULES.parent / "prometheus.yml"


def program(name: str) -> str | None:
    """Its path: ``scripts/setup --prometheus`` puts both programs into the cache."""
    return shutil.which(name) or shutil.which(str(cache_bin_folder() / name))


class Prometheus:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; ``ValueError`` with its reason for an expression that cannot be read."""
        url = f"{self._base}/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=answer_time_max_s) as answer:
                body = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(error.read().decode()) from None
        if body["status"] != "success":
            raise ValueError(str(body))
        return body["data"]

    def series(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def targets_up(self) -> int:
        return sum(target["health"] == "up" for target in self.ask("targets")["activeTargets"])

    def is_ready(self) -> bool:
        try:
            self.ask("targets")
        except (OSError, ValueError):
            return False
        return True


@contextmanager
def running_prometheus(
    folder: Path, controllers: Sequence[str], stores: Sequence[str], period_s: int
) -> Iterator[Prometheus]:
    """The shipped files with these targets, asked every ``period_s``."""
    text = CONFIGURATION.read_text().replace("15s", f"{period_s}s")
    for shipped, addresses in (("127.0.0.1:10080", controllers), ("127.0.0.1:12445", stores)):
        text = text.replace(f"'{shipped}'", ", ".join(f"'{address}'" for address in addresses))
    (folder / CONFIGURATION.name).write_text(text)
    shutil.copy(RULES, folder)
    port = free_port()
    command = [str(program("prometheus")), f"--config.file={folder / CONFIGURATION.name}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            made = Prometheus(port)
            eventually_blocking(made.is_ready, "a Prometheus that answers", start_time_max_s)
            yield made
        finally:
            process.terminate()
            process.wait(stop_time_max_s)
