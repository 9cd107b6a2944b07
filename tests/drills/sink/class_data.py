"""Archives the classes of a Spark driver's JVM in a file: a JVM that shares it starts in half the time."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.drills.sink.copy import Copy
from tests.drills.sink.driver import Driver
from tests.drills.sink.processes import kill_session, processes_of_session
from tests.support.spark_environment import JVM_OPTIONS

end_time_max_s = 60.0
poll_s = 0.1


def is_given() -> bool:
    """Whether all JVMs of this process share an archive already, as those of ``scripts/test`` do."""
    return "-XX:SharedArchiveFile=" in os.environ.get(JVM_OPTIONS, "")


def shared_class_data(folder: Path, master: str, *copies: Copy) -> Path:
    """A driver does ``copies`` once and writes the classes that it needed when it ends."""
    file = folder / "classes.jsa"
    driver = Driver(folder / "class-data", master, jvm=f"-XX:ArchiveClassesAtExit={file}")
    try:
        driver.run(*copies)
        driver.end()
        deadline_s = time.monotonic() + end_time_max_s
        while processes_of_session(driver.pid) and time.monotonic() < deadline_s:
            time.sleep(poll_s)
    finally:
        kill_session(driver.pid)
    return file
