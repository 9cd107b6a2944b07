"""Crashes Spark at every step of a batch, and counts what is in the stream afterwards."""
