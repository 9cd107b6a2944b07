"""The demo. See the README of this folder."""
