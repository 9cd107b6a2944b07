"""Notes the writer's mark of each commit that names a time (docs/controller-api.md 4.8)."""

from __future__ import annotations

from typing import Final

import structlog

from controller_service.store.writer_marks import WriterMarks
from controller_service.transactions.records import CommittingTransaction
from pravega_common.errors import StreamNotFound

logged_chars_max: Final = 200


class CommitMarks:
    """``CommitListener`` that notes the writer's mark, and never fails. Idempotent: the same report again changes
    nothing.

    A commit without a time is no report; some clients send 0 then.
    """

    def __init__(self, marks: WriterMarks) -> None:
        self._marks = marks
        self._log = structlog.get_logger(service="commit-marks")

    async def committed(
        self, scope: str, stream: str, transaction: CommittingTransaction, position: dict[int, int]
    ) -> None:
        if not transaction.writer_id or not transaction.commit_time_ms:
            return
        try:
            await self._marks.note(scope, stream, transaction.writer_id, position, transaction.commit_time_ms)
        except StreamNotFound:
            return
        except Exception as error:
            # The transaction is merged: whatever becomes of the mark, its commit ends, and those after it.
            self._log.warning(
                "mark of a writer is lost",
                stream=f"{scope}/{stream}",
                writer=transaction.writer_id[:logged_chars_max],
                error=repr(error)[:logged_chars_max],
            )
