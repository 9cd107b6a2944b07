"""Makes the calls of an adapter fail at random: before they act, or after they did."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from pravega_common.errors import Unavailable, UnknownOutcome


class Faulty:
    """Every coroutine method of the wrapped object fails with the given probability.

    A third of the failures are certain (nothing was done), a third unknown without an effect, a third unknown after it.
    """

    def __init__(self, inner: Any, random: Random, probability: float) -> None:
        self._inner = inner
        self._random = random
        self.probability = probability
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method: Callable[..., Awaitable[Any]] = getattr(self._inner, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            if self._random.random() >= self.probability:
                return await method(*arguments, **named)
            self.failures += 1
            kind = self._random.randrange(3)
            if kind == 0:
                raise Unavailable(f"{name}: refused by the test")
            if kind == 2:
                await method(*arguments, **named)
            raise UnknownOutcome(f"{name}: answer lost by the test")

        return call
