"""A cluster in virtual time: the policy's own `decide`, driven by a job model and a trace."""
