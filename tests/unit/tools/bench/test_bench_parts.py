"""Checks parts of the bench: the open loop, the command line, the jars, the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pravega_common.services.cache_size import cache_bytes_default
from tests.bench import main, tables
from tests.bench.bench_cold_reads import check_cold, default_mib
from tests.bench.figures import beside_ours, shares
from tests.bench.kafka.broker import cluster_id
from tests.bench.kafka.jars import artifact_of, without_shipped
from tests.bench.latency_writer import run
from tests.bench.layers import busiest
from tests.bench.rig import VARIANTS
from tests.bench.stamps import stamp_of
from tests.bench.throughput import phases_ms
from tests.support.maven import fetched_jars


class Clock:
    """Stands still but for what sleeps and stalls."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_events_are_stamped_when_they_are_due_also_when_the_writer_stalls() -> None:
    clock, sent, ticks = Clock(), [], []

    def tick() -> None:
        ticks.append(clock())
        if len(ticks) == 10:
            clock.sleep(0.5)

    count = run(lambda key, event: sent.append((key, event)), tick, 1000, 2, 100, clock, clock.sleep)
    assert count == len(sent) == 2000
    stamps = [stamp_of(event) for _, event in sent]
    assert stamps == pytest.approx([1000 + number / 1000 for number in range(2000)])
    assert {len(event) for _, event in sent} == {100}
    assert [key for key, _ in sent[999:1002]] == ["999", "0", "1"]


def test_commit_pairs_grow_one_way_at_a_time() -> None:
    assert main.commit_pairs([1, 4, 16]) == [(1, 4), (4, 4), (16, 4), (4, 1), (4, 16)]


def test_the_flags_of_the_command_line() -> None:
    args = main.spark_parser().parse_args(["--sizes", "100", "--runs", "2", "--cases", "write,read", "--no-kafka"])
    assert (args.sizes, args.runs, args.cases, args.kafka) == ([100], 2, ["write", "read"], False)
    args = main.spark_parser().parse_args([])
    assert args.cases == list(main.SPARK_CASES)
    assert (args.runs, args.kafka, args.seconds, args.cold_s, args.scale) == (3, True, 60, 90.0, 1.0)
    assert args.variants == []
    args = main.spark_parser().parse_args(["--three-redis", "--tls", "--tcp", "--file"])
    assert args.variants == ["three-redis", "tls", "tcp", "file"]
    assert main.spark_parser().parse_args([]).variants == []
    assert set(args.variants) == set(VARIANTS)


def test_a_wrong_case_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--cases", "writ"])
    with pytest.raises(SystemExit, match="no case 'writ'"):
        main.main()
    monkeypatch.setattr("sys.argv", ["bench", "sparkle"])
    with pytest.raises(SystemExit, match="no bench 'sparkle'"):
        main.main()


def test_without_maven_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["bench"])
    with pytest.raises(SystemExit, match=r"--no-kafka does without.*apt-get install maven"):
        main.main()


def test_jars_are_fetched_once_for_a_state_of_their_pom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>")
    with pytest.raises(RuntimeError, match="needs them, and there is no 'mvn'") as failed:
        fetched_jars(pom, "some", "somebody needs them")
    named = Path(str(failed.value).rpartition(" into ")[2])
    named.mkdir(parents=True)
    assert fetched_jars(pom, "some", "somebody needs them") == named
    pom.write_text("<project></project>")
    with pytest.raises(RuntimeError):
        fetched_jars(pom, "some", "somebody needs them")


def test_jars_that_spark_ships_are_left_out() -> None:
    jars = [Path("/c/kafka-clients-3.9.1.jar"), Path("/c/zstd-jni-1.5.7-6.jar"), Path("/c/lz4-java-1.8.0.jar")]
    shipped = [Path("/s/zstd-jni-1.5.6-1.jar"), Path("/s/kafka-clients-extra-1.0.jar")]
    assert without_shipped(jars, shipped) == [jars[0], jars[2]]
    assert artifact_of(Path("/c/spark-sql-kafka-0-10_2.13-4.2.0.jar")) == "spark-sql-kafka"


def test_cluster_ids_are_as_kafka_writes_them() -> None:
    ids = {cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(item) == 22 and not item.startswith("-") for item in ids)


