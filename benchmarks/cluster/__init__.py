"""Experiments with many jobs on one cluster."""
