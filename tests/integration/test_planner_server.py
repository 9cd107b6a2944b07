"""Starts planners of streaming queries with the launcher, and holds those of a server against new processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.eventually import eventually_blocking
from tests.support.spark_planners import NONE, SECRET, Planners, alive, planners_of_a_session
from tests.support.spark_sessions import make_programs

WAIT: Final = "import time\ntime.sleep(600)"
SEEN: Final = """
import gc, json, os, random, resource, signal, sys, threading
def status(*names):
    with open("/proc/self/status") as file:
        return [line for line in file if line.partition(":")[0] in names]
modules = sorted(sys.modules)
names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
print(json.dumps({
    "modules": modules, "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags),
    "executable": sys.executable, "prefix": sys.prefix, "main": sys.modules["__main__"].__spec__.name,
    "environment": dict(os.environ), "cwd": os.getcwd(), "nice": os.nice(0),
    "status": status("Umask", "SigIgn", "SigBlk", "SigCgt", "Uid", "Groups", "CapEff", "NoNewPrivs", "Cpus_allowed"),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in names},
    "streams": [os.readlink(f"/proc/self/fd/{n}").partition(":")[0] for n in range(3)],
    "buffering": [sys.stdout.line_buffering, sys.stdout.write_through, sys.stderr.encoding],
    "threads": threading.active_count(), "gc": [gc.isenabled(), gc.get_threshold()],
}))
"""
SERVED: Final = "import json, os\nprint(json.dumps([os.getpid(), os.getppid()]))"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def planners(programs: Path) -> Iterator[Planners]:
    with planners_of_a_session(programs) as made:
        yield made


def server_of(planners: Planners, variables: Mapping[str, str] = NONE, cwd: Path | None = None) -> int | None:
    """The server that a planner comes from; ``None`` for a new process."""
    _, parent = planners.result(SERVED, variables, cwd)
    return None if parent == os.getpid() else int(parent)


def test_a_served_planner_is_as_a_new_process(planners: Planners) -> None:
    """Environment, path, modules, streams, signals, limits: the variables that Spark gives anew are its own."""
    variables = {"A_VARIABLE": "with ümlaut = and\nlines"}
    new = planners.result(SEEN, {**variables, "PRAVEGA_PLANNER_SERVER": "off"})
    planners.with_server(variables)
    assert server_of(planners, variables) in planners.servers()
    served = planners.result(SEEN, variables)
    ports = [seen["environment"].pop("PYTHON_WORKER_FACTORY_PORT") for seen in (new, served)]
    assert ports[0] != ports[1]
    assert new["environment"].pop("PRAVEGA_PLANNER_SERVER") == "off"
    assert served["environment"]["A_VARIABLE"] == variables["A_VARIABLE"]
    assert set(served["modules"]) ^ set(new["modules"]) == set()
    assert served == new


def test_programs_that_a_planner_starts_have_its_variables(planners: Planners) -> None:
    program = "import json, subprocess\nprint(json.dumps(subprocess.check_output(['env', '-0']).decode().split('\\0')))"
    planners.with_server()
    found = []
    for setting in ("off", "on"):
        variables = {"PRAVEGA_PLANNER_SERVER": setting} if setting == "off" else {}
        started = planners.running(program, variables)
        assert (started.pid == started.process.pid) == (setting == "off")
        given = set(json.loads(started.ended()[1]))
        assert f"PYTHON_WORKER_FACTORY_PORT={started.port}" in given
        found.append(given - {f"PYTHON_WORKER_FACTORY_PORT={started.port}", "PRAVEGA_PLANNER_SERVER=off"})
    assert found[0] == found[1] and f"PYTHON_WORKER_FACTORY_SECRET={SECRET}" in found[1]


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_planner_s(planners: Planners, code: int) -> None:
    planners.with_server()
    planner = planners.running(f"import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos._exit({code})")
    assert planner.pid != planner.process.pid
    assert planner.ended() == (code, "out\n", "err\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_the_signal_that_ended_it_is_the_planner_s(planners: Planners, number: signal.Signals) -> None:
    planners.with_server()
    planner = planners.running(f"import os\nos.kill(os.getpid(), {number.value})")
    assert planner.pid != planner.process.pid
    assert planner.ended()[0] == -number


@pytest.mark.parametrize("stopped", [False, True], ids=["a server that runs", "a server that is stopped"])
def test_no_planner_outlives_its_client(planners: Planners, stopped: bool) -> None:
    """Spark kills the client: the kernel kills the planner, whatever the server does."""
    planners.with_server()
    planner = planners.running(WAIT)
    (server,) = planners.servers()
    assert alive([planner.pid]) and planner.pid != planner.process.pid
    if stopped:
        os.kill(server, signal.SIGSTOP)
    planner.process.kill()
    eventually_blocking(lambda: not alive([planner.pid]), "the end of the planner")


def test_a_planner_is_terminated_with_its_client(planners: Planners) -> None:
    planners.with_server()
    planner = planners.running(WAIT)
    planner.process.terminate()
    assert planner.ended()[0] == -signal.SIGTERM
    assert not alive([planner.pid])


def test_a_planner_gets_the_signals_of_its_client(planners: Planners) -> None:
    planners.with_server()
    # Not by a handler: one that is due right before a wait begins runs behind it, where 3.14 looks seldom.
    program = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
os._exit(9)
"""
    planner = planners.running(program)
    assert planner.process.stdout is not None and planner.process.stdout.readline() == b"ready\n"
    planner.process.send_signal(signal.SIGUSR1)
    assert planner.ended()[0] == 9


