"""Makes parts of an object at their first use, once for all threads (``functools.cached_property`` may make two)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class MadeOnce(Generic[T]):
    """A property whose value is made at the first use and kept in the object, among its other attributes.

    A second thread waits until the first has made it. One property may use another one, in no circle.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> MadeOnce[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> MadeOnce[T] | T:
        if instance is None:
            return self
        kept = vars(instance)
        with self._lock:
            if self._name not in kept:
                kept[self._name] = self._make(instance)
        value: T = kept[self._name]
        return value
