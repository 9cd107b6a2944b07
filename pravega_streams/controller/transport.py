"""Calls one of several controllers over gRPC, with deadlines and retries."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from pravega_common.errors import (
    AccessDenied,
    AlreadyExists,
    AuthenticationFailed,
    InvalidArgument,
    NotFound,
    PravegaError,
    Unavailable,
    UnknownOutcome,
    UnsupportedOperation,
)
from pravega_common.proto import controller_pb2 as pb
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.channels import ControllerChannels, unary_call
from pravega_streams.controller.endpoint_choice import EndpointChoice
from pravega_streams.controller.failed_attempts import Unsent, is_question, lists_no_controllers, was_unsent
from pravega_streams.controller.tls_refusals import TlsRefusals
from pravega_streams.controller.wait_notice import WaitNotice, notice_time_max_s, short_reason
from pravega_streams.credentials import Credentials, credentials_from

call_time_max_s: Final = 130.0
"""Longer than the 120 s that a controller lets its workflows take."""
silence_max_s: Final = 3.0
"""How long a call waits before its controller is asked whether it answers at all."""
probe_time_max_s: Final = 2.0
"""How long a controller that is asked so has; then the call goes to another one."""
quiet_time_max_s: Final = 1.2
"""How long a call waits before its controller is asked the first time, for a warning alone."""
early_probe_time_max_s: Final = 0.5
attempts_max: Final = 10
retry_delay_min_s: Final = 0.05
retry_delay_max_s: Final = 5.0

_RETRIED: Final = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,  # a lost compare-and-set (docs/controller-api.md 2.2)
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
}
_ERRORS: Final[dict[grpc.StatusCode, type[PravegaError]]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.PERMISSION_DENIED: AccessDenied,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationFailed,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedOperation,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
}

_CONTROLLER: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]
_SILENT: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
_Failed = tuple[grpc.RpcError, int]
"""The error of an attempt, and the index of the controller that it was for."""
Refusal = Callable[[], PravegaError | None]
"""Finds out why a call will never succeed, which its status does not tell; None if it may."""


class _Hangs(grpc.RpcError):
    """The error of a call to a controller that keeps its connection open and answers nothing."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return str(self)


