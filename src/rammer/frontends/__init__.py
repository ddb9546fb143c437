"""Readers of models from other libraries; the only rooms that import those libraries."""
