"""Copies of slots, with PS (`guards`), with trainers (`holding`) and on disk: who keeps which, and how old each is."""
