"""Runs all services on one machine. See the README of this folder."""
