from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, running_browser


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    """A browser of one test, whose console must stay without problems.

    A test names it behind what serves its pages: so it ends before that, and has nothing to complain of.
    """
    async with running_browser(tmp_path / "browser") as started:
        yield started
        assert not await started.problems()
