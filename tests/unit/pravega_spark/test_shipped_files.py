"""Checks the look-up of shipped files in a source tree; ``tests/spark/test_wheel.py`` checks it in an installation."""

from __future__ import annotations

import pytest

from pravega_common.errors import ConfigurationError
from pravega_spark import shipped_files
from pravega_spark.shipped_files import shipped_file, shipped_names
from tests.support.repository import ROOT


def test_files_and_folders_by_their_names() -> None:
    assert shipped_file("conf/controller.toml") == ROOT / "conf" / "controller.toml"
    assert shipped_file("conf") == ROOT / "conf"
    assert all((ROOT / name).is_file() for name in shipped_names())


@pytest.mark.parametrize(
    "name", ["conf/other.toml", "con", "tests", "../etc/passwd", "conf/../setup.cfg", "/etc/passwd"]
)
def test_another_name_is_refused_with_those_that_are_there(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no file .* there are jar, conf/controller\.toml"):
        shipped_file(name)


def test_modules_without_their_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_files, "_candidates", lambda: iter(()))
    with pytest.raises(ConfigurationError, match=r"without share/pravega-spark.*from its wheel"):
        shipped_file("conf")
