"""Runs the contract of a sink's runs on the ledger; those of stream gateways have it in their own."""

from __future__ import annotations

import pytest

from pravega_common.model.transaction_sets import Sink
from pravega_spark.ledger.table_ledger import TableLedger
from tests.contract.sink_runs_contract import SinkRunsContract
from tests.support.fakes.plain_pravega import PlainPravega


class TestRunsOfTheLedger(SinkRunsContract):
    @pytest.fixture
    def calls(self) -> TableLedger:
        return PlainPravega().sets()

    @pytest.fixture
    def sink(self) -> Sink:
        return Sink("query", "scope/stream")
