"""Lays out the figures of a run as tables for people, on stderr; the JSON document has all of them."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench.figures import Result, commit_aim_ms, commit_aim_tasks, idle_aim_percent, latency_aim

Row = Sequence[Any]
line_chars_max: Final = 1_000
"""Wider than any table: nothing is wrapped or cut off."""


def table(title: str, head: Sequence[str], rows: Iterable[Row]) -> str:
    """Lays out columns, numbers to the right and words to the left. Empty without rows."""
    lines = [[str(cell) for cell in row] for row in rows]
    if not lines:
        return ""
    laid = Table(box=None, pad_edge=False, padding=(0, 1))
    for name, column in zip(head, zip(*lines, strict=True), strict=True):
        laid.add_column(name, justify="right" if _are_numbers(column) else "left", no_wrap=True)
    for line in lines:
        laid.add_row(*map(escape, line))
    output = io.StringIO()
    Console(file=output, width=line_chars_max).print(laid)
    return "\n".join(["", title, *(line.rstrip() for line in output.getvalue().splitlines()), ""])


def beside_first(title: str, results: Sequence[Mapping[str, Any]], key: str) -> str:
    """Lays out results as columns, named by what they have under ``key``, and the last one divided by the first."""
    head = ["", *(str(one[key]) for one in results), "last to first"]
    rows: list[Row] = []
    for name in results[0]:
        values = [one[name] for one in results]
        if name != key and all(isinstance(value, int | float) for value in values):
            rows.append((name, *values, f"{values[-1] / values[0]:.2f}" if values[0] else ""))
    return table(title, head, rows)


def _are_numbers(column: Sequence[str]) -> bool:
    return all(cell[-1:].isdecimal() and cell.replace(",", "").replace(".", "").isdecimal() for cell in column if cell)


def spark_tables(document: Result) -> str:
    """All of ``scripts/bench spark``."""
    parts = [
        _rates(document["results"]),
        _shares(document["shares"]),
        _variants(document.get("variants", [])),
        _latency(document.get("latency", [])),
        _idle(document.get("idle", [])),
        _commits(document.get("commit", [])),
        _memory(peaks_by_case(document)),
    ]
    return "\n".join(part for part in parts if part)


def layer_tables(results: Sequence[Result]) -> str:
    """One table a case: CPU seconds per million events of each group, and what ran on afterwards."""
    parts = []
    for item in results:
        per_million, per_gigabyte = item["cpu_s_per_million_events"], item["cpu_s_per_gigabyte"]
        after, threads = item["after_cpu_s"], item["threads_cpu_s"]
        rows = [
            (
                name,
                per_million[name],
                per_gigabyte[name],
                after.get(name, ""),
                " ".join(f"{thread}={spent}" for thread, spent in threads.get(name, {}).items()),
            )
            for name in per_million
            if per_million[name] or after.get(name)
        ]
        title = (
            f"{item['case']} {item['side']} {item['event_bytes']} B: {item['wall_s']} s wall, "
            f"{item['megabytes_per_second']} MB/s, {item['cores']} cores busy, "
            f"{item['other_cores']} with something else, settled after {item['after_s']} s"
        )
        head = ("CPU seconds", "per million events", "per GB", "afterwards", "busiest threads")
        parts.append(table(title, head, rows))
    return "\n".join(parts)


def _rates(results: Sequence[Result]) -> str:
    rows = [
        (
            f"{item['case']} {item['side']}",
            item["event_bytes"],
            f"{item['events_per_second']:,}",
            item["megabytes_per_second"],
            " ".join(map(str, item["seconds"])),
            max(item["other_cores"]),
        )
        for item in results
    ]
    head = ("case", "bytes", "events/s", "MB/s", "seconds", "cores busy with something else")
    return table("Throughput (medians)", head, rows)


def _shares(shares: Sequence[Result]) -> str:
    rows = [
        (
            item["case"],
            item["event_bytes"],
            item.get("of_api", ""),
            item["of_redis"],
            item.get("of_kafka", ""),
            f">= {item['aim']}" if "aim" in item else "",
            _verdict(item.get("met")),
        )
        for item in shares
    ]
    head = ("ours", "bytes", "of Spark's API", "of raw Redis", "of Kafka", "aim", "")
    return table("Shares", head, rows)


def _variants(variants: Sequence[Result]) -> str:
    rows = [
        (
            f"{item['case']} {item['side']}",
            item["event_bytes"],
            item["of_ours"],
            " ".join(map(str, item["of_ours_runs"])),
        )
        for item in variants
    ]
    return table("Beside our usual services", ("case", "bytes", "of ours", "run by run"), rows)


def _latency(results: Sequence[Result]) -> str:
    kafka = next((item for item in results if item["side"] == "kafka"), None)
    rows = []
    for item in results:
        ratio = round(item["p50_ms"] / kafka["p50_ms"], 2) if kafka and item is not kafka else None
        batches = [run["batches"] for run in item["runs"]]
        rows.append(
            (
                item["side"],
                item["p50_ms"],
                item["p99_ms"],
                " ".join(map(str, batches)),
                "" if ratio is None else ratio,
                "" if ratio is None else f"<= {latency_aim}",
                _verdict(None if ratio is None else ratio <= latency_aim),
            )
        )
    head = ("micro-batch latency", "p50 ms", "p99 ms", "batches", "p50 of Kafka's", "aim", "")
    return table("Latency", head, rows)


def _idle(results: Sequence[Result]) -> str:
    names = list(
        dict.fromkeys(name for item in results for run in item["runs"] for name, value in run.items() if value)
    )
    rows = []
    for item in results:
        parts = [f"{statistics.median(run.get(name, 0.0) for run in item['runs']):.2f}" for name in names]
        rows.append((item["side"], item["core_percent"], *parts, f"<= {idle_aim_percent}", _verdict(item["met"])))
    head = ("an idle query, % of a core", "all", *names, "aim", "")
    return table("Idle (medians; beyond the session and the services without the query)", head, rows)


def _commits(results: Sequence[Result]) -> str:
    rows = []
    for item in results:
        warm, aimed = item["warm"], item["tasks"] == commit_aim_tasks and item["segments"] == commit_aim_tasks
        rows.append(
            (
                f"{item['tasks']} tasks, {item['segments']} segments",
                warm["decision_ms"]["p50"],
                warm["commit_ms"]["p50"],
                warm["commit_ms"]["max"],
                warm["phase_ms"]["p50"],
                item["cold"]["commit_ms"],
                item["cold"]["phase_ms"],
                f"<= {commit_aim_ms:.0f}" if aimed else "",
                _verdict(warm["commit_ms"]["p50"] <= commit_aim_ms if aimed else None),
            )
        )
    head = ("commit, ms", "decision", "readable", "worst", "Spark's phase", "cold", "cold phase", "aim", "")
    return table("Commit of a micro-batch (medians; cold: once, after the pause)", head, rows)


def peaks_by_case(document: Result) -> dict[str, dict[str, int]]:
    """Peak PSS by group; the highest of all sizes and runs of each case."""
    readings = [(f"{item['case']} {item['side']}", item["peak_pss_mib"]) for item in document["results"]]
    for item in document.get("latency", []):
        readings += [(f"latency {item['side']}", run["peak_pss_mib"]) for run in item["runs"]]
    for item in document.get("commit", []):
        readings.append((f"commit, {item['tasks']} tasks, {item['segments']} segments", item["peak_pss_mib"]))
    peaks: dict[str, dict[str, int]] = {}
    for case, reading in readings:
        peak = peaks.setdefault(case, {})
        for name, value in reading.items():
            peak[name] = max(peak.get(name, 0), value)
    return peaks


def _memory(peaks: Mapping[str, Mapping[str, int]]) -> str:
    names = list(dict.fromkeys(name for peak in peaks.values() for name in peak))
    rows = [(case, *(peak.get(name, "") for name in names)) for case, peak in peaks.items()]
    return table("Memory, peak PSS in MiB", ("case", *names), rows)


def _verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "missed"
