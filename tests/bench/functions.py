"""Groups samples of a profile by what the CPU did: copying, checksums, pages, sockets, interpreters, compiled code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sample:
    """Where a thread was: its frames, innermost first, each with the file that has it."""

    thread: str
    pid: int
    frames: tuple[tuple[str, str], ...]


KERNEL: Final = (
    ("fresh pages", "exc_page_fault|handle_mm_fault|clear_page|do_anonymous_page"),
    ("pages given back", "munmap|madvise|exit_mmap|zap_p|tlb_finish"),
    ("receiving", "recvmsg|recvfrom|stream_read|sock_read|do_epoll_wait"),
    ("sending", "sendmsg|sendto|sock_write"),
    ("syncing files", "fsync|fdatasync|writeback|wb_workfn"),
    ("writing files", "vfs_write|vfs_writev|do_iter_write|fallocate"),
    ("reading files", "vfs_read|filemap_read|page_cache_ra"),
    ("waking and waiting", "schedule|futex|poll|select|idle|nanosleep"),
)
"""Tried in this order, over all frames of the kernel: a page that a receive touches first counts as fresh."""
THREADS: Final = (
    ("compiling", r"C[12] CompilerThr"),
    ("garbage collection", r"GC Thread|G1 |VM Thread|VM Periodic"),
)
USER: Final = (
    ("copies", r"mem(move|cpy)|arraycopy|StubRoutines|copy_user", ""),
    ("checksums", r"crc32c?|adler", r"crc32c|zlib|libz\."),
    ("Arrow", "", r"libarrow|pyarrow|lib\.cpython|_arrow"),
    ("NumPy", "", r"numpy|_multiarray"),
    ("allocating", r"malloc|calloc|cfree|_int_free|je_|zmalloc|zfree", "jemalloc|mimalloc"),
    ("interpreter", r"^_?Py|_PyEval|gc_collect|dict|unicode|^_Py", r"python3|libpython|\.cpython-"),
    ("Redis", "", "redis-server"),
    ("Spark's compiled code", r"^[\[L]?(org|java|scala|jdk|sun|io|com)[./]|^\[?L?(org|java|scala)", r"perf-\d+\.map"),
    ("JVM", "", r"libjvm|libjava|libnio|libzip|libnet"),
)
"""Names of functions, and of files, of the innermost frame."""
OTHER: Final = "other"
_HEAD: Final = re.compile(r"^(?P<thread>.*?)\s+(?P<pid>\d+)(?:/\d+)?\s*$")
_FRAME: Final = re.compile(r"^\s+[0-9a-f]+ (?P<name>.*) \((?P<file>[^()]*(?:\(deleted\))?)\)$")
_OF_KERNEL: Final = re.compile(r"^\[(?!unknown|vdso|heap|stack|anon)")


def samples_of(text: Iterable[str]) -> Iterator[Sample]:
    """Parses ``perf script -F comm,pid,ip,sym,dso``: a line for the thread, one for each frame, an empty one."""
    thread, pid = "", 0
    frames: list[tuple[str, str]] = []
    for line in text:
        if found := _FRAME.match(line.rstrip("\n")):
            frames.append((found["name"], found["file"]))
        elif head := _HEAD.match(line):
            thread, pid = head["thread"], int(head["pid"])
        elif not line.strip() and frames:
            yield Sample(thread, pid, tuple(frames))
            frames = []
    if frames:
        yield Sample(thread, pid, tuple(frames))


def group_of(sample: Sample) -> str:
    """The name of what the thread did."""
    kernel = " ".join(name for name, file in sample.frames if _OF_KERNEL.match(file))
    for group, pattern in THREADS:
        if re.search(pattern, sample.thread):
            return group
    name, file = sample.frames[0]
    if _OF_KERNEL.match(file):
        return next((group for group, pattern in KERNEL if re.search(pattern, kernel)), "kernel, the rest")
    for group, names, files in USER:
        if (names and re.search(names, name)) or (files and re.search(files, file)):
            return group
    return OTHER


def seconds_by_group(
    samples: Iterable[Sample], parts: Mapping[int, str], rate_hz: float
) -> dict[str, dict[str, float]]:
    """CPU seconds by part and by group; ``parts`` has the part of each process, others do not count."""
    counts: dict[str, Counter[str]] = {}
    for sample in samples:
        part = parts.get(sample.pid)
        if part is not None:
            counts.setdefault(part, Counter())[group_of(sample)] += 1
    return {
        part: {group: count / rate_hz for group, count in found.most_common()} for part, found in sorted(counts.items())
    }
