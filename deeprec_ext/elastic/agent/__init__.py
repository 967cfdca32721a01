"""What a process of a job and its AIMaster say to each other, and what is noted for it. Free of TensorFlow."""
