"""Serves one method and path of the REST API by a typed handler.

What a handler takes and gives is read from its annotations, and used for the checks as well as for the OpenAPI
document (``openapi.py``), so that the two cannot differ. Its parameters: those of the path by their names (texts),
``query`` (a ``RestQuery``) and ``body`` (a ``RestBody``). Its result: a value that becomes JSON, None for an empty
answer, or an asynchronous iterator whose items become a JSON array as they come; those of a live operation become
server-sent events (``live.py``).
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_type_hints

import structlog
from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from controller_service.api.rest.bodies import RestBody, RestQuery
from controller_service.api.rest.live import LIVE_ANSWERS
from controller_service.api.rest.rest_times import REST_CALLS
from pravega_common.errors import InvalidArgument
from pravega_common.invariants import check
from pravega_common.services.http_connections import body_time_max_s

JSON_TYPE: Final = "application/json"
_problems_max: Final = 3
"""Problems of a body that a refusal names."""
_value_chars_max: Final = 40

log = structlog.get_logger(service="rest-api")


@dataclass(frozen=True)
class RestOperation:
    """``errors``: the statuses below 500 that it may answer with, besides ``status``. ``status_if``: the status of an
    answer, for an operation that has more than one. ``is_live``: the items that the handler gives are sent as events,
    for as long as the client listens."""

    method: str
    path: str
    summary: str
    handle: Callable[..., Any]
    errors: tuple[int, ...] = ()
    status: int = 200
    tag: str = ""
    status_if: Callable[[Any], int] | None = None
    is_live: bool = False
    path_names: tuple[str, ...] = field(init=False)
    query: type[RestQuery] | None = field(init=False)
    body: type[RestBody] | None = field(init=False)
    answer: TypeAdapter[Any] | None = field(init=False)
    """The type of the answer, or of an item of one that is given item by item; None for an empty answer."""

    def __post_init__(self) -> None:
        hints = get_type_hints(self.handle)
        result = hints.pop("return")
        names = tuple(re.findall(r"\{(\w+)\}", self.path))
        query, body = hints.pop("query", None), hints.pop("body", None)
        check(tuple(hints) == names, "handler does not take its path's parameters", path=self.path, takes=list(hints))
        item = get_args(result)[0] if self.gives_items else result
        for name, value in (("path_names", names), ("query", query), ("body", body)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "answer", None if item is type(None) else TypeAdapter(item))

    @property
    def gives_items(self) -> bool:
        return inspect.isasyncgenfunction(self.handle)

    def route(self) -> web.RouteDef:
        return web.route(self.method, self.path, self._serve)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.is_live:  # It ends when its listener goes.
            return await self._answer(request)
        with REST_CALLS.labels(self.method, self.path).time():
            return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        arguments: dict[str, Any] = {name: _printable(request.match_info[name]) for name in self.path_names}
        if self.query is not None:
            arguments["query"] = _checked(lambda kind: kind.model_validate(dict(request.query)), self.query)
        if self.body is not None:
            content = await _read_json(request)
            arguments["body"] = _checked(lambda kind: kind.model_validate_json(content), self.body)
        if self.is_live and self.answer is not None:
            answer = self.answer
            events = (_json(answer, item) async for item in self.handle(**arguments))
            return await request.app[LIVE_ANSWERS].serve(request, events)
        if self.gives_items and self.answer is not None:
            return await _serve_items(request, self.handle(**arguments), self.answer)
        result = await self.handle(**arguments)
        if self.answer is None:
            return web.Response(status=self.status)
        content = _json(self.answer, result)
        status = self.status if self.status_if is None else self.status_if(result)
        return web.Response(body=content, status=status, content_type=JSON_TYPE, charset="utf-8")


def _printable(name: str) -> str:
    if not name.isprintable():
        raise InvalidArgument(f"{name[:_value_chars_max]!r} in the path holds a character that cannot be printed")
    return name


async def _read_json(request: web.Request) -> bytes:
    """The body; 415 if it is said to be something else than JSON, 408 if it does not come in time, ``InvalidArgument``
    if it is not encoded as its head says."""
    if request.content_type != JSON_TYPE:
        raise web.HTTPUnsupportedMediaType(reason=f"the body must be {JSON_TYPE}")
    try:
        async with asyncio.timeout(body_time_max_s):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"the body did not come within {body_time_max_s:.0f} s") from None
    except web.RequestPayloadError:
        raise InvalidArgument("the body is not encoded as Content-Encoding or Transfer-Encoding say") from None


async def _serve_items(request: web.Request, items: AsyncIterator[Any], kind: TypeAdapter[Any]) -> web.StreamResponse:
    """An error in the middle ends the answer early, without its last bracket, and the connection with it: the head of
    another answer would be taken for a part of this one."""
    response = web.StreamResponse(headers={"Content-Type": f"{JSON_TYPE}; charset=utf-8"})
    separator = b"["
    try:
        async for item in items:
            if not response.prepared:
                await response.prepare(request)
            await response.write(separator + _json(kind, item))
            separator = b","
    except Exception as error:
        if not response.prepared or request.transport is None:
            raise
        log.warning("an answer ended early", path=request.path, error=repr(error))
        request.transport.abort()
        return response
    if not response.prepared:
        return web.json_response([])
    await response.write(b"]")
    await response.write_eof()
    return response


def _json(answer_type: TypeAdapter[Any], value: Any) -> bytes:
    return answer_type.dump_json(value, by_alias=True, exclude_none=True)


def _checked(parse: Callable[[Any], Any], kind: type[Any]) -> Any:
    try:
        return parse(kind)
    except ValidationError as error:
        raise InvalidArgument(_problems(error)) from None


def _problems(error: ValidationError) -> str:
    """Each with its place, its value and what is expected, on one line."""
    found = error.errors(include_url=False, include_context=False)
    texts = []
    for problem in found[:_problems_max]:
        place = ".".join(map(str, problem["loc"])) or "the body"
        value = repr(problem["input"])
        shown = value if len(value) <= _value_chars_max else value[:_value_chars_max] + "…"
        texts.append(f"{place}: {problem['msg']} (given {shown})")
    if len(found) > _problems_max:
        texts.append(f"and {len(found) - _problems_max} more")
    return "; ".join(texts)
