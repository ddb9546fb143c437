"""Reads ONNX models into a graph."""
