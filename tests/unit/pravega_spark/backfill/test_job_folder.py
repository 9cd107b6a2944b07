"""Tests what is said of a job's folder that cannot be made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import ConfigurationError
from pravega_spark.backfill.job_folder import JobFolder


def test_a_password_in_its_uri_is_not_shown() -> None:
    """Hadoop refuses such a URI, and repeats it."""
    uri = "s3a://KEY:SEC/RET@bucket/jobs/j"

    def refuse(text: str) -> None:
        raise RuntimeError(f"java.io.IOException: {text} contains login details")

    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=refuse))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    java = SimpleNamespace(hadoopConfiguration=lambda: None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=java))
    with pytest.raises(ConfigurationError) as told:
        JobFolder(spark, uri)
    shown = "s3a://***@bucket/jobs/j"
    assert str(told.value) == (
        f"the folder '{shown}' cannot be made or written: java.io.IOException: {shown} contains login details"
    )
