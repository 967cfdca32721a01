"""A cluster of many elastic jobs on a virtual clock: the arbiter's rules, against gang scheduling and against no arbiter."""
