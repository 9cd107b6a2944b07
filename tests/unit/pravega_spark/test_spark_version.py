"""Checks what is said of the versions of Spark."""

from __future__ import annotations

import pytest

from pravega_common.errors import UnsupportedOperation
from pravega_spark.spark_version import ADMISSION_CONTROL, has, refuse, spark_minor


@pytest.mark.parametrize(
    ("text", "minor"), [("4.1.4", (4, 1)), ("4.3.0.dev1", (4, 3)), ("4.0", (4, 0)), ("4.2.1+vendor.7", (4, 2))]
)
def test_the_minor_of_a_version(text: str, minor: tuple[int, int]) -> None:
    assert spark_minor(text) == minor


def test_a_version_without_numbers_is_refused() -> None:
    with pytest.raises(UnsupportedOperation, match=r"'master'; 4\.0 to 4\.3"):
        spark_minor("master")


def test_the_spark_of_the_tests_has_everything() -> None:
    assert has(ADMISSION_CONTROL)


def test_a_refusal_names_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.5")
    assert (
        str(refuse("option 'x'", (4, 1), "leave it out")) == "option 'x' needs Spark 4.1, this is 4.0.5; leave it out"
    )
    assert not has(ADMISSION_CONTROL)
