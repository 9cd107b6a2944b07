"""A store loads the clients of S3 and Redis where its settings name such servers: 0.3 s of each start otherwise."""

from __future__ import annotations

from tests.support.loaded_packages import loaded_by


def test_a_store_on_files_loads_no_client_of_servers() -> None:
    loaded = loaded_by(
        "import segment_service.process\n"
        "from pravega_common.runtime.clock import SystemClock\n"
        "from pravega_common.services.cluster.factory import make_cpo\n"
        "from segment_service.storage.factory import make_chunk_storage\n"
        "make_chunk_storage('file:///tmp')\n"
        "make_cpo('file:/nowhere/oracle.db', allow_unsafe_redis=False, clock=SystemClock())"
    )
    assert "segment_service" in loaded
    assert not loaded & {"minio", "urllib3", "redis"}