def test_a_planner_goes_on_without_its_server(planners: Planners) -> None:
    """It is killed with its client all the same; the next planner is a new process."""
    planners.with_server()
    planner = planners.running(WAIT)
    (server,) = planners.servers()
    os.kill(server, signal.SIGKILL)
    eventually_blocking(lambda: not alive([server]), "the end of the server")
    assert server_of(planners) is None
    assert alive([planner.pid])
    planner.process.kill()
    eventually_blocking(lambda: not alive([planner.pid]), "the end of the planner")


def test_planners_run_side_by_side(planners: Planners) -> None:
    planners.with_server()
    both = [planners.running(WAIT) for _ in range(2)]
    assert len({planner.pid for planner in both} | {planner.process.pid for planner in both}) == 4
    both[0].process.kill()
    eventually_blocking(lambda: not alive([both[0].pid]), "the end of one planner")
    assert alive([both[1].pid]) and both[1].process.poll() is None


def test_environments_never_meet(planners: Planners) -> None:
    """A variable more, another value, another folder: each has a server of its own, or none."""
    (planners.folder / "elsewhere").mkdir()
    kinds: list[tuple[dict[str, str], Path | None]] = [
        ({}, None),
        ({"CREDENTIAL": "one"}, None),
        ({"CREDENTIAL": "two"}, None),
        ({}, planners.folder / "elsewhere"),
    ]
    for variables, cwd in kinds:
        planners.with_server(variables, cwd)
    servers = [server_of(planners, variables, cwd) for variables, cwd in kinds]
    assert len(set(servers)) == len(kinds) and None not in servers
    for variables, cwd in kinds:
        seen = planners.result(SEEN, variables, cwd)
        assert seen["environment"].get("CREDENTIAL") == variables.get("CREDENTIAL")
        assert seen["cwd"] == str(cwd or planners.work)
    # More than a session may have.
    planners.running("", {"CREDENTIAL": "three"}).ended()
    assert len(planners.servers()) == len(kinds)


def test_a_mask_of_new_files_is_kept(planners: Planners) -> None:
    planners.with_server()
    before = os.umask(0o027)
    try:
        assert server_of(planners) is None
        assert "Umask:\t0027\n" in planners.result(SEEN)["status"]
    finally:
        os.umask(before)
    assert server_of(planners) is not None


