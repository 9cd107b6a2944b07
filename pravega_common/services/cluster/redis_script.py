"""Names Lua scripts for Redis by their digest. No shebang (Redis 6.2), small arguments only, all keys declared."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Script:
    body: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha1(self.body.encode(), usedforsecurity=False).hexdigest())
