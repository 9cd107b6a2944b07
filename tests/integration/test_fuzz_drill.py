"""Runs a small part of the fuzzing drill against a real standalone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.fuzz.run import run

frames = 8_000
requests = 800
quiet_s = 1.0
pytestmark = pytest.mark.timeout(600)


def test_mutated_frames_and_requests_hurt_nobody(tmp_path: Path) -> None:
    result = run(tmp_path, frames, requests, 1, quiet_s, print)
    assert result.good, result.problems
    for peers, sent in ((result.frames, frames // 2), (result.grpc, requests // 4), (result.rest, requests // 4)):
        assert set(peers) == {"anonymous", "mallory"}
        assert all(counts.handled >= sent * 0.9 for counts in peers.values()), peers
    # They reach what is behind the checks of names and tokens.
    assert result.frames["mallory"].answers.keys() >= {"AppendSetup", "NoSuchSegment", "RequestBatchAnswered"}
    assert result.grpc["mallory"].answers["OK"] and result.rest["mallory"].answers["200"]
    assert result.grpc["anonymous"].answers["UNAUTHENTICATED"] and result.rest["anonymous"].answers["401"]
    assert "AppendSetup" not in result.frames["anonymous"].answers
