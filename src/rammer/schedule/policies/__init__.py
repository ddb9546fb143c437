"""Scheduling policies, one pure function per file."""
