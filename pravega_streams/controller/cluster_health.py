"""Asks a controller for the problems of its cluster (cluster_health.proto)."""

from __future__ import annotations

from pravega_common.model.cluster_health import ClusterProblem, ClusterStore, DescribedCluster
from pravega_common.proto import cluster_health_pb2 as pb
from pravega_streams.controller.transport import ControllerTransport


class ClusterHealthClient:
    """Blocking calls; each may be repeated. ``UnsupportedOperation`` on a plain Pravega."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def describe(self) -> DescribedCluster:
        """The answer comes within some seconds, also while the control plane oracle stands still."""
        reply = self._transport.cluster_health("DescribeCluster", pb.DescribeClusterRequest())
        return DescribedCluster(
            tuple(ClusterProblem(one.code, one.text, one.remedy, one.stops_work) for one in reply.problems),
            reply.container_count,
            tuple(ClusterStore(one.id, one.address, tuple(one.containers)) for one in reply.stores),
            reply.unknown,
        )
