"""The pipeline, from a model to an executable."""
