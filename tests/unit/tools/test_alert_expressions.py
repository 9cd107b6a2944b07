"""Evaluates expressions on samples, and each rule on those of a cluster that is well."""

from __future__ import annotations

import pytest

from tests.support.alert_expressions import Samples, evaluate, seconds_of
from tests.support.alert_rules import alerts

BUCKETS = 'h_bucket{le="1.0"} 0\nh_bucket{le="2.0"} %d\nh_bucket{le="+Inf"} %d\n'


def scraped(expression: str, *pages: str | None, job: str = "j", period_s: float = 10.0) -> Samples:
    """What one instance answered, one page after the other."""
    samples = Samples([expression])
    for number, page in enumerate(pages):
        samples.add(job, "i", number * period_s, page)
    return samples


def values(expression: str, *pages: str | None) -> list[float]:
    return sorted(evaluate(expression, scraped(expression, *pages)).values())


@pytest.mark.parametrize(
    ("expression", "page", "expected"),
    [
        ("a > 1", "a 2\n", [2.0]),
        ("a > 1", "a 1\n", []),
        ("a == 0", 'a{x="y"} 0\n', [0.0]),
        ('a{code="b"} > 0', 'a{code="b"} 1\na{code="c"} 2\n', [1.0]),
        ('a{code=~"b|c"} > 0', 'a{code="b"} 1\na{code="cc"} 2\n', [1.0]),
        ("a / b > 0.8", 'a{s="1"} 9\na{s="2"} 9\nb{s="1"} 10\nb{s="2"} 20\n', [0.9]),
        ("a / (b > 0) > 0.8", "a 9\nb 0\n", []),
        ("a > 5 or b > 5", "a 1\nb 6\n", [6.0]),
        ("a > 1 and b > 1", "a 2\nb 2\n", [2.0]),
        ("a > 1 and b > 1", "a 2\nb 1\n", []),
        ("a < 5 and on (x) b > 1", 'a{x="1",y="1"} 2\na{x="2",y="1"} 3\nb{x="2"} 2\n', [3.0]),
        ("a / on (x) sum by (x) (b) > 0", 'a{x="1"} 6\nb{x="1",y="1"} 1\nb{x="1",y="2"} 2\n', [2.0]),
        (
            "max by (x, y) (a) > on (x) group_left 2 * sum by (x) (b)",
            'a{x="1",y="1"} 5\na{x="1",y="2"} 3\nb{x="1"} 2\n',
            [5.0],
        ),
        ("sum by (x) (a) > 2", 'a{x="1",y="1"} 2\na{x="1",y="2"} 1\na{x="2"} 1\n', [3.0]),
    ],
)
def test_values_of_the_last_answer(expression: str, page: str, expected: list[float]) -> None:
    assert values(expression, page) == expected


def test_an_instance_that_is_silent_has_nothing_but_up() -> None:
    assert values("a > 0", "a 1\n", None) == []
    silent = scraped('up{job="j"} == 0', "a 1\n", None)
    assert evaluate('up{job="j"} == 0', silent) == {frozenset({("job", "j"), ("instance", "i")}): 0.0}
    assert evaluate('up{job="other"} == 0', silent) == {}


def test_growth_counts_a_restart_from_zero_and_ends_with_its_range() -> None:
    pages = ["a_total 5\n", "a_total 100\n", "a_total 3\n", "a_total 7\n"]
    assert values("increase(a_total[10m]) > 0", *pages) == [95 + 3 + 4]
    assert values("increase(a_total[10s]) > 0", *pages) == [4]
    assert values("rate(a_total[10s]) > 0", *pages) == [0.4]


def test_the_change_of_a_gauge_may_be_a_fall() -> None:
    assert values("delta(a[10m]) > 0", "a 5\n", "a 1\n", "a 7\n") == [2]
    assert values("delta(a[10m]) < 0", "a 5\n", "a 9\n", "a 1\n") == [-4]


def test_a_right_side_with_several_series_is_refused() -> None:
    expression = "a > on (x) b"
    with pytest.raises(ValueError, match="several series"):
        values(expression, 'a{x="1"} 5\nb{x="1",y="1"} 1\nb{x="1",y="2"} 1\n')


def test_the_end_of_what_an_outage_of_tier2_leaves() -> None:
    expression = next(rule["expr"] for rule in alerts() if rule["alert"] == "Tier2OutageEnds")
    page = (
        "pravega_store_unflushed_bytes_limit 1000000\npravega_store_unflushed_bytes {0}\n"
        'pravega_container_log_bytes_total{{container="1"}} {0}\npravega_store_tier2_failing_seconds {1}\n'
    )

    def seconds_left(step_bytes: int, failing_s: int) -> list[float]:
        return values(expression, *[page.format(number * step_bytes, failing_s) for number in (1, 2, 3)])

    assert seconds_left(100_000, 30) == [70.0]
    assert seconds_left(10_000, 30) == [], "970 s are left"
    assert seconds_left(100_000, 0) == [], "Tier 2 answers"


