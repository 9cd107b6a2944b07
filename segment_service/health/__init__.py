"""Tells whether a store does its work, and why not."""
