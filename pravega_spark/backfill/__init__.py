"""Loads files into streams and exports streams into files, exactly once by job id. See the README of this folder."""
