"""Finds the credentials of an S3 server: in the settings, the environment, a file, or the role of the machine."""

from __future__ import annotations

import configparser
from datetime import datetime
from typing import Final

import urllib3
from minio.credentials.credentials import Credentials
from minio.credentials.providers import (
    AWSConfigProvider,
    ChainedProvider,
    EnvAWSProvider,
    EnvMinioProvider,
    IamAwsProvider,
    Provider,
    StaticProvider,
)
from minio.error import MinioException

from pravega_common.runtime.clock import Clock
from segment_service.storage.s3_access import S3Access

role_connect_time_max_s: Final = 2.0
"""Seconds until the machine's credential service must be reached; only machines of a cloud have one."""
role_read_time_max_s: Final = 5.0
file_period_s: Final = 5.0
"""Seconds after which the file of credentials is read again: keys are rotated there."""

_PAST: Final = datetime(1970, 1, 1)


class CredentialsMissing(MinioException):
    """The settings, the environment, a file and the machine's role have no credentials."""


def credentials_provider(access: S3Access, clock: Clock) -> Provider:
    """Gives credentials, and new ones before they expire where they do; those of a file as they are now."""
    if access.access_key:
        return StaticProvider(access.access_key, access.secret_key, access.session_token or None)
    timeout = urllib3.Timeout(connect=role_connect_time_max_s, read=role_read_time_max_s)
    role = IamAwsProvider(http_client=urllib3.PoolManager(timeout=timeout, retries=False))
    return _Named(ChainedProvider([EnvAWSProvider(), EnvMinioProvider(), _File(clock), role]))


class _File(AWSConfigProvider):
    """Reads the file again from time to time; one that is just being written, or gone, changes nothing.

    Its credentials count as expired, so that the chain, which keeps others, asks for them with each call.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._found: Credentials | None = None
        self._due_s = 0.0

    def retrieve(self) -> Credentials:
        now_s = self._clock.monotonic_s()
        if self._found is None or now_s >= self._due_s:
            self._due_s = now_s + file_period_s
            try:
                found = super().retrieve()
                self._found = Credentials(found.access_key, found.secret_key, found.session_token, _PAST)
            except (ValueError, OSError, configparser.Error) as error:
                if self._found is None:
                    raise ValueError(str(error)) from error
        return self._found


class _Named(Provider):
    """Names what is missing, in an error of the client's own tree: that of the chain is a ``ValueError``."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    def retrieve(self) -> Credentials:
        try:
            return self._inner.retrieve()
        except (ValueError, urllib3.exceptions.HTTPError) as error:
            raise CredentialsMissing(
                "no credentials: set tier2.access_key and tier2.secret_key, AWS_ACCESS_KEY_ID and "
                f"AWS_SECRET_ACCESS_KEY, a credentials file, or give the machine a role ({error})"
            ) from error
