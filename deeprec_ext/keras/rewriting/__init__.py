"""What is rewritten in a captured step before it runs on parameter servers: `wholes` makes rows of whole tables, `lean` takes
out what a session does not need, `between` goes on with what the step has just written.
"""
