"""What all parts of a job share: its record and cluster (`shared`), who holds what of it (`lock`), the model's variables,
what was chosen for backups, and who cannot be believed."""
