"""Tests how the format of a source without an ending is found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as parquet
import pytest

from pravega_common.errors import InvalidArgument
from pravega_spark.backfill import source_format
from pravega_spark.backfill.source_format import found_format

TABLE = pa.table({"id": [1, 2]})


def test_the_ending_decides_and_nothing_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"PAR1")
    assert found_format(str(tmp_path / "a.csv")) == "csv"
    assert found_format("s3a://bucket/*.json.gz") == "json"


def test_files_without_an_ending_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    parquet.write_table(TABLE, tmp_path / "p")
    orc.write_table(TABLE, tmp_path / "o")
    (tmp_path / "a").write_bytes(b"Obj\x01rest")
    (tmp_path / "j").write_text('\n {"id": 1}\n')
    assert [found_format(str(tmp_path / name)) for name in "poaj"] == ["parquet", "orc", "avro", "json"]
    assert found_format(f"file://{tmp_path}/p") == "parquet"


def test_a_folder_is_what_its_files_are(tmp_path: Path) -> None:
    """As Spark writes one: marks and checksums beside the files, folders of partitions, endings or none."""
    below = tmp_path / "day=1"
    below.mkdir()
    parquet.write_table(TABLE, below / "part-0.snappy.parquet")
    parquet.write_table(TABLE, below / "part-1")
    (tmp_path / "_SUCCESS").touch()
    (below / ".part-0.crc").write_bytes(b"crc")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.csv").write_text("not read by Spark, which takes folders of partitions alone\n")
    assert found_format(str(tmp_path)) == "parquet"


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    with pytest.raises(InvalidArgument, match=r"and lines begins as none that is known; give --format parquet\|csv"):
        found_format(str(tmp_path))
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.json").write_text("{}\n")
    with pytest.raises(InvalidArgument, match="there are csv and files of which nothing tells it and json; give"):
        found_format(str(tmp_path))
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "empty", tmp_path / "absent-*", "s3a://bucket/folder", "dbfs:/folder", "-"):
        with pytest.raises(InvalidArgument, match="does not say of what format it is; give --format"):
            found_format(str(nothing))


def test_a_missing_path_is_said_to_be_missing(tmp_path: Path) -> None:
    for missing in (f"{tmp_path}/absent", f"file://{tmp_path}/absent", "nofolder"):
        with pytest.raises(InvalidArgument, match=f"^'{missing}' is not there on this machine, .*; give --format par"):
            found_format(missing)


def test_a_large_folder_costs_no_more_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_format, "files_looked_at_max", 3)
    for number in range(5):
        (tmp_path / f"{number}.csv").touch()
    (tmp_path / "9.json").touch()
    assert found_format(str(tmp_path)) == "csv"
