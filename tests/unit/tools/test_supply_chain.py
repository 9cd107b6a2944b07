"""Tests of the bill of materials of a wheel, of the list with hashes, and of the question for vulnerabilities."""

from __future__ import annotations

import importlib.util
import json
import re
import stat
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.support.repository import ROOT

LOCK: Final = "# a comment\n" + "".join(
    f"{name} --hash=sha256:{char * 64}\n"
    for name, char in (("redis==8.1.0", "a"), ("numpy==2.4.6", "b"), ("pytest==9.2.0", "d"))
)


def module(name: str) -> ModuleType:
    """A program of ``scripts/lib``, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "lib" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_bill_names_what_a_wheel_requires(tmp_path: Path) -> None:
    wheel = tmp_path / "pravega_spark-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "pravega_spark-1.2.3.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: pravega-spark\nVersion: 1.2.3\nRequires-Dist: numpy>=1.26\n"
            'Requires-Dist: redis[hiredis]>=7.2; extra == "services"\nRequires-Dist: ruff>=0.7; extra == "dev"\n'
            'Requires-Dist: pytest>=8.3; extra == "versions-test"\n',
        )
    sbom = module("write_sbom")
    bill = sbom.bill_of(wheel, LOCK)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/pravega-spark@1.2.3"
    found = {
        part["name"]: (part["version"], part["scope"], part["hashes"][0]["content"]) for part in bill["components"]
    }
    assert found == {"numpy": ("2.4.6", "required", "b" * 64), "redis": ("8.1.0", "optional", "a" * 64)}
    assert bill["dependencies"][0]["dependsOn"] == [part["bom-ref"] for part in bill["components"]]
    assert bill == sbom.bill_of(wheel, LOCK)


def test_a_list_is_written_from_the_report_of_pip() -> None:
    item = {
        "metadata": {"name": "Typing_Extensions", "version": "1.0"},
        "download_info": {"url": "https://a.mirror/x.whl", "archive_info": {"hashes": {"sha256": "c" * 64}}},
    }
    assert module("write_lock").locked_lines({"install": [item]}) == [
        f"typing-extensions==1.0 --hash=sha256:{'c' * 64}"
    ]


def test_the_list_has_what_the_first_release_of_its_python_needs() -> None:
    """Debian 12 has Python 3.11.2, for which redis needs one package more than from 3.11.3 on."""
    written = module("write_lock")
    needed = {re.split(r"[<>=!~]", item)[0] for item in written.missing_with_first_release()}
    file = written.FOLDER / written.lock_name()
    listed = module("write_sbom").locked(file.read_text()) if file.exists() else needed
    assert needed <= set(listed), "elsewhere the ranges of setup.cfg are installed"


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}]}, 0, "no known vulnerability in 1 packages"),
        ({"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1"}]}]}, 1, "a 1 is vulnerable: X-1"),
        (None, 0, "skipped: pip-audit could not ask: no route to the index"),
    ],
)
def test_vulnerabilities_fail_and_a_missing_network_does_not(
    answer: object, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "pip-audit"
    given = f"open(sys.argv[sys.argv.index('--output') + 1], 'w').write({json.dumps(answer)!r})"
    failing = "sys.exit('no route to the index')"
    program.write_text(f"#!{sys.executable}\nimport sys\n{given if answer else failing}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    file = tmp_path / "list.txt"
    file.write_text(LOCK)
    assert module("audit_packages").audit(str(program), file) == status
    assert said in capsys.readouterr().out


def test_without_a_program_the_question_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = module("audit_packages")
    monkeypatch.setattr(audit.shutil, "which", lambda *_, **__: None)
    assert audit.main() == 0
    assert capsys.readouterr().out.startswith("skipped: there is no pip-audit")
