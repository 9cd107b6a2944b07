"""Crashes of Spark at every step of a batch, and what is in the stream afterwards."""
