"""Runs a segment store as its own process: started, killed and started again on the same Redis and folder."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from pravega_common.runtime.failpoints import environment_of
from pravega_common.services.cluster.redis_cpo import RedisCPO
from tests.support.eventually import eventually

CONTAINERS = 2
start_time_max_s = 20.0


class StoreProcess:
    """``python -m segment_service`` with small limits, so that every background step happens soon."""

    def __init__(self, folder: Path, redis_address: str, **settings: str) -> None:
        self.folder = folder
        self.process: asyncio.subprocess.Process | None = None
        self.port = 0
        self._cpo = RedisCPO(redis_address)
        sections = {
            "store": {"id": '"store"', "listen": '"127.0.0.1:0"', "containers": str(CONTAINERS)},
            "cluster": {"cpo": f'"{redis_address}"', "lease_ms": "2000"},
            "tier1": {"servers": f'["{redis_address}"]', "plog_bytes": "4194304", "checkpoint_bytes": "200000"},
            "tier2": {"url": f'"file://{folder}/tier2"', "flush_age_ms": "50", "flush_bytes": "100000"},
        }
        for name, value in settings.items():
            section, _, key = name.partition("__")
            sections.setdefault(section, {})[key] = value
        lines = [
            f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for section, keys in sections.items()
        ]
        self.config = folder / "store.toml"
        self.config.write_text("\n".join(lines))

    async def start(self, failpoints: str = "") -> None:
        """Returns when the store listens; its containers are assigned, and start meanwhile."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        with (self.folder / "store.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "segment_service",
                "--config",
                str(self.config),
                "--ready-file",
                str(ready),
                env={**environment_of(failpoints), "PATH": ""},
                cwd=Path(__file__).parents[2],
                stdout=log,
                stderr=log,
            )
        process = self.process

        def is_ready() -> bool:
            is_there = ready.exists()
            assert is_there or process.returncode is None, self.log_tail()
            return is_there

        await eventually(is_ready, "the store's ready file", start_time_max_s)
        self.port = int(json.loads(ready.read_text())["port"])
        version = (await self._cpo.get_assignment()).version
        await self._cpo.put_assignment(version, dict.fromkeys(range(CONTAINERS), "store"))

    @property
    def is_dead(self) -> bool:
        return self.process is None or self.process.returncode is not None

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            return await self.process.wait()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def close(self) -> None:
        await self.kill()
        await self._cpo.close()

    def log_tail(self) -> str:
        return (self.folder / "store.log").read_text()[-3000:]
