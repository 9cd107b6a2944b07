"""Tests that children whose descriptors are closed live beside gRPC."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pravega_common.runtime.grpc_forks import VARIABLE

# What Popen does between fork and exec where it has a preexec_fn, with time for the threads of the child.
_PROGRAM = """
import os, time
from concurrent.futures import ThreadPoolExecutor
{first}
import grpc
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{{port}}")
grpc.channel_ready_future(channel).result(10)
child = os.fork()
if child == 0:
    os.closerange(3, 1024)
    time.sleep(0.5)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
os._exit(0)
"""
_KEPT_OUT = "from pravega_common.runtime.grpc_forks import keep_grpc_out_of_forks; keep_grpc_out_of_forks()"


def ended(first: str, **environment: str) -> tuple[int, str]:
    """The exit status of the child, and the variable there."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(first=first)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    status, value = done.stdout.split()
    return int(status), value


def test_a_child_lives_until_it_runs_its_program() -> None:
    assert ended(_KEPT_OUT) == (7, "0")


def test_what_the_environment_says_stays() -> None:
    assert ended(_KEPT_OUT, **{VARIABLE: "1"})[1] == "1"


@pytest.mark.parametrize("module", ["pravega_spark.cli", "pravega_spark.backfill.main"])
def test_programs_that_start_others_keep_it_out(module: str) -> None:
    first = (
        f"import sys; from {module} import main\n"
        "sys.argv[1:] = ['stream', '--help']\n"
        "import contextlib, io\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()"
    )
    assert ended(first) == (7, "0")
