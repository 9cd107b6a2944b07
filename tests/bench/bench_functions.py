"""Splits a GB's CPU seconds of each process by what it does with them: ``python -m tests.bench.bench_functions``.

Our cases run in a rig of their own, once to warm up and ``--runs`` times under ``perf`` (Debian's ``linux-perf``, which
needs root or a ``kernel.perf_event_paranoid`` of -1); the JVM writes a map of its compiled code before they are read.
The table goes to stderr, JSON to stdout, with the busiest functions of each group.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.bench import workload
from tests.bench.comparison import CASES
from tests.bench.figures import Result
from tests.bench.functions import Sample, group_of, samples_of, seconds_by_group
from tests.bench.main import machine
from tests.bench.processes import process_table
from tests.bench.rig import Rig, running_rig, say
from tests.bench.sides import Side
from tests.bench.tables import table
from tests.bench.throughput import Throughput
from tests.bench.watch import Observed

rate_hz: Final = 499
functions_told: Final = 40
told_s_min: Final = 0.01
script_time_max_s: Final = 120
end_time_max_s: Final = 30


def main() -> None:
    args = _arguments()
    if shutil.which("perf") is None:
        raise SystemExit("bench_functions needs perf, of Debian's package linux-perf")
    results: list[Result] = []
    try:
        with running_rig("dir", with_kafka=False) as rig:
            for size_bytes in args.sizes:
                throughput = Throughput(rig, args.scale, args.runs)
                for case in args.cases:
                    results.append(_profiled(rig, throughput, case, size_bytes, args))
                throughput.drop_filled()
        say("\n".join(_table(result) for result in results))
    finally:
        text = json.dumps({"machine": machine(), "results": results}, indent=2)
        if args.out:
            args.out.write_text(text + "\n")
        print(text)


def _profiled(rig: Rig, throughput: Throughput, case: str, size_bytes: int, args: argparse.Namespace) -> Result:
    events, side = workload.events_per_run(size_bytes, args.scale), rig.ours
    _run(throughput, case, side, events, size_bytes, lambda job: job())
    samples: list[Sample] = []
    parts: dict[int, str] = {}
    measured: Counter[str] = Counter()
    for number in range(args.runs):
        rig.watch.settle()
        file = rig.folder / f"profile-{case}-{size_bytes}-{number}"

        def recorded(job: Callable[[], None], file: Path = file) -> None:
            recorder = subprocess.Popen(
                ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", str(rate_hz), "-o", str(file)],
                stderr=subprocess.DEVNULL,
            )
            try:
                with Observed(rig.watch) as observed:
                    job()
                    members = rig.watch.members(process_table())
            finally:
                recorder.terminate()
                recorder.wait(end_time_max_s)
            measured.update(observed.cpu_s)
            parts.update({pid: name for name, pids in members.pids.items() for pid in pids})

        _run(throughput, case, side, events, size_bytes, recorded)
        _write_map_of_compiled_code(next(pid for pid, name in parts.items() if name == "driver-jvm"))
        samples += _samples(file)
        file.unlink()
    gigabytes = events * size_bytes * args.runs / 1e9
    return {
        "case": case,
        "event_bytes": size_bytes,
        "events": events,
        "runs": args.runs,
        "cpu_s_per_gigabyte": {name: round(value / gigabytes, 2) for name, value in measured.items() if value},
        "by_function_group": _per_gigabyte(seconds_by_group(samples, parts, rate_hz), gigabytes),
        "functions": _busiest(samples, parts, gigabytes),
    }


def _run(
    throughput: Throughput,
    case: str,
    side: Side,
    events: int,
    size_bytes: int,
    run: Callable[[Callable[[], None]], None],
) -> None:
    job, end = throughput.job(case, side, events, size_bytes)
    run(job)
    end()


def _write_map_of_compiled_code(jvm: int) -> None:
    subprocess.run(["jcmd", str(jvm), "Compiler.perfmap"], capture_output=True, timeout=end_time_max_s, check=False)


def _samples(file: Path) -> list[Sample]:
    done = subprocess.run(
        ["perf", "script", "-i", str(file), "-F", "comm,pid,ip,sym,dso"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=script_time_max_s,
        check=True,
    )
    return list(samples_of(done.stdout.splitlines()))


def _per_gigabyte(seconds: Mapping[str, Mapping[str, float]], gigabytes: float) -> dict[str, dict[str, float]]:
    return {
        part: {group: round(value / gigabytes, 3) for group, value in found.items()} for part, found in seconds.items()
    }


def _busiest(samples: list[Sample], parts: Mapping[int, str], gigabytes: float) -> dict[str, dict[str, float]]:
    """The innermost functions of each part, with their group and what called into the kernel."""
    found: dict[str, Counter[str]] = {}
    for sample in samples:
        if part := parts.get(sample.pid):
            name, file = sample.frames[0]
            found.setdefault(part, Counter())[f"{group_of(sample)}: {name} ({Path(file).name})"] += 1
    return {
        part: {name: round(count / rate_hz / gigabytes, 3) for name, count in counts.most_common(functions_told)}
        for part, counts in found.items()
    }


def _table(result: Result) -> str:
    rows = [
        (
            part,
            result["cpu_s_per_gigabyte"].get(part, ""),
            "  ".join(f"{k} {v:.2f}" for k, v in groups.items() if v >= 0.01),
        )
        for part, groups in result["by_function_group"].items()
    ]
    title = f"{result['case']} {result['event_bytes']} B: CPU seconds a GB"
    return table(title, ("process", "all, by /proc", "by perf, what it did"), rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_functions")
    add = parser.add_argument
    add("--sizes", type=lambda text: [int(item) for item in text.split(",")], default=[1_000, 10_000])
    add("--cases", type=lambda text: text.split(","), default=list(CASES), help=f"default {','.join(CASES)}")
    add("--runs", type=int, default=2, help="profiled runs of each case, added up")
    add("--scale", type=float, default=1.0, help="share of the usual number of events")
    add("--out", type=Path, help="write the document into this file too")
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
