"""Answers the questions of the window, the controller's page for people."""
