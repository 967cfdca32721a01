"""The operator's side of the ET operator's kinds (`--et`): it watches them where they are installed, and carries out what
`tfjob.reconciling.et` decides."""
