"""One harness for every device: the same networks, inputs and timing for Rammer and for the runtimes beside it."""
