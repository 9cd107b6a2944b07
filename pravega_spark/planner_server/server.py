"""Forks a planner with everything imported for each streaming query of one session.

A client starts it as ``python -m pravega_spark.planner_server.server SOCKET LOCK JVM START``. The head of this file
imports only what PySpark's own program imports, too: what else is loaded is laid aside in planners.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pravega_spark.planner_server.code_stamp import CodeStamp
    from pravega_spark.planner_server.shelf import Shelf

PLANNER_MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
PLANNER_ARGUMENTS: Final = ("-m", PLANNER_MODULE)
AHEAD: Final = (
    "pyspark_pravega",
    "pravega_spark.datasource",
    "pravega_spark.source.stream_reader",
    "grpc",
    "google.protobuf.internal.builder",
    "google.protobuf.symbol_database",
)
"""Modules that planners of this source import later. Generated messages are not among them: if a job brought others,
both would meet in protobuf's one registry."""
OWN: Final = frozenset({"pravega_common", "pravega_spark", "pravega_streams", "pyspark_pravega"})
"""Packages that PySpark's program does not import: this file did."""
import_niceness: Final = 5
"""The imports give way to the query that a session begins with, with a third of its weight (sched(7)): with that of
idle work, they took more than a minute on a busy machine, and its queries began without a server."""


class Imported(NamedTuple):
    shelf: Shelf
    code: CodeStamp


def import_ahead() -> Imported:
    """Import what planners need; what PySpark's program does not import by itself goes on the shelf.

    Run it in a thread of its own: only a thread can have a low priority that later processes do not inherit.
    """
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), import_niceness)
    began_ns = time.time_ns()
    importlib.import_module(PLANNER_MODULE)
    # A planner has that module as __main__ only.
    package, _, name = PLANNER_MODULE.rpartition(".")
    delattr(sys.modules[package], name)
    del sys.modules[PLANNER_MODULE]
    loaded = frozenset(name for name in sys.modules if name.partition(".")[0] not in OWN)
    variables = dict(os.environb)
    for module in AHEAD:
        importlib.import_module(module)

    from pravega_spark.planner_server import fork_loop, planner  # noqa: F401 - so that they go on the shelf
    from pravega_spark.planner_server.code_stamp import CodeStamp, path_now
    from pravega_spark.planner_server.shelf import Shelf

    if dict(os.environb) != variables:
        os.environb.clear()
        os.environb.update(variables)
    modules = dict(sys.modules)
    aside: dict[str, ModuleType] = {name: module for name, module in modules.items() if name not in loaded}
    return Imported(Shelf(aside, loaded), CodeStamp(modules, path_now(), began_ns))


def imported_in_thread() -> Imported | None:
    """``None`` where an import failed: there are no planners then, so no server either."""
    made: list[Imported] = []
    thread = threading.Thread(target=lambda: made.append(import_ahead()), name="imports")
    thread.start()
    thread.join()
    return made[0] if made else None


def main() -> bool:
    """Whether this process has become a planner, which is now to run; else the server has ended."""
    path, lock, jvm, started = sys.argv[1:]
    watched = os.pidfd_open(int(jvm))
    # First: what the server's own modules import besides is then laid aside with them.
    imported = imported_in_thread()
    if imported is None:
        return False

    from pravega_spark.planner_server.client import given_environment, require_own_folder, start_time
    from pravega_spark.planner_server.fork_loop import ForkLoop
    from pravega_spark.planner_server.planner import become_planner

    if start_time(int(jvm)).decode() != started:
        return False
    require_own_folder(os.path.dirname(os.fsencode(path)))
    environment = given_environment()
    connection = ForkLoop(os.fsencode(path), int(lock), watched, imported.code).run()
    if connection is None:
        return False
    become_planner(connection, environment, PLANNER_ARGUMENTS, imported.shelf.set_up)
    sys.argv[1:] = []
    sys.orig_argv[1:] = PLANNER_ARGUMENTS
    return True


if __name__ == "__main__" and main():
    runpy.run_module(PLANNER_MODULE, run_name="__main__", alter_sys=True)
