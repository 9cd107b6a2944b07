"""Executors need few packages, and Spark's discovery imports none of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from typing import Any, Final

import grpc
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from pravega_common.version import __version__
from pravega_spark.application import MODULES, make_application
from tests.support.loaded_packages import loaded_by

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
"""What of these the command line has, too: Typer brings pydantic along, for values that are not plain."""


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


def test_the_parent_of_a_standalone_loads_nothing_that_only_its_children_need() -> None:
    assert not loaded_by("import pravega_spark.standalone.standalone") & {"aiohttp", "grpc", "numpy", "pydantic"}


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
HEAVY: Final = {
    *("aiohttp", "cryptography", "importlib.metadata", "jsonschema", "numpy", "pandas", "pyarrow", "pydantic"),
    *("pydantic_core", "pyspark", "redis", "rich", "structlog"),
}
"""What takes at least 10 ms of CPU to import, and no question to a cluster needs."""
OTHER_COMMANDS: Final = {
    f"pravega_spark.commands.{name}"
    for name in ("event", "services", "sink", "stream_info", "stream_retention", "transaction")
}
OTHER_SERVICES: Final = {
    *("pravega_common.commit_forms", "pravega_common.set_forms", "pravega_common.model.transaction_sets"),
    *(f"pravega_common.proto.{name}_pb2" for name in ("cluster_health", "commit_operations", "transaction_sets")),
}
NOT_FOR_A_QUESTION: Final = {
    *("pravega_common.wire.commands", "pravega_spark.read_cut", "pravega_spark.source.checkpoint"),
    *("pravega_spark.standalone.options"),
}
GENERATED_STUBS: Final = {f"pravega_common.proto.{name}_pb2_grpc" for name in ("controller", "transaction_sets")}


class OneStream(ControllerServiceServicer):
    """Has one stream, s/t."""

    def listScopes(self, request: pb.ScopesRequest, context: grpc.ServicerContext) -> pb.ScopesResponse:
        token = request.continuationToken.token
        return pb.ScopesResponse(scopes=[] if token else ["s"], continuationToken=pb.ContinuationToken(token="end"))

    def createScope(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.CreateScopeStatus:
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS)

    def createStream(self, request: pb.StreamConfig, context: grpc.ServicerContext) -> pb.CreateStreamStatus:
        return pb.CreateStreamStatus(status=pb.CreateStreamStatus.SUCCESS)

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


@pytest.fixture
def controller() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    add_ControllerServiceServicer_to_server(OneStream(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"tcp://127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize(
    "arguments",
    [
        ["stream", "list"],
        ["stream", "list", "s", "--json"],
        ["scope", "list"],
        ["stream", "create", "s/t", "--segments", "2", "--tag", "a"],
    ],
)
def test_a_question_to_the_controller_takes_grpc_and_typer_alone(arguments: list[str], controller: str) -> None:
    """A controller answers: what a command imports only once it calls, and prints, is seen too."""
    loaded = modules_of_a_run(arguments, PRAVEGA_CONTROLLER=controller)
    assert {"grpc", "typer", "pravega_common.proto.controller_pb2"} <= loaded
    needless = {*HEAVY, *GENERATED_STUBS, *OTHER_COMMANDS, *OTHER_SERVICES, *NOT_FOR_A_QUESTION}
    assert loaded & needless == set()


@pytest.mark.parametrize("words", [["files"], ["stream", "create", "no-scope"]])
def test_the_collector_leaves_out_what_was_imported(words: list[str]) -> None:
    """But what a command makes is collected, also behind one that failed."""
    code = (
        f"import gc, sys\nsys.argv[1:] = {words}\nfrom pravega_spark.cli import main\ntry:\n    main()\n"
        "except SystemExit:\n    print('end:', gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "end: True True"


def test_a_command_has_no_others_beside_it() -> None:
    """Typer looks at the signatures of all commands that it is given."""
    for arguments in (["stream", "list"], ["stream", "transaction", "list", "s/t"], ["sink", "show", "--json"]):
        command: Any = get_command(make_application(arguments))
        for word in arguments[:2]:
            assert list(command.commands) == [word]
            command = command.commands[word]
    whole: Any = get_command(make_application(["stream", "--help"]))
    assert {"create", "list", "info", "cut", "transaction"} <= set(whole.commands["stream"].commands)


@pytest.mark.parametrize("words", [["stream"], ["stream", "lst"], ["-h", "stream"], ["user", "ad"], []])
def test_a_name_that_no_command_has_finds_all_of_its_group(words: list[str]) -> None:
    made: Any = get_command(make_application(words))
    group = made.commands[words[0]] if words and words[0] in made.commands else made
    assert len(group.commands) > 2


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
        for arguments in (name.split(), name.split()[:1], []):
            command: Any = get_command(make_application(arguments))
            for word in name.split():
                assert word in command.commands, f"{module} does not add {name}"
                command = command.commands[word]


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
