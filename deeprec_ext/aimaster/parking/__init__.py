"""A job whose processes go for a while, and which goes on later with what it had come to.

- `parking`: what is done before they go, and in what words it is told;
- `supervision`: pure: what becomes of a job that has not all of its processes; `supervisor` looks, and acts.
"""
