"""What rank 0 prepares between two barriers is there for all, and gone after the first step, which is made by all together."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, place = dist.get_rank(), sys.argv[1]
for number in range(3):
    model = DDP(nn.Linear(4, 2))
    if rank == 0:
        torch.save(model.state_dict(), f"{place}-{number}")
    dist.barrier()
    time.sleep(rank / 2)
    model.load_state_dict(torch.load(f"{place}-{number}"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    if rank == 0:
        os.remove(f"{place}-{number}")
    if number < 2:
        dist.destroy_process_group()
        dist.init_process_group("gloo")
print(f"rank {rank} of {dist.get_world_size()} is through", flush=True)
dist.destroy_process_group()
