"""Samples of a profile are parsed and grouped by what the CPU did."""

from __future__ import annotations

import pytest

from tests.bench.functions import Sample, group_of, samples_of, seconds_by_group

PROFILE = """\
C2 CompilerThre 31117
\t          152a30 memmove (/usr/lib/libc.so.6)
\t            3033 [unknown] (/usr/lib/jvm/libjvm.so)

python3 4242
\tffffffff815fd315 clear_page_erms ([kernel.kallsyms])
\tffffffff821f2786 exc_page_fault ([kernel.kallsyms])
\tffffffff82100001 unix_stream_recvmsg ([kernel.kallsyms])
\t           b0ab6 recv (/usr/lib/libc.so.6)

python3 4242
\t    7f0011223344 int Frob<A>::run(long) const (/usr/lib/libarrow.so.2000 (deleted))
"""


def test_a_profile_is_parsed_into_threads_and_frames() -> None:
    compiler, fault, arrow = samples_of(PROFILE.splitlines())

    assert (compiler.thread, compiler.pid) == ("C2 CompilerThre", 31117)
    assert compiler.frames == (("memmove", "/usr/lib/libc.so.6"), ("[unknown]", "/usr/lib/jvm/libjvm.so"))
    assert [name for name, _ in fault.frames] == ["clear_page_erms", "exc_page_fault", "unix_stream_recvmsg", "recv"]
    assert arrow.frames == (("int Frob<A>::run(long) const", "/usr/lib/libarrow.so.2000 (deleted)"),)


@pytest.mark.parametrize(
    ("thread", "frames", "group"),
    [
        ("C2 CompilerThre", [("memmove", "/usr/lib/libc.so.6")], "compiling"),
        ("G1 Conc#0", [("mark", "/usr/lib/jvm/libjvm.so")], "garbage collection"),
        ("python3", [("clear_page", "[kernel.kallsyms]"), ("exc_page_fault", "[kernel.kallsyms]")], "fresh pages"),
        (
            "python3",
            [("copy_to_user", "[kernel.kallsyms]"), ("unix_stream_recvmsg", "[kernel.kallsyms]")],
            "receiving",
        ),
        ("python3", [("copy", "[kernel.kallsyms]"), ("sock_write_iter", "[kernel.kallsyms]")], "sending"),
        ("redis-server", [("copy", "[kernel.kallsyms]"), ("vfs_write", "[kernel.kallsyms]")], "writing files"),
        ("python3", [("ext4_alloc", "[ext4]"), ("vfs_fsync_range", "[kernel.kallsyms]")], "syncing files"),
        ("python3", [("getpid", "[kernel.kallsyms]")], "kernel, the rest"),
        ("python3", [("__memmove_avx_unaligned_erms", "/usr/lib/libc.so.6")], "copies"),
        ("python3", [("_PyEval_EvalFrameDefault", "/usr/bin/python3.11")], "interpreter"),
        ("python3", [("crc32c_extend", "/x/crc32c.so")], "checksums"),
        ("redis-server", [("processCommand", "/x/redis-server")], "Redis"),
        ("Executor task l", [("org.apache.spark.A::b", "/tmp/perf-77.map")], "Spark's compiled code"),
        ("Executor task l", [("StubRoutines (2)", "/tmp/perf-77.map")], "copies"),
        ("Executor task l", [("[unknown]", "[unknown]")], "other"),
    ],
)
def test_the_group_is_what_the_innermost_function_does(thread: str, frames: list[tuple[str, str]], group: str) -> None:
    assert group_of(Sample(thread, 1, tuple(frames))) == group


def test_seconds_are_those_of_known_processes_by_part_and_group() -> None:
    samples = samples_of(PROFILE.splitlines())

    found = seconds_by_group(samples, {4242: "python-tasks", 1: "redis"}, rate_hz=10)

    assert found == {"python-tasks": {"fresh pages": 0.1, "Arrow": 0.1}}
