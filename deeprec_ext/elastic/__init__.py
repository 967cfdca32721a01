"""What makes a TensorFlow process elastic: view, server, agent, session, migration.

Trainers (chief, workers) hold an `ElasticSession` each and a `Trainer` that carries out the AIMaster's commands; a PS runs
`serve` and, when it is the target of a migration, a `Mover`. Both talk to the AIMaster through an `Agent`.
"""
