"""Hides the user and password of an address in what people see."""

from __future__ import annotations


def without_login(text: str) -> str:
    """The text of an address without user and password, for an error."""
    return f"***@{text.rpartition('@')[2]}" if "@" in text else text


def without_login_of(uri: str, text: str) -> str:
    """Returns a text, as of an error, without user and password of a URI that it may show; they end at its last ``@``.

    A user without a password is left: ``abfss://container@account`` says where something lies.
    """
    login, at, _ = uri.partition("://")[2].rpartition("@")
    return text.replace(login + at, "***@") if ":" in login else text
