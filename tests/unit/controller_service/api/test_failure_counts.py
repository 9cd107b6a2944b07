"""The alert about failing calls sees the first failures of a method."""

from __future__ import annotations

from typing import NoReturn

import pytest
from prometheus_client import generate_latest

from controller_service.api.grpc.error_mapping import ErrorMapping, mapped
from controller_service.api.grpc.method_access import METHODS
from controller_service.api.refused_calls import RefusedCalls
from pravega_common.runtime.clock import SystemClock
from tests.support.alert_expressions import Samples, evaluate
from tests.support.alert_rules import alerts

EXPRESSION = next(rule["expr"] for rule in alerts() if rule["alert"] == "CallsFail")


class Aborted(Exception):
    """The end of a call."""


class Context:
    async def abort(self, code: object, details: str) -> NoReturn:
        raise Aborted(details)


async def test_a_burst_before_which_a_method_never_failed_is_told() -> None:
    async def defect(request: object, context: object) -> object:
        raise KeyError("a defect")

    refused = RefusedCalls(SystemClock())
    ErrorMapping(refused)
    samples = Samples([EXPRESSION])
    samples.add("pravega-controller", "one", 0.0, generate_latest().decode())
    method = next(method for method in METHODS if method.endswith("/getKeyValueTableConfiguration"))
    for _ in range(6):
        with pytest.raises(Aborted):
            await mapped(defect, method, refused)(object(), Context())
    samples.add("pravega-controller", "one", 15.0, generate_latest().decode())
    (labels,) = evaluate(EXPRESSION, samples)
    assert dict(labels) == {"instance": "one", "method": "getKeyValueTableConfiguration", "status": "UNKNOWN"}
