"""Tells what a failed attempt of a call may have done."""

from __future__ import annotations

from typing import Final

import grpc

_UNSENT: Final = (
    "failed to connect to all addresses",
    "errors resolving ",
    "DNS resolution failed for ",
)
"""How the texts of gRPC begin when it has no connection to send a call on; it has two resolvers, each with its text."""
_NO_LIST: Final = "Controller cluster not initialized"
"""How a stand-alone Pravega answers the question for its controllers (recording ``java-discovery``)."""
_QUESTIONS: Final = ("get", "list", "check", "is", "describe")
"""How the names of the calls begin that change nothing."""


class Unsent(grpc.RpcError):
    """The error of an attempt that ended before gRPC had the call."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return str(self)


def was_unsent(failure: grpc.RpcError) -> bool:
    """Whether an attempt certainly reached no controller.

    Only gRPC's text says so: UNAVAILABLE is also its status for a connection that was lost with the call on it, and
    what a controller answers of its own, be it Pravega's or ours. A text that is not known counts as sent.
    """
    if isinstance(failure, Unsent):
        return True
    return failure.code() is grpc.StatusCode.UNAVAILABLE and str(failure.details()).startswith(_UNSENT)


def lists_no_controllers(failure: grpc.RpcError) -> bool:
    """Whether a stand-alone Pravega refused to list its controllers, which it always does.

    Its status, UNKNOWN, is that of errors that may pass, too.
    """
    return failure.code() is grpc.StatusCode.UNKNOWN and failure.details() == _NO_LIST


def is_question(method: str) -> bool:
    """Whether a call changes nothing, so that nothing was done when it failed."""
    return method.lower().startswith(_QUESTIONS)
