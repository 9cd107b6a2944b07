"""The sub-commands of ``pravega-spark``. See the README of this folder."""