def test_other_sessions_have_other_servers(planners: Planners) -> None:
    """The same user, environment and folder, started by another process; its server ends with it."""
    planners.with_server()
    (own,) = planners.servers()
    session = subprocess.Popen(
        [sys.executable, "-c", ANOTHER_SESSION, planners.launcher, str(planners.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=os.getcwd(),
    )
    assert session.stdin is not None and session.stdout is not None
    try:
        found = int(session.stdout.readline())
        assert found not in (0, own, session.pid)
        waiting = int(session.stdout.readline())
        assert alive([found, waiting])
    finally:
        session.kill()
        session.communicate()
    eventually_blocking(lambda: not alive([found]), "the end of the other session's server", 20.0)
    eventually_blocking(lambda: not alive([waiting]), "the end of its planner", 20.0)
    assert planners.servers() == [own] and len(planners.sockets()) == 1
    assert server_of(planners) == own


ANOTHER_SESSION: Final = """
import os, sys
from pathlib import Path
from tests.support.spark_planners import Planners, named
with named("java"):
    planners = Planners(Path(sys.argv[1]), Path(sys.argv[2]))
    planners.with_server()
    _, parent = planners.result("import json, os; print(json.dumps([os.getpid(), os.getppid()]))")
    print(0 if parent == os.getpid() else parent, flush=True)
    waiting = planners.running("import time; time.sleep(600)")
    print(waiting.pid, flush=True)
    sys.stdin.read()
"""


def test_changed_code_ends_a_server(planners: Planners) -> None:
    """Python would import what came into a folder of its path; the next server has it."""
    planners.with_server()
    old = server_of(planners)
    (planners.work / "notes.txt").write_text("not code\n")
    (planners.work / "job.py").write_text("")
    assert server_of(planners) == old
    (planners.work / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = 1\n")
    program = "import builtins, json, os\nprint(json.dumps([builtins.customized, os.getppid()]))"
    assert planners.result(program) == [1, os.getpid()]
    eventually_blocking(lambda: len(planners.sockets()) == 1 and server_of(planners) not in (None, old), "a new server")
    assert planners.result(program)[0] == 1


def test_files_of_a_job_hide_what_was_imported_ahead(planners: Planners) -> None:
    """Spark puts them on the path when the planner runs."""
    planners.with_server()
    package = planners.files / "pravega_spark"
    package.mkdir()
    (package / "__init__.py").write_text("MARK = 'of the job'\n")
    (planners.files / "difflib.py").write_text("MARK = 'of the job'\n")
    program = (
        "import json, os\nimport pravega_spark, difflib, pravega_common, grpc\n"
        "print(json.dumps([pravega_spark.MARK, difflib.MARK, pravega_common.__name__, os.getppid()]))"
    )
    *found, parent = planners.result(program)
    assert found == ["of the job", "of the job", "pravega_common"]
    assert parent in planners.servers()


def test_what_was_imported_ahead_is_given_out(planners: Planners) -> None:
    planners.with_server()
    program = """
import json, os, sys
def loaded():
    return [name for name in ("pravega_spark.datasource", "grpc", "numpy.random", "pandas") if name in sys.modules]
before = loaded()
import pravega_spark
print(json.dumps([before, loaded(), [name for name in sys.modules if name.startswith("pravega") and "_pb2" in name],
    type(pravega_spark.__spec__.loader).__name__, os.getppid()]))
"""
    before, after, generated, loader, parent = planners.result(program)
    assert (before, after) == ([], ["pravega_spark.datasource", "grpc"])
    assert generated == [], "two versions of a message would meet in protobuf's registry"
    assert loader == "SourceFileLoader" and parent in planners.servers()


@pytest.mark.parametrize("setting", ["off", "0", ""])
def test_it_can_be_switched_off(planners: Planners, setting: str) -> None:
    planners.variables["PRAVEGA_PLANNER_SERVER"] = setting
    assert server_of(planners) is None
    assert not planners.own_folder.exists()


def test_a_folder_that_others_can_enter_is_not_used(planners: Planners) -> None:
    planners.own_folder.mkdir(mode=0o755)
    assert server_of(planners) is None
    assert list(planners.own_folder.iterdir()) == []


def test_a_server_that_hangs_delays_a_planner_and_no_more(planners: Planners) -> None:
    planners.with_server()
    (server,) = planners.servers()
    os.kill(server, signal.SIGSTOP)
    assert server_of(planners) is None
    os.kill(server, signal.SIGCONT)
    eventually_blocking(lambda: server_of(planners) == server, "planners of the server")


def test_a_process_between_spark_and_the_launcher_gets_no_server(planners: Planners) -> None:
    Path("/proc/self/comm").write_text("sh")
    assert server_of(planners) is None
    assert not planners.own_folder.exists()


def test_a_planner_has_random_numbers_of_its_own(planners: Planners) -> None:
    planners.with_server()
    program = "import json, random, uuid\nprint(json.dumps([random.random(), str(uuid.uuid4())]))"
    found: list[Any] = [planners.result(program) for _ in range(2)]
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1]


def test_a_server_that_cannot_start_is_not_tried_again_at_once(planners: Planners) -> None:
    (planners.work / "pravega_spark").mkdir()
    (planners.work / "pravega_spark" / "__init__.py").write_text("raise ImportError('broken')\n")
    assert server_of(planners) is None
    (lock,) = planners.own_folder.glob("*.lock")
    eventually_blocking(lambda: not planners.servers(), "the end of the server")
    tried = lock.stat().st_mtime_ns
    assert server_of(planners) is None
    assert lock.stat().st_mtime_ns == tried and not planners.servers()


def test_a_client_that_cannot_run_starts_the_planner(planners: Planners, programs: Path, tmp_path: Path) -> None:
    """It would be so on a Python without the modules that it takes from the interpreter."""
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    planners.launcher = environment / "bin" / planners.launcher.name
    shutil.copy(programs / planners.launcher.name, planners.launcher)
    planners.launcher.with_name("python").symlink_to(programs / "python")
    client = environment / "lib" / "python3.x" / "site-packages" / "pravega_spark" / "planner_server" / "client.py"
    client.parent.mkdir(parents=True)
    client.write_text("raise ImportError('no such module')\n")
    assert server_of(planners, {"PYTHONPATH": sysconfig.get_path("purelib")}) is None
    assert not planners.own_folder.exists()
