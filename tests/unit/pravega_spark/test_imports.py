"""Executors need few packages, and Spark's discovery imports none of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent import futures
from typing import Final

import grpc
import pytest
from typer.testing import CliRunner

from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from pravega_common.version import __version__
from pravega_spark.application import MODULES, make_application

SERVICES_ONLY = (
    "aiohttp",
    "crc32c",
    "minio",
    "pandas",
    "prometheus_client",
    "pydantic",
    "redis",
    "rich",
    "sortedcontainers",
    "structlog",
    "tenacity",
    "typer",
    "uvloop",
)
COMMAND_LINE = ("pandas", "pydantic", "rich", "typer")
"""What of these the command line has, too: Typer brings pydantic along."""


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "pravega_spark.datasource",
        "pravega_spark.gateway.service",
        "pravega_streams.event.block_writer",
        "pravega_streams.batch.range_reader",
    ],
)
def test_executors_need_no_services(module: str) -> None:
    blocked = "\n".join(f"sys.modules['{name}'] = None" for name in SERVICES_ONLY if name != "pandas")
    loaded_by(f"import sys\n{blocked}\nimport {module}")


def test_discovery_imports_pyspark_only() -> None:
    before, after = loaded_by("import pyspark.sql.datasource"), loaded_by("import pyspark_pravega")
    assert after - before == {"pyspark_pravega"}


def test_pipes_need_no_spark() -> None:
    """``event write`` and ``event read``: PySpark need not be installed, and takes a second to import where it is."""
    blocked = "import sys\nsys.modules['pyspark'] = None\nsys.modules['py4j'] = None"
    loaded_by(f"{blocked}\nimport pravega_spark.commands.event, pravega_spark.sink.direct_writer")


def test_wire_level_needs_no_spark() -> None:
    assert "pyspark" not in loaded_by("import pravega_streams.event.block_writer, pravega_streams.batch.range_reader")


@pytest.mark.parametrize("arguments", [["stream", "list"], ["stream", "create", "s/t"], ["cluster"]])
def test_a_command_that_asks_one_thing_imports_little(arguments: list[str]) -> None:
    """Arrow, NumPy and Spark take longer to import than the question to the controller takes."""
    loaded = loaded_by(f"from pravega_spark.application import make_application; make_application({arguments})")
    assert not loaded & {"numpy", "pandas", "pyarrow", "pyspark", "pydantic", "redis", "aiohttp"}


ASKS = """
import runpy, sys
sys.argv[1:] = {arguments}
try:
    runpy.run_module("pravega_spark", run_name="__main__")
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded:", *sys.modules)
"""
"""Runs a whole command, unlike ``loaded_by``, which only makes it."""
HEAVY: Final = {"rich", "numpy", "pyarrow", "pandas", "pyspark", "redis", "aiohttp", "structlog", "cryptography"}
"""What takes at least 20 ms of CPU to import, and no question to a cluster needs."""
GENERATED_STUBS: Final = {f"pravega_common.proto.{name}_pb2_grpc" for name in ("controller", "transaction_sets")}


class OneStream(ControllerServiceServicer):
    """Has one stream, s/t."""

    def listScopes(self, request: pb.ScopesRequest, context: grpc.ServicerContext) -> pb.ScopesResponse:
        token = request.continuationToken.token
        return pb.ScopesResponse(scopes=[] if token else ["s"], continuationToken=pb.ContinuationToken(token="end"))

    def listStreamsInScope(
        self, request: pb.StreamsInScopeRequest, context: grpc.ServicerContext
    ) -> pb.StreamsInScopeResponse:
        streams = [] if request.continuationToken.token else [pb.StreamInfo(scope="s", stream="t")]
        return pb.StreamsInScopeResponse(streams=streams, continuationToken=pb.ContinuationToken(token="end"))


def modules_of_a_run(arguments: list[str], **environment: str) -> set[str]:
    """All modules that a command's process has at its end; its output goes to a pipe."""
    code = ASKS.replace("{arguments}", repr(arguments))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(done.stdout.rpartition("loaded:")[2].split())


def test_the_version_takes_no_library() -> None:
    loaded = modules_of_a_run(["--version"])
    assert not loaded & {*HEAVY, *GENERATED_STUBS, "typer", "pydantic", "grpc", "google.protobuf", "json", "asyncio"}


def test_a_question_to_the_controller_takes_grpc_and_typer_alone() -> None:
    """A controller answers: what a command imports only once it calls, and prints, is seen too."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    add_ControllerServiceServicer_to_server(OneStream(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        loaded = modules_of_a_run(["stream", "list"], PRAVEGA_CONTROLLER=f"tcp://127.0.0.1:{port}")
    finally:
        server.stop(None).wait()
    assert "grpc" in loaded
    assert not loaded & {*HEAVY, *GENERATED_STUBS, "pravega_common.wire.commands", "pravega_spark.read_cut"}


def test_the_command_line_needs_no_services() -> None:
    """With the extra ``cli`` alone all commands are there; the one that runs services says what it lacks."""
    blocked = "\n".join(f"sys.modules['{name}'] = None" for name in (*SERVICES_ONLY, "cryptography", "jwt"))
    blocked = "\n".join(line for line in blocked.splitlines() if not any(f"'{name}'" in line for name in COMMAND_LINE))
    loaded_by(f"import sys\n{blocked}\nfrom pravega_spark.application import make_application; make_application()")
    code = f"import sys\n{blocked}\nsys.argv[1:] = ['standalone']\nfrom pravega_spark.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert re.fullmatch(
        r"pravega-spark: this command needs \w+; install it with: pip install 'pravega-spark\[services\]'\n",
        done.stderr,
    ), done.stderr


def test_the_application_has_every_command_it_lists() -> None:
    for name, module in MODULES.items():
        for arguments in ([name], []):
            made = make_application(arguments)
            known = {item.name or item.callback.__name__ for item in made.registered_commands if item.callback}
            known |= {item.name for item in made.registered_groups if item.name}
            assert name in known, f"{module} does not add {name}"


def test_version_and_help_in_their_short_forms() -> None:
    result = CliRunner().invoke(make_application(["--version"]), ["--version"])
    assert (result.exit_code, result.output) == (0, f"pravega-spark {__version__}\n")
    for arguments in (["-h"], ["stream", "-h"], ["stream", "create", "-h"]):
        result = CliRunner().invoke(make_application(arguments), arguments)
        assert result.exit_code == 0 and "Usage" in result.output


def test_shells_complete_commands() -> None:
    typed = {"_PRAVEGA_SPARK_COMPLETE": "complete_bash", "COMP_WORDS": "pravega-spark stream tr", "COMP_CWORD": "2"}
    result = CliRunner().invoke(make_application(), [], env=typed, prog_name="pravega-spark")
    assert result.output.split() == ["truncate", "transaction"], result.output
