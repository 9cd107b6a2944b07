"""Leaves long tests out, keeps the logs of all tests short, and property tests without a limit of time.

Tests that are marked ``long`` show in more cases what others of their file show in some. They run with ``--long``, and
when a command names a test of a file (``file.py::test``). Some others go through a part of their cases without it.

structlog's own default draws every frame of a traceback with all its locals, which takes nine tenths of the time of
tests where hundreds of processes die. So no test leaves that, or settings of its own, to the tests behind it.
Hypothesis's own default fails an example that takes 200 ms, or is slow to make, which on a busy machine says nothing of
the code.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
_settings_of_the_log = structlog.get_config()

try:
    from hypothesis import HealthCheck, settings
except ImportError:
    # The environments of other minors of Spark have no property tests, and no Hypothesis.
    pass
else:
    settings.register_profile("without-time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("without-time")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that are marked long, too")


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """What a test changed of the log's settings, or a program that it ran, ends with the test."""
    yield
    structlog.configure(**_settings_of_the_log)


@pytest.fixture
def no_log() -> None:
    """For tests of many faults, which would fill the report."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


@pytest.fixture
def all_cases(request: pytest.FixtureRequest) -> bool:
    """Whether a test that goes through many cases by itself is to go through all of them, not a part."""
    return bool(request.config.getoption("--long"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long") or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
