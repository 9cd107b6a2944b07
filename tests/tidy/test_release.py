"""Checks that the version, the changelog and the tags of the repository agree."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess

import pytest

from tests.support.repository import ROOT

VERSION = re.compile(r"\d+\.\d+\.\d+")
RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", re.MULTILINE)


def version_of_the_code() -> str:
    tree = ast.parse((ROOT / "pravega_common" / "version.py").read_text())
    [value] = [node.value for node in tree.body if isinstance(node, ast.AnnAssign)]
    found = ast.literal_eval(value) if value is not None else ""
    assert isinstance(found, str)
    return found


def releases() -> list[str]:
    return RELEASE.findall((ROOT / "CHANGELOG.md").read_text())


def git(*arguments: str) -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are no clone")
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_the_newest_release_of_the_changelog_is_the_version() -> None:
    assert VERSION.fullmatch(version_of_the_code())
    assert releases()[0] == version_of_the_code()


def test_releases_are_listed_newest_first() -> None:
    assert releases() == sorted(releases(), key=numbers, reverse=True)


def test_changes_that_are_not_released_have_a_place() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_package_takes_its_version_from_the_code() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["version"] == "attr: pravega_common.version.__version__"


def test_every_tag_is_a_release_of_the_changelog() -> None:
    assert {tag.removeprefix("v") for tag in git("tag", "--list", "v*")} <= set(releases())


def test_a_tag_of_this_commit_is_the_version() -> None:
    assert set(git("tag", "--points-at", "HEAD", "--list", "v*")) <= {f"v{version_of_the_code()}"}
