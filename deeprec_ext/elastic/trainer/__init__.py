"""A trainer: the AIMaster's commands in it, and what stands between the user's script and TensorFlow."""
