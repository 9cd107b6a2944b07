"""Finds the streams of a read: those that its options name, or those of a scope whose names match a pattern."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from pravega_common.errors import ConfigurationError, InvalidArgument, NotFound, Unavailable
from pravega_common.names import is_internal_stream, scoped_name, split_scoped_name
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.provisioning import provisioned_gateway
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.data_loss import gone

_log = logging.getLogger(__name__)

looks_max: Final = 20
"""Looks for a stream whose segments are gone: those of one that is being deleted go before it."""
look_pause_s: Final = 0.1


def streams_of(options: ReadOptions, gateway: StreamGateway) -> list[str]:
    """The streams by ``scope/stream``, as the options name them, or sorted.

    A pattern costs one list of the scope, by pages. ``ConfigurationError`` where more match than the options allow.
    """
    pattern = options.stream_pattern
    if pattern is None:
        return [scoped_name(*name) for name in options.streams]
    scope = options.scope
    found = [
        scoped_name(scope, name)
        for name in gateway.list_streams(scope)
        if pattern.fullmatch(name) and not is_internal_stream(scope, name)
    ]
    if len(found) > options.max_streams:
        raise ConfigurationError(
            f"{len(found)} streams of scope '{scope}' match stream_pattern '{pattern.pattern}', and max_streams is "
            f"{options.max_streams}: narrow the pattern, or raise the limit"
        )
    return sorted(found)


def some_streams_of(options: ReadOptions, gateway: StreamGateway) -> list[str]:
    """The same, and ``ConfigurationError`` where no stream matches."""
    found = streams_of(options, gateway)
    if not found and options.stream_pattern is not None:
        raise ConfigurationError(_no_match(options))
    return found


def has_gone(options: ReadOptions, gateway: StreamGateway, scope: str, stream: str) -> bool:
    """Whether a stream that a pattern found, and that is not all there, is being made or deleted, and not damaged."""
    if options.stream_pattern is None:
        return False
    for _ in range(looks_max):
        if not gateway.stream_exists(scope, stream):
            _log.info("stream %s is gone since the pattern found it, or not made yet", scoped_name(scope, stream))
            return True
        time.sleep(look_pause_s)
    return False


class ReadStreams:
    """The streams of one query, which come and go where a pattern finds them."""

    def __init__(self, options: ReadOptions, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._monotonic_s = monotonic_s
        self._names: list[str] = []
        self._looked_s: float | None = None
        self._given_up: set[str] = set()
        """Those that were said to be given up, and have not come again since."""

    def names(self) -> list[str]:
        """By ``scope/stream``; looks for them at the first call. Raises as ``streams_of``."""
        if self._looked_s is None:
            self._look()
        return self._names

    def look_again(self, *, at_once: bool = False) -> bool:
        """Look for streams that came or went, once in ``stream_discovery_interval`` or ``at_once``.

        A controller that does not answer is asked again later: the streams that are known are read meanwhile. Returns
        whether those of now are known.
        """
        now_s = self._monotonic_s()
        if self._options.stream_pattern is None or self._looked_s is None:
            return True
        if not at_once and now_s - self._looked_s < self._options.stream_discovery_interval / 1000:
            return False
        try:
            self._look()
        except Unavailable as error:
            self._looked_s = now_s
            _log.warning("scope %s cannot be searched for new streams: %s", self._options.scope, error)
            return False
        return True

    def check_left(self, before: Collection[str], names: Collection[str]) -> None:
        """Refuse to give up streams that a checkpoint has a position in, unless lost data may be skipped.

        ``InvalidArgument`` for one that the options do not name, ``DataCorruption`` for one that is deleted.
        """
        self._given_up -= set(names)
        left = set(before) - set(names) - self._given_up
        if not left:
            return
        listed, pattern = ", ".join(sorted(left)), self._options.stream_pattern
        if not self._options.fail_on_data_loss:
            _log.warning("the position of the checkpoint in %s is given up: nothing of it is read any more", listed)
            self._given_up |= left
            return
        for scope, stream in map(split_scoped_name, sorted(left)):
            if pattern is not None and scope == self._options.scope and pattern.fullmatch(stream):
                raise gone(scope, stream)
        raise InvalidArgument(
            f"the checkpoint has a position in {listed}, which the option "
            f"'{'stream' if pattern is None else 'stream_pattern'}' does not name; name it, or set "
            "fail_on_data_loss=false to give it up"
        )

    def _look(self) -> None:
        gateway = provisioned_gateway(self._options)
        try:
            found = streams_of(self._options, gateway)
        except NotFound:  # The scope is deleted.
            found = []
        # What a list leaves out is asked for by its name: a stream that is taken for deleted is read no more.
        kept = [name for name in self._names if name not in found and gateway.stream_exists(*split_scoped_name(name))]
        self._names = sorted({*found, *kept}) if kept else found
        if self._looked_s is None and not found:
            _log.warning("%s; the query waits for one", _no_match(self._options))
        self._looked_s = self._monotonic_s()


def _no_match(options: ReadOptions) -> str:
    pattern = "" if options.stream_pattern is None else options.stream_pattern.pattern
    return f"no stream of scope '{options.scope}' matches stream_pattern '{pattern}'"
