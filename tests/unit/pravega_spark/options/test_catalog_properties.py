"""CREATE TABLE … USING pravega without the jar: Spark's own properties of a table come as options."""

from __future__ import annotations

import re

import pytest

from pravega_common.errors import ConfigurationError
from pravega_spark.options.definitions import Use
from pravega_spark.options.given import CATALOG_PROPERTIES, GivenOptions
from tests.support.repository import ROOT

GIVEN = {"scope": "s", "stream": "t", "controller": "tcp://c:9090"}
JAR = ROOT / "jvm-shim" / "java" / "pravegaspark" / "TableOptions.java"


@pytest.mark.parametrize(
    "name", ["provider", "owner", "location", "transient_lastDdlTime", "is_managed_location", "option.scope", "OWNER"]
)
@pytest.mark.parametrize("use", [Use.READ, Use.BATCH_READ, Use.BATCH_WRITE])
def test_what_spark_adds_to_a_table_says_what_works_instead(name: str, use: Use) -> None:
    with pytest.raises(ConfigurationError) as refused:
        GivenOptions({**GIVEN, name: "x"}, use)
    sentence = str(refused.value)
    assert f"'{name}'" in sentence
    assert "options of CREATE TABLE do not reach a Python source" in sentence
    assert "CREATE TEMPORARY VIEW" in sentence
    assert "unknown option" not in sentence


def test_a_mistyped_option_is_still_an_unknown_one() -> None:
    with pytest.raises(ConfigurationError, match="unknown option 'providers'"):
        GivenOptions({**GIVEN, "providers": "x"}, Use.BATCH_READ)


def test_the_jar_takes_off_the_same_properties() -> None:
    constants = {name.lower() for name in re.findall(r"TableCatalog\.PROP_(\w+)", JAR.read_text())}
    literals = {name.lower() for name in re.findall(r'key\.equals\("([\w.]+)"\)', JAR.read_text())}
    assert constants | literals == CATALOG_PROPERTIES
