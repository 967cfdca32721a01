"""The job: its parts and how a view reaches everybody; the model's variables, notices, suspects, what PS remember of it."""
