"""Reads streams as a batch with the filters that Spark pushes down, from Spark 4.1 on."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import Filter

from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.pushed_filters import pushed
from pravega_spark.spark_errors import in_sentences


@in_sentences
class FilteringBatchReader(BatchReader):
    """A batch reader with option ``push_filters``.

    Spark refuses a reader that has this method unless its configuration allows it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Yields those that Spark has to apply to the rows."""
        self.filters, left = pushed(filters)
        yield from left
