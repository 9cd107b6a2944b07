"""What cannot be printed is one sentence and exit status 1, as every other error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pravega_common.version import __version__

FULL = Path("/dev/full")
"""Every write to it fails as on a full disk."""


@pytest.mark.skipif(not FULL.exists(), reason="a device of Linux")
@pytest.mark.parametrize("count", [1, 100_000], ids=["at the end", "in the middle"])
def test_a_full_disk_is_one_sentence(count: int) -> None:
    with FULL.open("w") as output:
        done = _run(count, output.fileno())
    assert (done.returncode, done.stderr) == (1, "pravega-spark: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("count", [1, 100_000], ids=["at the end", "in the middle"])
def test_nothing_is_said_where_nobody_reads_the_pipe(count: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _run(count, writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_command_needs_no_standard_output() -> None:
    done = _run(1, None)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_before_lead_nowhere(closed: str, tmp_path: Path) -> None:
    """No connection gets the number of one, and nothing of a command meets None."""
    told = tmp_path / "told"
    lines = (
        "import pathlib, socket",
        "def show():",
        "    with socket.socket() as made:",
        "        number = made.fileno()",
        "    print(sys.stdin.read(), sys.stdout.isatty(), file=sys.stderr, flush=True)",
        f"    pathlib.Path({str(told)!r}).write_text(str(number > 2))",
        "made.command()(show)",
    )
    words = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", _code(*lines)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")
    assert told.read_text() == "True"


def test_an_interrupt_while_modules_are_imported_is_no_traceback() -> None:
    interrupt = "def interrupt(arguments): raise KeyboardInterrupt", "application.make_application = interrupt"
    words = [sys.executable, "-c", _code(*interrupt)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("module", ["pravega_spark", "pravega_spark.cli"])
def test_a_module_runs_the_command_line(module: str) -> None:
    words = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pravega-spark {__version__}\n", "")


def _run(count: int, output: int | None) -> subprocess.CompletedProcess[str]:
    """Runs a command that prints this many lines; a few stay in a buffer until its end. No output: it is closed."""
    code = _code(f"made.command()(lambda: print('line\\n' * {count}))")
    words = [sys.executable, "-c", code]
    if output is None:
        words = ["sh", "-c", 'exec "$0" "$@" >&-', *words]
    return subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True, check=False, timeout=120)


def _code(*lines: str) -> str:
    """The program of a command line, with lines that give it its command."""
    begin = "import sys, typer", "from pravega_spark import application, cli", "made = typer.Typer()"
    return "\n".join(
        [*begin, "application.make_application = lambda arguments: made", *lines, "sys.argv[1:] = []", "cli.main()"]
    )
