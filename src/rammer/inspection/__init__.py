"""Dumps, timelines and reports of what was compiled."""
