"""Raises what refused a streaming read at the first call of Spark.

Spark's runner of a streaming source hides an error of its construction behind one of its own: it stops the reader that
was never made (docs/spark-source-and-sink.md B.7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pravega_common.errors import PravegaError
from pravega_spark.spark_errors import in_sentences


@in_sentences
class RefusedStreamReader(DataSourceStreamReader):
    """The reader of a query that cannot run; every call raises ``refusal``."""

    def __init__(self, refusal: PravegaError) -> None:
        self._refusal = refusal

    def _refuse(self) -> NoReturn:
        raise self._refusal

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        self._refuse()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()

    def stop(self) -> None:
        """Does nothing."""
