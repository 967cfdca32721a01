"""One job, from its command line to its summary: the launcher's process. `job` has all of it wired together.

- `roles/`: how roles are started, kept and restarted: processes of this machine;
- `records/`: what a job leaves behind, as it is read;
- here: what is going to run (`plan`, `limits`, `resources`), what happens meanwhile (`events`, `script`, `observer`), its end.
"""
