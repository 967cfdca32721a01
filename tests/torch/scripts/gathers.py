"""Wants what cannot be followed."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
found = [torch.zeros(1) for _ in range(dist.get_world_size())]
dist.all_gather(found, torch.ones(1))
