"""The one-machine kubelet: starts, reaps and restarts the roles of one job as processes, and fires scripted events.

Nothing else starts a process. The AIMaster is a process like the others and asks for roles through the `Launcher` service.
"""
