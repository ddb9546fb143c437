"""From a graph to a task graph: fusion, rKernels, tiles and their dependencies."""
