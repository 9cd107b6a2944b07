"""Serves the gRPC service ``ClusterHealth``."""

from __future__ import annotations

from typing import Any

import grpc.aio

from controller_service.window.cluster_view import cluster_view
from controller_service.window.parts import WindowParts
from pravega_common.proto import cluster_health_pb2 as pb
from pravega_common.proto import cluster_health_pb2_grpc as pb_grpc


class ClusterHealthApi(pb_grpc.ClusterHealthServicer):
    """Answers what the window shows of the cluster."""

    def __init__(self, parts: WindowParts) -> None:
        self._parts = parts

    async def DescribeCluster(
        self, request: pb.DescribeClusterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.DescribeClusterResponse:
        view = await cluster_view(self._parts)
        return pb.DescribeClusterResponse(
            problems=[
                pb.ClusterProblem(code=one.code, text=one.text, remedy=one.remedy, stops_work=one.stops_work)
                for one in view.problems
            ],
            container_count=view.container_count,
            stores=[pb.ClusterStore(id=one.id, address=one.address, containers=one.containers) for one in view.stores],
            unknown=view.unknown or "",
        )
