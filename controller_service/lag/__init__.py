"""Tells how far readers are behind the tails of their streams."""
