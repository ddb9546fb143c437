"""From a task graph to an rProgram: placement, memory plan and simulation."""