class ControllerTransport:
    """Calls one controller after the other until one answers. Safe to use from several threads.

    A controller that is silent for ``silence_max_s`` gets a small second call. Without an answer to that one it hangs:
    the call goes elsewhere, and the controller is avoided for a while. Workflows that take long are waited for.
    A call that waits for a controller says so in a warning within ``notice_time_max_s``.

    The controller's calls are idempotent or answer the second time what they would have answered the first
    (``createTransaction`` merely leaves a transaction to time out), so a call is repeated on every error that may pass.
    ``Unavailable``: nothing was done, as no attempt reached a controller, or the call changes nothing.
    ``UnknownOutcome``: an attempt may have reached one, and all ended in errors. A controller that answers UNAVAILABLE
    may have done a part of the work, or all of it.
    Without another attempt: ``AuthenticationFailed`` for certificates that are not trusted, ``ConfigurationError`` if
    only one side speaks TLS.
    ``InvalidArgument`` at once, when the client is closed before the call or meanwhile; ``UnknownOutcome`` of a change
    that may have reached a controller by then. Nothing is sent after that.
    """

    def __init__(
        self,
        controller: str | ControllerAddress,
        *,
        attempts: int = attempts_max,
        call_time_s: float = call_time_max_s,
        silence_s: float = silence_max_s,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """``sleep``: by default one that ends when the client is closed. ``credentials``: by default those of the
        address, else those that the environment names."""
        self.address = ControllerAddress.of(controller)
        self.credentials = credentials or self.address.credentials or credentials_from()
        self.endpoints = self.address.endpoints
        self._attempts = attempts
        self._call_time_s = call_time_s
        self._silence_s = silence_s
        self._choice = EndpointChoice(len(self.endpoints), now_s)
        self._notice = WaitNotice(now_s)
        self._now_s = now_s
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait
        self._channels = ControllerChannels(self.endpoints)

    def controller(
        self, method: str, request: Any, *, attempts: int | None = None, refusal: Refusal = lambda: None
    ) -> Any:
        """``attempts``: fewer than for other calls. ``refusal``: asked after an attempt that ended with INTERNAL."""
        return self._call(_CONTROLLER, method, request, attempts, refusal).result()

    def metadata_behind(self, method: str, request: Any) -> dict[str, str | bytes]:
        """The trailing metadata of the answer to a call of the controller, in place of the answer."""
        return dict(self._call(_CONTROLLER, method, request).trailing_metadata())

    def transaction_sets(self, method: str, request: Any) -> Any:
        return self._call(_service_of(request, "TransactionSets"), method, request).result()

    def commit_operations(self, method: str, request: Any) -> Any:
        return self._call(_service_of(request, "CommitOperations"), method, request).result()

    def cluster_health(self, method: str, request: Any) -> Any:
        return self._call(_service_of(request, "ClusterHealth"), method, request).result()

    def scope_quotas(self, method: str, request: Any) -> Any:
        return self._call(_service_of(request, "ScopeQuotas"), method, request).result()

    def stream_lags(self, method: str, request: Any) -> Any:
        return self._call(_service_of(request, "StreamLags"), method, request).result()

    def close(self) -> None:
        """Give the connections up, for good. Calls of other threads that are under way end, too."""
        self._closed.set()
        self._channels.close()

    def _call(
        self,
        service: ServiceDescriptor,
        method: str,
        request: Any,
        attempts: int | None = None,
        refusal: Refusal = lambda: None,
    ) -> Any:
        """The call of the attempt that was answered."""
        delay_s, refusals = retry_delay_min_s, TlsRefusals(self.endpoints)
        began_s, attempts = self._now_s(), attempts or self._attempts
        sent: _Failed | None = None
        for attempt in range(1, attempts + 1):
            self._check_open(method, sent)
            index = self._choice.next()
            try:
                answered = self._ask(index, service, method, request)
            except grpc.RpcError as error:
                failure: grpc.RpcError = error
            else:
                self._choice.answered(index)
                return answered
            if not was_unsent(failure):
                sent = failure, index
            self._check_open(method, sent)
            code = failure.code()
            if isinstance(failure, _Hangs) or code is grpc.StatusCode.UNAVAILABLE:
                self._choice.failed(index)
            if code is grpc.StatusCode.UNAVAILABLE:
                refusals.check(index, failure)
            if code is grpc.StatusCode.INTERNAL and (refused := refusal()) is not None:
                raise refused from failure
            if was_unsent(failure):
                self._channels.unreached(index)
            if code not in _RETRIED or attempt == attempts or lists_no_controllers(failure):
                break
            if self._now_s() - began_s + delay_s > notice_time_max_s:
                left_s = self._time_left_s(delay_s, attempts - attempt, isinstance(failure, _Hangs))
                self._notice.failed(self.endpoints[index], failure, left_s)
            self._sleep(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(delay_s * 2, retry_delay_max_s)
        raise self._error_of(method, (failure, index), sent) from failure

    def _check_open(self, method: str, sent: _Failed | None) -> None:
        """Refuse a call of a closed client. Closing ends an attempt that was ``sent``, which a controller may have."""
        if not self._closed.is_set():
            return
        name = f"the client of {', '.join(map(str, self.endpoints))}"
        if sent is None or is_question(method):
            raise InvalidArgument(f"{name} is closed; make another one")
        raise UnknownOutcome(f"{method}: {name} was closed before an answer came, and the call may have been done")

    def _ask(self, index: int, service: ServiceDescriptor, method: str, request: Any) -> Any:
        """The call, once it is answered."""
        channel = self._channels.of(index)
        call = self._begin(channel, unary_call(channel, service, method), request)
        silence_s = self._silence_s
        if silence_s > quiet_time_max_s + early_probe_time_max_s:
            try:
                call.result(timeout=quiet_time_max_s)
                return call
            except grpc.FutureTimeoutError:
                silence_s -= quiet_time_max_s
                if not self._answers(channel, early_probe_time_max_s):
                    silence_s -= early_probe_time_max_s
                    self._notice.silent(self.endpoints[index], self._silence_s - silence_s)
        while True:
            try:
                call.result(timeout=silence_s)
                return call
            except grpc.FutureTimeoutError:
                if not self._answers(channel, probe_time_max_s):
                    call.cancel()
                    raise _Hangs(f"no answer in {self._silence_s:g} s, nor to a question after it") from None
                silence_s = self._silence_s

    def _begin(self, channel: grpc.Channel, callee: Any, request: Any) -> Any:
        """The call, once it is given to gRPC."""
        try:
            return callee.future(request, timeout=self._call_time_s, metadata=self._headers())
        except ValueError as error:
            if self._channels.has(channel):
                raise
            raise Unsent("the connection was given up meanwhile") from error

    def _time_left_s(self, delay_s: float, attempts: int, hangs: bool) -> float:
        """Bounds the time of the attempts that are left, when each fails like the last."""
        attempt_s = self._silence_s + probe_time_max_s if hangs else 0.0
        delays_s = [min(delay_s * 2.0**step, retry_delay_max_s) for step in range(attempts)]
        return sum(delays_s) + attempts * attempt_s

    def _answers(self, channel: grpc.Channel, time_max_s: float) -> bool:
        """Whether the controller answers anything, be it with an error."""
        try:
            ask = unary_call(channel, _CONTROLLER, "getDelegationToken")
            ask(pb.StreamInfo(), timeout=time_max_s, metadata=self._headers())
        except grpc.RpcError as error:
            return error.code() not in _SILENT
        except ValueError:
            return True  # The channel was closed meanwhile, and with it the call itself has ended.
        return True

    def _headers(self) -> tuple[tuple[str, str], ...] | None:
        return None if self.credentials is None else (("authorization", self.credentials.header()),)

    def _error_of(self, method: str, last: _Failed, sent: _Failed | None) -> PravegaError:
        """``sent``: the last attempt that may have reached a controller; ``None`` if none can have."""
        nobody = f"no controller answers at {self.endpoints[last[1]]} ({short_reason(last[0])})"
        if sent is None:
            return Unavailable(f"{nobody}; is it running there?")
        failure, index = sent
        code = failure.code()
        made = UnsupportedOperation if lists_no_controllers(failure) else _ERRORS.get(code, UnknownOutcome)
        if made is Unavailable and not is_question(method):
            made = UnknownOutcome
        status = f" ({code.name})" if made is UnknownOutcome else ""
        since = "" if failure is last[0] else f"; since then {nobody}"
        return made(f"controller {self.endpoints[index]}, {method}: {failure.details()}{status}{since}")


def _service_of(request: Any, name: str) -> ServiceDescriptor:
    """Finds a service beside the messages of its requests: only who calls one imports it."""
    found: ServiceDescriptor = request.DESCRIPTOR.file.services_by_name[name]
    return found
