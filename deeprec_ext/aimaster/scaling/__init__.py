"""From a request to a new size: the queue, the states, what happens in them."""
