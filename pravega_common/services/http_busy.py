"""Defines the answer of an HTTP server that has as many requests as it takes, for it and for those who ask it."""

from __future__ import annotations

from typing import Final

busy_reason: Final = "the limit of connections is reached, try again later"
"""With 503: as many requests as there may be connections are under way. Who answers this is alive."""