def test_many_small_appends_near_their_limit_are_told_as_bytes_are() -> None:
    """A million operations of 20 B hold appends up at a tenth of the bytes that may wait."""
    near, ends = (
        next(rule["expr"] for rule in alerts() if rule["alert"] == name)
        for name in ("UnflushedNearLimit", "Tier2OutageEnds")
    )
    page = (
        "pravega_store_unflushed_bytes_limit 1000000000\npravega_store_unflushed_bytes {1}\n"
        "pravega_store_unflushed_operations_limit 1000000\npravega_store_unflushed_operations {0}\n"
        'pravega_container_log_bytes_total{{container="1"}} {1}\n'
        'pravega_container_operations_total{{container="1"}} {0}\npravega_store_tier2_failing_seconds 30\n'
    )
    pages = [page.format(number * 300_000, number) for number in (1, 2, 3)]
    assert values(near, *pages) == [0.9]
    assert values(ends, *pages) == [pytest.approx(100_000 / 30_000)]
    assert values(near, page.format(1, 900_000_000)) == [0.9]
    assert values(near, page.format(700_000, 700_000_000)) == []


def expression_of(alert: str) -> str:
    return next(str(rule["expr"]) for rule in alerts() if rule["alert"] == alert)


def test_a_container_that_fails_again_and_again_is_told_also_while_it_is_well() -> None:
    """It fails once in a while, on one store or the other, and is well at each second look."""
    again, now = expression_of("ContainersKeepFailing"), expression_of("ContainerFailed")
    told, failed = Samples([again]), Samples([now])
    for minute in range(30):
        for store in range(2):
            failures = min(minute, 15) // 2 if store == 0 else min(minute, 15) // 3
            page = f"pravega_store_container_failures_total {failures}\n"
            if minute % 2:
                page += 'pravega_store_problem{code="container-failed"} 1\n'
            for samples in (told, failed):
                samples.add("pravega-segment-store", f"store-{store}", 60.0 * minute, page)
        if 2 < minute <= 19:
            assert list(evaluate(again, told)) == [frozenset({("job", "pravega-segment-store")})]
        elif minute > 20:
            assert not evaluate(again, told), "the last failure is long ago"
        assert bool(evaluate(now, failed)) == bool(minute % 2), "it does not last"


def test_open_files_of_other_programs_are_not_told() -> None:
    expression, page = expression_of("OpenFilesNearLimit"), "process_open_fds 95\nprocess_max_fds 100\n"
    for job, is_ours in (("pravega-segment-store", True), ("pravega-controller", True), ("node", False)):
        assert bool(evaluate(expression, scraped(expression, page, job=job))) == is_ours


def test_a_subscriber_that_reads_less_than_is_written() -> None:
    expression = next(rule["expr"] for rule in alerts() if rule["alert"] == "SubscriberFallsBehind")
    page = (
        'pravega_controller_subscriber_behind_bytes{{stream="s/t",subscriber="s/q"}} {0}\n'
        'pravega_store_stream_in_bytes_total{{stream="s/t"}} {1}\n'
    )
    for behind, written, expected in ((900, 1_000, [800.0]), (200, 1_000, []), (100, 100, [])):
        assert values(expression, page.format(100, 0), page.format(behind, written)) == expected


def test_a_quantile_lies_inside_its_bucket() -> None:
    expression = "histogram_quantile(0.5, sum by (le) (rate(h_bucket[5m]))) > 0"
    assert values(expression, BUCKETS % (0, 0), BUCKETS % (10, 10)) == [1.5]
    assert values(expression, BUCKETS % (0, 0), BUCKETS % (0, 10)) == [2.0]
    assert values(expression, BUCKETS % (0, 0), BUCKETS % (0, 0)) == []


@pytest.mark.parametrize("wrong", ["max(a) > 1", "a > 1 unless b", "1 > a[5m]", "count(a)"])
def test_what_no_rule_uses_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"understood|belongs|two numbers"):
        evaluate(wrong, scraped(wrong, "a 1\n"))


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_each_rule_can_be_evaluated_and_is_quiet_without_trouble(rule: dict[str, str]) -> None:
    page = "pravega_store_ready 1\npravega_controller_ready 1\n"
    assert evaluate(rule["expr"], scraped(rule["expr"], page, page, job="pravega-segment-store")) == {}
    assert seconds_of(rule["for"]) >= 0
