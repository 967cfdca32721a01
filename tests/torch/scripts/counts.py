"""A DDP script that decides much by counts of its own: with which rate its optimizer steps, and where it keeps its file.

Rank 0 draws the seed of the data and broadcasts it.
"""

import argparse
import os
import random
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from deeprec_ext.torch import membership  # for the lines that it writes alone

FEATURES = 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=Path, help="epochs go on until this file is there")
    parser.add_argument("--place", type=Path, required=True)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    arguments.place.mkdir(exist_ok=True)
    seed = torch.tensor([random.SystemRandom().randrange(1 << 30)])
    dist.broadcast(seed, src=0)
    if rank == 0:
        (arguments.place / "ready").touch()
    dist.barrier()
    assert (arguments.place / "ready").exists()
    chance = torch.Generator().manual_seed(int(seed))
    x = torch.randn(4000, FEATURES, generator=chance)
    data = TensorDataset(x, x @ torch.randn(FEATURES, 1, generator=chance))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = 0
    with (arguments.place / f"{rank}.{os.getpid()}").open("a", buffering=1) as file:
        for epoch in range(10000):
            sampler.set_epoch(epoch)
            for x, y in loader:
                time.sleep(0.02)
                batches += 1
                for group in optimizer.param_groups:
                    group["lr"] = 0.05 / (1 + batches / 100)
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                if membership().step >= 0:
                    state = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
                    file.write(f"step {membership().step} {zlib.crc32(state)} {int(seed)} {time.time():.3f}\n")
            if rank == 0:
                torch.save(model.module.state_dict(), arguments.place / "model.tmp")
                os.replace(arguments.place / "model.tmp", arguments.place / "model.pt")
            stop = torch.tensor([float(arguments.until.exists())])
            dist.all_reduce(stop)
            if stop.item():
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
