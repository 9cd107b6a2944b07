"""The line about the profile counts what is missing, and not what could not be seen."""

from __future__ import annotations

import pytest

from pravega_spark.commands.findings import Finding
from pravega_spark.commands.security_diagnosis import _together

ON = Finding("security: TLS", True, "on")
OFF = Finding("security: authentication", None, "off", "set it")
DENIED = Finding("security: keys of the cluster", None, "not permitted", "ask an operator", is_unknown=True)
PROD = 'set security.profile = "prod" at every service, which names what is missing (docs/security.md 5)'


@pytest.mark.parametrize(
    ("found", "profile"),
    [
        ([ON], (True, "as prod asks, as far as a client sees", "", False)),
        ([ON, OFF], (None, "dev: prod would ask for authentication", PROD, False)),
        (
            [ON, DENIED],
            (None, "as prod asks, as far as a client sees; not known: keys of the cluster", "ask an operator", True),
        ),
        (
            [OFF, DENIED],
            (None, "dev: prod would ask for authentication; not known: keys of the cluster", PROD, False),
        ),
    ],
)
def test_what_is_not_known_is_not_missing(found: list[Finding], profile: tuple[bool | None, str, str, bool]) -> None:
    *each, last = _together(found)
    assert each == found
    assert (last.name, last.is_ok, last.detail, last.remedy, last.is_unknown) == ("security: profile", *profile)
