"""The elastic session: placed copies of the user's graph, prepared, exchanged, fed, given up and traced."""
