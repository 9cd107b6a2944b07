"""Repairs a cluster from outside, while its stores are stopped."""
