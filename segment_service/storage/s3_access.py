"""Defines with which credentials, and with whose certificate, a store reaches an S3 server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class S3Access:
    """The credentials: those given, or without an access key what the usual places have (``s3_credentials.py``).

    ``ca_file``: PEM of who signed the server's certificate; empty for the authorities of certifi. ``may_make_bucket``:
    whether a bucket that is missing is made.
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    ca_file: str = ""
    may_make_bucket: bool = False
