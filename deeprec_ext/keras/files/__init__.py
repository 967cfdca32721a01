"""Files of weights, of which the process has a piece at a time.

`rows` are a value that is read by pieces; `streaming` makes Keras and TensorFlow write such; `archives` keeps Keras from making
its `.keras` files in memory; `replacing` writes a file beside the one that it becomes; `loading` leaves what Keras loads where
it is.
"""