def test_the_busiest_threads_of_each_group() -> None:
    before = {"redis": {"redis-server": 1.0, "bio_aof": 0.5}}
    after = {"redis": {"redis-server": 3.0, "bio_aof": 0.51}, "kafka": {"main": 0.01}}
    assert busiest(after, before) == {"redis": {"redis-server": 2.0}}


def result(side: str, seconds: float) -> dict[str, Any]:
    return {
        "case": "write",
        "side": side,
        "event_bytes": 100,
        "events": 1000,
        "seconds": [seconds],
        "events_per_second": 1000,
        "megabytes_per_second": 0.1,
        "other_cores": [0.1],
        "peak_pss_mib": {"redis": 12},
    }


def test_the_tables_tell_what_is_met_and_what_is_missed() -> None:
    results = [result("ours", 2.0), result("ours-three-redis", 4.0), result("kafka", 1.0)]
    clock = {"p50": 50.0, "max": 120.0}
    clocks = dict.fromkeys(("decision_ms", "commit_ms", "phase_ms"), clock)
    document = {
        "results": results,
        "shares": shares(results, 100.0),
        "variants": beside_ours(results),
        "latency": [
            {"side": side, "p50_ms": p50, "p99_ms": 900.0, "runs": [{"batches": 7, "peak_pss_mib": {"redis": 34}}]}
            for side, p50 in (("ours", 150.0), ("kafka", 200.0))
        ],
        "idle": [
            {"side": side, "core_percent": percent, "met": met, "runs": [{"redis": 0.0, "python-planning": percent}]}
            for side, percent, met in (("ours", 0.62, True), ("kafka", 3.5, False))
        ],
        "commit": [
            {
                "tasks": 4,
                "segments": 4,
                "warm": clocks,
                "cold": {"commit_ms": 70.0, "phase_ms": 90.0},
                "peak_pss_mib": {"redis": 56},
            }
        ],
    }
    lines = tables.spark_tables(document).splitlines()
    assert any(line.startswith("write  ") and "0.5" in line and line.endswith("missed") for line in lines)
    assert any(line.startswith("write ours-three-redis") and line.split()[-2:] == ["0.5", "0.5"] for line in lines)
    assert any(line.startswith("ours ") and "0.75" in line and line.endswith("met") for line in lines)
    assert any(line.startswith("4 tasks, 4 segments") and line.endswith("met") for line in lines)
    assert any(line.split() == ["ours", "0.62", "0.62", "<=", "1.0", "met"] for line in lines)
    assert any(line.startswith("kafka ") and "3.50" in line and line.endswith("missed") for line in lines)
    assert any(line.startswith("write kafka") and line.endswith("12") for line in lines)
    assert any(line.startswith("latency kafka") and line.endswith("34") for line in lines)
    assert any(line.startswith("commit, 4 tasks") and line.endswith("56") for line in lines)


def test_phases_of_a_query_add_up_to_its_wall() -> None:
    batches = [{"addBatch": 100, "triggerExecution": 150}, {"addBatch": 50, "walCommit": 5, "triggerExecution": 90}]
    assert phases_ms(batches, 1000.0) == {
        "addBatch": 150,
        "triggerExecution": 240,
        "walCommit": 5,
        "batches": 2,
        "outside": 760.0,
    }
    assert phases_ms([], 10.0) == {"batches": 0, "outside": 10.0}


def test_without_figures_there_is_no_table() -> None:
    assert tables.spark_tables({"results": [], "shares": []}) == ""


def test_a_scan_of_what_the_cache_has_is_none_of_cold_reads() -> None:
    check_cold([{"from_minio": 1.0}, {"from_minio": 0.99}])
    with pytest.raises(RuntimeError, match="only 40% of the bytes of a scan came from MinIO: choose a larger --mib"):
        check_cold([{"from_minio": 1.0}, {"from_minio": 0.4}])
    assert default_mib() << 20 > cache_bytes_default()


def test_results_stand_beside_the_first_one() -> None:
    results = [{"n": 10, "p99": 2.0, "puts": 0, "form": "a"}, {"n": 100, "p99": 3.0, "puts": 5, "form": "b"}]
    assert [line.split() for line in tables.beside_first("By n", results, "n").splitlines()[1:]] == [
        ["By", "n"],
        ["10", "100", "last", "to", "first"],
        ["p99", "2.0", "3.0", "1.50"],
        ["puts", "0", "5"],
    ]
