"""One file per change of the schema, each naming the one before it."""
