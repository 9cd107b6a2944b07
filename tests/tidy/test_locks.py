"""Checks the lists of packages with hashes in ``scripts/requirements``, and that the scripts install nothing else."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.tidy.test_requirements import distribution_of, requirement_lists
from tests.tidy.test_tidy import ROOT

FOLDER: Final = ROOT / "scripts" / "requirements"
LOCK: Final = FOLDER / "python3.11-linux-x86_64.txt"
_LINE: Final = re.compile(r"([a-z0-9.-]+)==([0-9a-z.]+)( --hash=sha256:[0-9a-f]{64})+")
_LEAST: Final = re.compile(r"^ +([A-Za-z0-9-]+)(?:\[\w+\])?[>=]=([\d.]+)", re.MULTILINE)


def locked() -> dict[str, str]:
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    return {found.group(1): found.group(2) for line in lines if (found := _LINE.fullmatch(line))}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.name)
def test_every_package_has_a_version_and_a_hash_and_no_index_is_named(path) -> None:  # type: ignore[no-untyped-def]
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines and not [line for line in lines if not _LINE.fullmatch(line)]


def test_the_list_has_everything_that_is_required() -> None:
    required = {distribution_of(item).lower() for items in requirement_lists().values() for item in items}
    assert not required - {"pravega-spark"} - locked().keys()


def test_the_list_is_within_the_ranges() -> None:
    versions = locked()
    least = [(name.lower(), version) for name, version in _LEAST.findall((ROOT / "setup.cfg").read_text())]
    assert len(least) > 30
    assert not [(name, version) for name, version in least if numbers(versions[name]) < numbers(version)]


def test_setup_installs_by_hash_from_ranges_or_a_pinned_program_and_starts_no_service() -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / "scripts" / "setup").read_text())
    for line in text.splitlines():
        if "-m pip install" in line:
            assert re.search(r"--require-hashes|--editable|--upgrade pip|\$name==", line), line
    # The package of that name starts a server, now and at every boot.
    assert "package_install redis-server" not in text
