"""Tests what is said of a job's folder that cannot be made, and moves of its files as object stores make them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import ConfigurationError
from pravega_spark.backfill.job_folder import JobFolder


class ObjectStore:
    """A file system of Hadoop over an object store: sizes by name; nothing is renamed to a name that is there."""

    def __init__(self, scheme: str = "s3a") -> None:
        self.sizes: dict[str, int] = {}
        self.scheme = scheme

    def getUri(self) -> SimpleNamespace:
        return SimpleNamespace(getScheme=lambda: self.scheme)

    def mkdirs(self, path: SimpleNamespace) -> bool:
        return True

    def exists(self, path: SimpleNamespace) -> bool:
        return path.name in self.sizes

    def getFileStatus(self, path: SimpleNamespace) -> SimpleNamespace:
        return SimpleNamespace(getLen=lambda: self.sizes[path.name])

    def delete(self, path: SimpleNamespace, recursive: bool) -> None:
        del self.sizes[path.name]

    def rename(self, source: SimpleNamespace, target: SimpleNamespace) -> bool:
        if target.name in self.sizes:
            return False
        self.sizes[target.name] = self.sizes.pop(source.name)
        return True


def folder_in(files: ObjectStore, path_of_job: str = "s3a://bucket/jobs/j") -> JobFolder:
    def path(text: str) -> SimpleNamespace:
        uri = SimpleNamespace(getPath=lambda: text.removeprefix("file:"))
        return SimpleNamespace(name=text, getFileSystem=lambda configuration: files, toUri=lambda: uri)

    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=path))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    java = SimpleNamespace(hadoopConfiguration=lambda: None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=java))
    return JobFolder(spark, path_of_job)


def test_a_move_that_was_cut_off_between_copy_and_deletion_is_made_again() -> None:
    files = ObjectStore()
    files.sizes = {"attempt/part-0": 10, "target/part-0": 10}
    folder_in(files).move("attempt/part-0", "target/part-0")
    assert files.sizes == {"target/part-0": 10}


def test_another_file_of_the_name_is_not_replaced() -> None:
    files = ObjectStore()
    files.sizes = {"attempt/part-0": 10, "target/part-0": 11}
    with pytest.raises(ConfigurationError, match="cannot be renamed"):
        folder_in(files).move("attempt/part-0", "target/part-0")
    assert files.sizes == {"attempt/part-0": 10, "target/part-0": 11}


def test_a_local_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    one, other = (folder_in(ObjectStore("file"), f"file:{tmp_path}") for _ in range(2))
    refused = pytest.raises(ConfigurationError, match=f"another run of job 'j', process {os.getpid()}")
    with one.run_alone("j"), refused, other.run_alone("j"):
        raise AssertionError
    with other.run_alone("j"):
        pass


def test_a_folder_of_an_object_store_is_not_locked() -> None:
    with folder_in(ObjectStore()).run_alone("j"), folder_in(ObjectStore()).run_alone("j"):
        pass


def test_a_password_in_its_uri_is_not_shown() -> None:
    """Hadoop refuses such a URI, and repeats it."""
    uri = "s3a://KEY:SEC/RET@bucket/jobs/j"

    def refuse(text: str) -> None:
        raise RuntimeError(f"java.io.IOException: {text} contains login details")

    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=refuse))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    java = SimpleNamespace(hadoopConfiguration=lambda: None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=java))
    with pytest.raises(ConfigurationError) as told:
        JobFolder(spark, uri)
    shown = "s3a://***@bucket/jobs/j"
    assert str(told.value) == (
        f"the folder '{shown}' cannot be made or written: java.io.IOException: {shown} contains login details"
    )
