"""Serves the gRPC service ``StreamLags``."""

from __future__ import annotations

from typing import Any

import grpc.aio

from controller_service.window.parts import WindowParts, answer_time_max_s, within
from controller_service.window.stream_lags import lags_of_many
from pravega_common.lag_forms import lag_to
from pravega_common.proto import stream_lags_pb2 as pb
from pravega_common.proto import stream_lags_pb2_grpc as pb_grpc


class StreamLagsApi(pb_grpc.StreamLagsServicer):
    """Answers for many streams at once what the window shows of one."""

    def __init__(self, parts: WindowParts) -> None:
        self._parts = parts

    async def DescribeLags(
        self, request: pb.DescribeLagsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.DescribeLagsResponse:
        names = [(one.scope, one.stream) for one in request.streams]
        lags = await within(answer_time_max_s, lags_of_many(self._parts, names))
        return pb.DescribeLagsResponse(streams=[lag_to(one) for one in lags])
