def rows(cluster, decision):
    return [{"job": one.job, "why": one.why} for one in decision.allowances]


def table(cluster, decision):
    return "\n".join(f"{one.job} {one.runs} {one.ps} {one.workers} {one.why}" for one in decision.allowances)
