"""Copies of slots, with PS (`peers`), with trainers (`trainers`) and on disk: who keeps which, and how old each is."""
