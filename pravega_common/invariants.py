"""Checks invariants always, also under ``python -O``."""

from __future__ import annotations

from typing import NoReturn


class InvariantViolation(BaseException):
    """A state of the program that its own rules exclude.

    Derives from ``BaseException`` so that no ``except Exception`` swallows it: the owner of the state
    (a container, a service) goes offline rather than serving a wrong byte.
    """

    def __init__(self, message: str, **context: object) -> None:
        self.context = context
        detail = ", ".join(f"{name}={value!r}" for name, value in context.items())
        super().__init__(f"{message} ({detail})" if detail else message)


def check(condition: bool, message: str, **context: object) -> None:
    """Raise ``InvariantViolation`` with the named values unless the condition holds."""
    if not condition:
        raise InvariantViolation(message, **context)


def unreachable(message: str, **context: object) -> NoReturn:
    """Mark a branch that no state of the program may reach."""
    raise InvariantViolation(f"unreachable: {message}", **context)
