"""TensorFlow below its public API: its server, its C graph, its master service, small graphs of ours, a PS's part of it."""
