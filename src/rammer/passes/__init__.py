"""Rewrites of the graph, one file each, in the order that the pipeline fixes."""
