"""Writes the bill of materials of a wheel beside it, in the form of CycloneDX 1.5 (JSON).

It names the wheel with its hash, and every package that the wheel requires itself or through others, with the version
that scripts/requirements pins; extras are among them, each marked as optional.

usage: write_sbom.py WHEEL
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Final

LOCK: Final = Path(__file__).parents[1] / "requirements" / "python3.11-linux-x86_64.txt"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_LOCKED: Final = re.compile(r"^(\S+)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)
_NOT_SHIPPED: Final = ("test", "dev", "versions-test")
"""Extras for work on the project."""


def name_of(requirement: str) -> str:
    found = _NAME.match(requirement)
    return "" if found is None else found.group().lower().replace("_", "-").replace(".", "-")


def locked(text: str) -> dict[str, tuple[str, str]]:
    """Versions and hashes of a list with hashes, by name."""
    return {name_of(name): (version, digest) for name, version, digest in _LOCKED.findall(text)}


def required_by(requirements: Sequence[str]) -> dict[str, bool]:
    """The names of a wheel's requirements, and whether all users of the wheel need them."""
    found: dict[str, bool] = {}
    for requirement in requirements:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if extra is None or extra.group(1).replace("_", "-") not in _NOT_SHIPPED:
            name = name_of(requirement)
            found[name] = found.get(name, False) or extra is None
    return found


def with_others(direct: Mapping[str, bool], versions: Mapping[str, object]) -> dict[str, bool]:
    """The same with what these require in turn, as far as the list with hashes has it."""
    found = {name: needed for name, needed in direct.items() if name != "pravega-spark"}
    left = list(found)
    while left:
        name = left.pop()
        for requirement in _requires(name):
            other = name_of(requirement)
            if (
                other in versions
                and "extra ==" not in requirement
                and (other not in found or found[name] > found[other])
            ):
                found[other] = found[name]
                left.append(other)
    return found


def _requires(name: str) -> Sequence[str]:
    try:
        return requires(name) or ()
    except PackageNotFoundError:
        return ()


def bill_of(wheel: Path, lock: str) -> dict[str, Any]:
    """The bill of materials of a wheel; the same for the same wheel and list."""
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        fields = HeaderParser().parsestr(archive.read(metadata).decode())
    versions, digest = locked(lock), hashlib.sha256(wheel.read_bytes()).hexdigest()
    needed = with_others(required_by(fields.get_all("Requires-Dist") or []), versions)
    own = _component("pravega-spark", fields["Version"], digest) | {"licenses": [{"license": {"id": "Apache-2.0"}}]}
    components = [
        _component(name, *versions[name]) | {"scope": "required" if needed[name] else "optional"}
        for name in sorted(needed)
        if name in versions
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(digest[:32], version=4)}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in components]}],
    }


def _component(name: str, version: str, digest: str) -> dict[str, Any]:
    package = f"pkg:pypi/{name}@{version}"
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "library", "bom-ref": package, "name": name, "version": version, "purl": package, "hashes": hashes}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.with_suffix(".cdx.json").write_text(json.dumps(bill_of(path, LOCK.read_text()), indent=2) + "\n")
