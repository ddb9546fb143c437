"""Operators: tensor expressions and shape inference, one file per family. Importing this package registers all."""
