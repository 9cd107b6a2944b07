"""Checks the tests' own view of processes."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.support.eventually import eventually_blocking
from tests.support.processes import descendants, kill_tree, parent_of, send, state_of

GRANDCHILD = "import time; time.sleep(60)"
CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}])
print(child.pid, flush=True)
child.wait()
"""


def test_a_process_is_killed_with_all_below_it() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert descendants(child.pid) == [grandchild]
        assert parent_of(grandchild) == child.pid
        kill_tree(child.pid)
        assert child.wait(10) == -signal.SIGKILL
    eventually_blocking(lambda: state_of(grandchild) in ("", "Z", "X"), "the grandchild's end")
    send(child.pid, signal.SIGKILL)
