"""The Kubernetes API: `client`, which cluster (`kubeconfig`), by which of the `proxies`, how anything is followed (`watching`),
whether a kind is installed (`known`), a job by its name (`finding`), commands in its pods (`exec`), what they write (`logs`).
"""
