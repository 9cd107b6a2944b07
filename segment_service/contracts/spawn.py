"""Names the type of ``Service.spawn``: runs a coroutine as a named task of its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]
