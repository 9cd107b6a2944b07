"""Makes gRPC requests without the stubs: messages by their descriptors, and calls that send bytes as they stand."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass


def request_of(method: MethodDescriptor, **fields: Any) -> Any:
    """A request of a method, with these fields set."""
    return GetMessageClass(method.input_type)(**fields)


def raw_call(channel: Any, path: str) -> Any:
    """A call of a blocking or an asynchronous channel; its request and its answer are bytes."""
    return channel.unary_unary(path)
