"""Watches the traffic of segments whose streams scale by their rate, and reports hot and cold ones."""
