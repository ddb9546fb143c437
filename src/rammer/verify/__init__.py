"""Proofs that each level is sound, one file per level."""
