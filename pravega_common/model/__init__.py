"""Defines the values of Pravega's API once, for client, controller and connector. See the README of this folder."""
