"""Splits the time of one write and one read: CPU seconds of every process, and its busiest threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.bench import workload
from tests.bench.figures import Result, medians, per_unit
from tests.bench.rig import Rig, say
from tests.bench.sides import Side
from tests.bench.throughput import Job, Throughput
from tests.bench.watch import Observed, difference

threads_told: Final = 6
thread_s_min: Final = 0.05


class Layers:
    """Each case runs once unmeasured and once measured."""

    def __init__(self, rig: Rig, scale: float) -> None:
        self._rig = rig
        self._scale = scale
        self._throughput = Throughput(rig, scale, 1)

    def measure(self, case: str, size_bytes: int) -> list[Result]:
        """One result for each side. ``after_…`` is what was done when the job had ended: Tier 2, compilers."""
        return [self._profile(case, side, size_bytes) for side in self._rig.sides]

    def drop_filled(self) -> None:
        self._throughput.drop_filled()

    def _profile(self, case: str, side: Side, size_bytes: int) -> Result:
        events = workload.events_per_run(size_bytes, self._scale)
        job, end = self._throughput.job(case, side, events, size_bytes)
        job()
        end()
        job, end = self._throughput.job(case, side, events, size_bytes)
        result = {"case": case, "side": side.name, "event_bytes": size_bytes, "events": events}
        result |= self._measured(job, events, size_bytes)
        end()
        say(f"{case:<12} {side.name:<6} {size_bytes:>6} B  {result['wall_s']:>7.3f} s, {result['cores']} cores busy")
        return result

    def _measured(self, job: Job, events: int, size_bytes: int) -> Result:
        watch = self._rig.watch
        watch.settle()
        threads = watch.thread_s()
        with Observed(watch) as observed:
            job()
        threads = busiest(watch.thread_s(), threads)
        at_end = watch.cpu_s()
        settled_s = watch.settle()
        after = difference(watch.cpu_s(), at_end)
        stream_ms = self._throughput.stream_ms
        return {
            "wall_s": round(observed.wall_s, 3),
            **({"stream_ms": medians([stream_ms], 0)} if stream_ms else {}),
            "megabytes_per_second": round(events * size_bytes / observed.wall_s / 1e6, 1),
            "cores": round(sum(observed.cpu_s.values()) / observed.wall_s, 2),
            **per_unit(observed.cpu_s, events, size_bytes),
            "after_s": round(settled_s, 1),
            "after_cpu_s": {name: round(value, 2) for name, value in after.items() if round(value, 2)},
            "threads_cpu_s": threads,
            "other_cores": observed.other_cores,
            **observed.memory.as_json(),
        }


def busiest(
    after: Mapping[str, Mapping[str, float]], before: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Each group's threads with most CPU seconds between two readings; those that ended meanwhile are not seen."""
    found = {}
    for group, threads in after.items():
        spent = difference(threads, before.get(group, {}))
        top = sorted(spent.items(), key=lambda item: -item[1])[:threads_told]
        kept = {name: round(value, 2) for name, value in top if value >= thread_s_min}
        if kept:
            found[group] = kept
    return found
