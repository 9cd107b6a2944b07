"""Pravega's ``ControllerService``: every method in a file of its subject; what is in none answers UNIMPLEMENTED, so
that clients fail at once instead of repeating."""

from __future__ import annotations

from controller_service.api.grpc.parts import ApiParts
from controller_service.api.grpc.readers_api import ReadersApi
from controller_service.api.grpc.scopes_api import ScopesApi
from controller_service.api.grpc.segments_api import SegmentsApi
from controller_service.api.grpc.streams_api import StreamsApi
from controller_service.api.grpc.tables_api import TablesApi
from controller_service.api.grpc.transactions_api import Transactions, TransactionsApi
from pravega_common.proto.controller_pb2_grpc import ControllerServiceServicer


class ControllerServiceApi(
    ScopesApi, StreamsApi, SegmentsApi, TransactionsApi, ReadersApi, TablesApi, ControllerServiceServicer
):
    def __init__(self, parts: ApiParts, transactions: Transactions) -> None:
        self.parts = parts
        self.transactions = transactions
