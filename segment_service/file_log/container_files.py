"""Keeps the files of one container's log: its state, its plog files, and which owner may write.

Everything here blocks and runs on a thread of the folder's pool, one call at a time: a fence waits for the write that
is under way, and whatever the fenced owner asks for later is refused. After a write or a sync that failed nobody knows
what the file holds; nothing is tried again at this epoch.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pravega_common.errors import DataCorruption, Fenced, InvalidArgument, Unavailable, UnknownOutcome
from pravega_common.invariants import check, unreachable
from pravega_common.runtime.failpoints import FailpointError, failpoint, register
from segment_service.contracts.data_log import LogAddress
from segment_service.file_log.files import Files
from segment_service.file_log.layout import (
    PlogFileHeader,
    decode_header,
    decode_mark,
    header_bytes,
    mark_bytes,
)
from segment_service.file_log.log_state import FileLogState, StateFile
from segment_service.file_log.plog_writer import DiskFull, Frame, PlogWriter, refusing_when_full
from segment_service.file_log.scan import RecoveredEnd, find_end, read_slice
from segment_service.plog.chain import Chain
from segment_service.plog.plog_client import StoredEntry

_SUFFIX: Final = ".plog"
_TEMPORARY: Final = "plog.new"

EPOCH_TAKEN: Final = register("file_log.epoch_taken")
FILE_NAMED: Final = register("file_log.file_named")
FILE_RECORDED: Final = register("file_log.file_recorded")
TRUNCATE_RECORDED: Final = register("file_log.truncate_recorded")
TRUNCATE_DELETED: Final = register("file_log.truncate_deleted")


@dataclass(frozen=True, slots=True)
class PlogFile:
    """A plog file whose end is known."""

    header: PlogFileHeader
    end: int


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log as its files show it."""

    epoch: int
    """That of the new owner; of a log that was only looked at, the highest one."""
    truncated_at: LogAddress | None
    plogs: list[PlogFile]


