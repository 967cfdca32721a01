"""From the running job to decisions and back: observes, asks the policy, records, and carries out through scalings."""
