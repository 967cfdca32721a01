"""Several jobs of one cluster: real pods on a real node, and the arbiter alone."""
