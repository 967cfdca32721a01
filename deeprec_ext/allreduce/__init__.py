"""Synchronous training whose workers come, go and die: sums over all of them, of any framework's numbers.

Free of TensorFlow. `ring`: one generation's members sum; `meeting`: where they find each other; `summing`: sums that survive
the end of a generation.
"""
