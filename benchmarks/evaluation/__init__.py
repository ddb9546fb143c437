"""The evaluation of the Rammer paper, on the machine at hand: `python -m benchmarks.evaluation --help`."""
