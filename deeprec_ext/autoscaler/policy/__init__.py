"""Deciding: `decide(observed, policy) -> Decision` is pure; it can be replayed, run dry and explained."""
