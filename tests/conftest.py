"""Keeps the logs of all suites short, and property tests without a limit of time.

structlog's own default draws every frame of a traceback with all its locals, which took most of the time of tests where
hundreds of processes die. Hypothesis's own default fails an example that takes 200 ms, or is slow to make, which on a
busy machine says nothing of the code.
"""

from __future__ import annotations

import structlog

structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

try:
    from hypothesis import HealthCheck, settings
except ImportError:
    # The environments of other minors of Spark have no property tests, and no Hypothesis.
    pass
else:
    settings.register_profile("without-time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("without-time")
