"""How a role of the job is started and kept: restarted as the table says, its prints in its log, within its limits.

Nothing else starts a process. The AIMaster is a process like the others and asks for roles through the `Launcher` service.
"""
