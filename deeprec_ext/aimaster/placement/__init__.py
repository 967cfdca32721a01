"""Which slot lies where: what lies on slots, the plan that moves the fewest bytes, the plan of who holds backups. Pure."""
