"""Lets calls through that their caller may make, and puts delegation tokens into the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc

from controller_service.api.grpc.call_limits import peer_host
from controller_service.api.grpc.handlers import Behaviour, with_behaviour
from controller_service.api.grpc.method_access import METHODS, MethodAccess
from pravega_common.errors import AccessDenied
from pravega_common.names import READER_GROUP_PREFIX
from pravega_common.resources import Permission, stream_resource
from pravega_common.services.security.delegation_tokens import DelegationTokens
from pravega_common.services.security.principal import CALLER, Principal

AUTHORIZATION: Final = "authorization"


class Authentication(Protocol):
    """Finds out who a caller is."""

    @property
    def challenge(self) -> str:
        """The schemes that it takes, as in HTTP's ``WWW-Authenticate``."""
        ...

    async def principal(self, header: str, host: str = "") -> Principal:
        """The principal of an ``Authorization`` header, which may be empty; ``AuthenticationFailed``.

        ``host`` is the caller's: an authentication may limit how many of its callers it serves at a time.
        """
        ...


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Authenticates callers, and gives them tokens for segment stores."""

    authentication: Authentication
    tokens: DelegationTokens

    def token(self, caller: Principal, scope: str, stream: str, others: Iterable[str] = ()) -> str:
        """A token for one stream, and other resources of its name, with exactly what the caller may do there; empty if
        that is nothing.

        Readers write the state of their group, so who may read a group may update the stream of its state.
        """
        resource = stream_resource(scope, stream)
        granted = {name: caller.entries.permission(name) for name in (resource, *others)}
        if stream.startswith(READER_GROUP_PREFIX) and granted[resource] is not Permission.NONE:
            granted[resource] = Permission.READ_UPDATE
        if not any(granted.values()):
            return ""
        return self.tokens.sign(caller.name, granted)


class AccessGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses what is not permitted before the handler sees it; the refusal is mapped as every other error."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        headers = dict(handler_call_details.invocation_metadata or ())
        return with_behaviour(
            handler,
            self._guarded(handler.unary_unary, method, METHODS.get(method), str(headers.get(AUTHORIZATION, ""))),
        )

    def _guarded(self, behaviour: Behaviour | None, method: str, access: MethodAccess | None, header: str) -> Behaviour:
        async def call(request: Any, context: Any) -> Any:
            caller = await self._access.authentication.principal(header, peer_host(context.peer()))
            CALLER.set(caller)
            if access is None or behaviour is None:
                raise AccessDenied(f"{method} is not a call that anybody may make")
            instead = access.instead(request)
            if not instead or not all(caller.entries.permits(*need) for need in instead):
                for resource, needed in access.needs(request):
                    caller.require(resource, needed)
            answer = await behaviour(request, context)
            stream = access.token_for(request)
            if stream is not None:
                answer.delegationToken = self._access.token(caller, *stream, [resource for resource, _ in instead])
            return answer

        return call
