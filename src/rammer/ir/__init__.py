"""The data every room stands on: types, expressions, regions, graphs, tasks and programs."""
