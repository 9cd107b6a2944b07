"""Adds puts with a CRC32C to the ``minio`` client, in place of the SHA-256 or MD5 that it makes of each byte.

The client signs a SHA-256 of the body over HTTP, and sends its MD5 over HTTPS: 0.6 and 1.4 s of CPU a GB. S3's header
``x-amz-checksum-crc32c`` takes a tenth of that. A server that knows it refuses a body that does not match
(``BadDigest``, MinIO: ``XAmzContentChecksumMismatch``) and answers with the checksum that it stored.
"""

from __future__ import annotations

import base64
import io
from datetime import datetime
from typing import Any, Final

from crc32c import crc32c
from minio import Minio
from minio.credentials.credentials import Credentials

checksum_header: Final = "x-amz-checksum-crc32c"

_HASH_HEADER: Final = "x-amz-content-sha256"
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"


def header_of(body: bytes) -> str:
    """The value of the header for this body."""
    return base64.b64encode(crc32c(body).to_bytes(4, "big")).decode()


class CheckedMinio(Minio):
    """``Minio`` with ``put_checked``."""

    def put_checked(self, bucket: str, name: str, body: bytes, part_bytes: int) -> bool:
        """Put an object in one request; whether the server says that it has it with this checksum. If not, it was
        stored as well, by a server that does not know the header."""
        checksum = header_of(body)
        result = self.put_object(
            bucket, name, io.BytesIO(body), len(body), part_size=part_bytes, metadata={checksum_header: checksum}
        )
        return bool(result.http_headers.get(checksum_header) == checksum)

    def _build_headers(
        self,
        host: str,
        headers: dict[str, Any] | None = None,
        body: bytes | None = None,
        creds: Credentials | None = None,
    ) -> tuple[dict[str, Any], datetime]:
        """The client has no option to leave its hash out, so this overrides a step of it that is not public; should
        another version have another step, its hash comes along as before."""
        if headers is None or checksum_header not in headers:
            return super()._build_headers(host, headers, body, creds)
        built, date = super()._build_headers(host, headers, None, creds)
        built["Content-Length"] = str(len(body or b""))
        if creds is not None:
            built[_HASH_HEADER] = _UNSIGNED
        return built, date