class ContainerFiles:
    """The files of one container's log below ``folder``. See the module for who may call what."""

    def __init__(self, folder: Path, container_id: int, plog_bytes: int, files: Files) -> None:
        self._folder = folder
        self._container_id = container_id
        self._plog_bytes = plog_bytes
        self._files = files
        self._lock = threading.Lock()
        self._state_file = StateFile(folder, files)
        self._state: FileLogState | None = None
        self._owner_epoch = 0
        """The epoch that may write; 0 for none."""
        self._plogs: dict[int, PlogFileHeader] = {}
        self._open: PlogWriter | None = None
        self._end = 0
        """Behind the last entry of the last plog file."""
        self._chain = Chain(0)

    # --- taking over and reading -------------------------------------------------------------------------------------

    def take_over(self, epoch_min: int) -> FoundLog:
        """Fence the owner there is, find the end of the log, and record a new epoch of at least ``epoch_min``."""
        with self._lock:
            self._drop_owner()
            try:
                return self._take_over(epoch_min)
            except OSError as error:
                raise Unavailable(f"{self._folder}: the log cannot be taken over: {error.strerror}") from error

    def _take_over(self, epoch_min: int) -> FoundLog:
        self._files.make_folder(self._folder)
        state = self._state_file.read() or self._new_state()
        if state.container_id != self._container_id:
            raise DataCorruption(f"{self._folder}: holds the log of container {state.container_id}")
        self._plogs = self._read_headers(state)
        found = self._find_end(state, durably=True)
        self._chain, self._end = found.chain, found.end
        entries = self._chain.next_sequence or 0
        shown = max((header.epoch for header in self._plogs.values()), default=0)
        epoch = max(state.epoch + 1, shown + 1, epoch_min)
        self._state = self._state_file.write(replace(state, epoch=epoch, acked=entries))
        failpoint(EPOCH_TAKEN)
        self._owner_epoch = epoch
        return FoundLog(epoch, state.truncated_at, self._ended_plogs(found.end))

    def look(self) -> FoundLog | None:
        """Find the log in its files as they are now; ``None`` without one. Nothing is written and nobody is fenced, as
        another process may be its owner. ``DataCorruption`` also if that one freed files (see ``begins_at``)."""
        with self._lock:
            try:
                state = self._state_file.read()
                if state is None:
                    if self._folder.exists() and self._numbers():
                        raise DataCorruption(f"{self._folder}: has plog files and no state: the state was lost")
                    return None
                self._plogs = self._read_headers(state)
                found = self._find_end(state, durably=False)
            except FileNotFoundError as error:
                raise DataCorruption(f"{error.filename} is gone: data was lost") from error
            except OSError as error:
                raise Unavailable(f"{self._folder}: the log cannot be read: {error.strerror}") from error
            return FoundLog(state.epoch, state.truncated_at, self._ended_plogs(found.end))

    def begins_at(self) -> LogAddress | None:
        """Read the truncation point; ``None`` for the very beginning of the log, and without a log."""
        try:
            state = self._state_file.read()
        except OSError as error:
            raise Unavailable(f"{self._folder}: the state cannot be read: {error.strerror}") from error
        return None if state is None else state.truncated_at

    def _ended_plogs(self, last_end: int) -> list[PlogFile]:
        """All plog files with their ends: each header says where the one before ends."""
        return [
            PlogFile(header, self._plogs[number + 1].previous_end if number + 1 in self._plogs else last_end)
            for number, header in self._plogs.items()
        ]

    def _new_state(self) -> FileLogState:
        if self._numbers():
            raise DataCorruption(f"{self._folder}: has plog files and no state: the state of the log was lost")
        state = FileLogState(self._container_id, secrets.token_bytes(16))
        self._state_file.create(state)
        return state

    def _read_headers(self, state: FileLogState) -> dict[int, PlogFileHeader]:
        """The headers of all files from the truncation point on, by number; they follow one another."""
        first = 0 if state.truncated_at is None else state.truncated_at.plog_number
        numbers = [number for number in self._numbers() if number >= first]
        last = max([*numbers, first - 1 if state.last_number is None else state.last_number])
        if numbers != list(range(first, last + 1)):
            lost = sorted(set(range(first, last + 1)) - set(numbers))
            raise DataCorruption(f"{self._folder}: plog files {lost} of {first} to {last} are gone: data was lost")
        return {number: self._read_header(number, state.identity) for number in numbers}

    def _read_header(self, number: int, identity: bytes) -> PlogFileHeader:
        path = self._path(number)
        descriptor = self._files.open(path)
        try:
            header = decode_header(self._files.read(descriptor, header_bytes, 0), str(path))
        finally:
            self._files.close(descriptor)
        if (header.container_id, header.number, header.identity) != (self._container_id, number, identity):
            raise DataCorruption(f"{path}: is plog {header.number} of another log or container")
        return header

    def _find_end(self, state: FileLogState, *, durably: bool) -> RecoveredEnd:
        """The end of the last file. ``durably``: what is found is made durable first, and then read from the disk, as
        the memory of the system may show what the disk has not got after a sync that failed."""
        found = RecoveredEnd(header_bytes, Chain(0))
        if self._plogs:
            header = self._plogs[max(self._plogs)]
            path = self._path(header.number)
            descriptor = self._files.open(path)
            try:
                if durably:
                    self._files.sync(descriptor)
                    self._files.forget_pages(descriptor)
                size = path.stat().st_size
                found = find_end(self._files, descriptor, size, header, str(path))
            finally:
                self._files.close(descriptor)
        entries = found.chain.next_sequence or 0
        if entries < state.acked:
            raise DataCorruption(
                f"{self._folder}: {entries} entries were found, {state.acked} had been acknowledged: data was lost"
            )
        return found

    def read(self, plog: PlogFile, start: int) -> list[StoredEntry]:
        """Some entries of a plog from ``start`` on: none only at its end, or where its bytes are damaged."""
        path = self._path(plog.header.number)
        try:
            descriptor = self._files.open(path)
            try:
                return read_slice(self._files, descriptor, plog.header, start, plog.end)
            finally:
                self._files.close(descriptor)
        except FileNotFoundError as error:
            raise DataCorruption(f"{path} is gone: data was lost") from error
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}") from error

    def check_owner(self, epoch: int) -> None:
        """``Fenced`` unless the log is at this epoch, in memory and on disk."""
        with self._lock:
            self._check_epoch(epoch)
            try:
                state = self._state_file.read()
            except OSError as error:
                raise Unavailable(f"{self._folder}: the state cannot be read: {error.strerror}") from error
            if state is None:
                raise DataCorruption(f"{self._folder}: the state of the log is gone")
            if state.epoch > epoch:
                raise Fenced(f"{self._folder}: epoch {state.epoch} took over")

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, epoch: int, frames: Sequence[Frame], *, new_file: bool = False) -> list[LogAddress]:
        """Write the frames, make them durable with one sync for each file, and return their addresses.

        Fewer addresses than frames, or ``DiskFull`` for none: there is no room for the others, and nothing of them was
        written. ``new_file``: begin another file, unless the last one has no entry.
        """
        with self._lock:
            self._check_epoch(epoch)
            addresses: list[LogAddress] = []
            try:
                while len(addresses) < len(frames):
                    plog = self._plog_for(frames[len(addresses)], new_file=new_file)
                    new_file = False
                    added, self._chain = plog.append(frames[len(addresses) :], self._chain, epoch)
                    self._end = plog.end
                    addresses += added
            except DiskFull:
                if not addresses:
                    raise
            except (OSError, FailpointError) as error:
                raise self._over("a write or sync failed", error) from error
            return addresses

    def _plog_for(self, frame: Frame, *, new_file: bool) -> PlogWriter:
        """The plog file that takes the frame; a new one if the open one is full."""
        plog = self._open
        if plog is not None and (plog.is_empty or (plog.has_place(frame) and not new_file)):
            return plog
        plog = self._create_plog()
        self._close_open()
        self._open = plog
        self._end = plog.end
        return plog

    def _create_plog(self) -> PlogWriter:
        """The next plog file, durable with its name and recorded before anything is acknowledged in it."""
        state = self._required_state()
        number, entries = max(self._plogs, default=-1) + 1, self._chain.next_sequence or 0
        salt = secrets.token_bytes(16)
        epoch, last = self._owner_epoch, self._chain.last
        header = PlogFileHeader(self._container_id, number, state.identity, salt, epoch, entries, last, self._end)
        temporary = self._folder / _TEMPORARY
        plog = PlogWriter(header, temporary, self._plog_bytes, self._files)
        try:
            with refusing_when_full(f"plog {number}: no room for its name"):
                self._files.rename(temporary, self._path(number))
            self._files.sync_folder(self._folder)
            failpoint(FILE_NAMED)
            self._state = self._state_file.write(replace(state, last_number=number, acked=entries))
            failpoint(FILE_RECORDED)
        except BaseException as error:
            plog.close()
            if isinstance(error, DiskFull):  # it took space ahead, which others may need
                with suppress(OSError):
                    self._files.remove(temporary)
            raise
        self._plogs[number] = header
        return plog

    # --- truncating and ending ---------------------------------------------------------------------------------------

    def truncate(self, epoch: int, up_to: LogAddress) -> int:
        """Record that the log begins at ``up_to``, then remove the files below; returns how many were removed."""
        with self._lock:
            self._check_epoch(epoch)
            if not self._is_entry(up_to):
                raise InvalidArgument(
                    f"container {self._container_id}: no frame begins at {up_to}; cannot truncate there"
                )
            try:
                self._state = self._state_file.write(replace(self._required_state(), truncated_at=up_to))
            except OSError as error:
                raise self._over("the truncation could not be recorded", error) from error
            failpoint(TRUNCATE_RECORDED)
            try:
                return self._remove_below(up_to.plog_number)
            except OSError as error:
                raise Unavailable(f"{self._folder}: files were not removed: {error.strerror}") from error

    def _is_entry(self, address: LogAddress) -> bool:
        begins = self._required_state().truncated_at
        header = self._plogs.get(address.plog_number)
        last = self._chain.last
        if header is None or last is None or address > last or (begins is not None and address < begins):
            return False
        path = self._path(address.plog_number)
        try:
            descriptor = self._files.open(path)
            try:
                data = self._files.read(descriptor, mark_bytes, address.offset)
            finally:
                self._files.close(descriptor)
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}") from error
        return decode_mark(data, 0, header.salt, address.offset) is not None

    def _remove_below(self, number: int) -> int:
        """Remove all plog files below a number, also those that an earlier crash left."""
        below = [one for one in self._numbers() if one < number]
        for one in below:
            self._files.remove(self._path(one))
            self._plogs.pop(one, None)
            failpoint(TRUNCATE_DELETED)
        if below:
            self._files.sync_folder(self._folder)
        return len(below)

    def close(self, epoch: int) -> None:
        """End the ownership; the state says how much was acknowledged. Nothing if the epoch is over already."""
        with self._lock:
            if epoch != self._owner_epoch:
                return
            state, acked = self._required_state(), self._chain.next_sequence or 0
            try:
                if acked > state.acked:
                    self._state_file.write(replace(state, acked=acked))
            except OSError as error:
                raise Unavailable(f"{self._folder}: the state was not written: {error.strerror}") from error
            finally:
                self._drop_owner()

    def _check_epoch(self, epoch: int) -> None:
        check(epoch > 0, "the log was not initialized", container_id=self._container_id)
        if epoch != self._owner_epoch:
            taken = self._state.epoch if self._state is not None else 0
            if taken > epoch:
                raise Fenced(f"container {self._container_id}: epoch {taken} took over from epoch {epoch}")
            raise Unavailable(f"container {self._container_id}: the log of epoch {epoch} is over")

    def _over(self, what: str, error: Exception) -> UnknownOutcome:
        """End the ownership: no more is written at this epoch. Returns the error that says why."""
        self._drop_owner()
        return UnknownOutcome(f"{self._folder}: {what}: {error}")

    def _drop_owner(self) -> None:
        self._owner_epoch = 0
        self._close_open()

    def _close_open(self) -> None:
        plog, self._open = self._open, None
        if plog is not None:
            plog.close()

    def _required_state(self) -> FileLogState:
        return self._state or unreachable("the log was not taken over", container_id=self._container_id)

    def _numbers(self) -> list[int]:
        """The numbers of the plog files in the folder, ascending."""
        stems = (name.removesuffix(_SUFFIX) for name in self._files.names(self._folder) if name.endswith(_SUFFIX))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}{_SUFFIX}"
