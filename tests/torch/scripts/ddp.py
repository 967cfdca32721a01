"""A DDP script as PyTorch's tutorials have it, which writes down what it has after each step, and which records it had."""

import argparse
import os
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

RECORDS, FEATURES, CLASSES = 1600, 20, 4


class Generated(Dataset):
    def __init__(self, records):
        chance = torch.Generator().manual_seed(3)
        self.x = torch.randn(records, FEATURES, generator=chance)
        self.y = (self.x @ torch.randn(FEATURES, CLASSES, generator=chance)).argmax(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index], index


def check(model, optimizer):
    """Of model and optimizer, bit for bit."""
    found = b"".join(one.detach().numpy().tobytes() for one in [*model.parameters(), *model.buffers()])
    for state in optimizer.state_dict()["state"].values():
        found += b"".join(torch.as_tensor(state[name]).numpy().tobytes() for name in sorted(state))
    return zlib.crc32(found + repr([group["lr"] for group in optimizer.param_groups]).encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--seconds", type=float, default=0.02, help="that a step takes at least")
    parser.add_argument("--until", type=Path, help="epochs go on until this file is there")
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=0, help="processes of the DataLoader")
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    data, test = Generated(arguments.records), Generated(200)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=arguments.workers)
    tests = DataLoader(test, batch_size=16, sampler=DistributedSampler(test, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(FEATURES, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    cosine = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 1000))
    arguments.place.mkdir(exist_ok=True)
    with (arguments.place / f"{rank}.{os.getpid()}").open("a", buffering=1) as file:
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            model.train()
            for x, y, index in loader:
                time.sleep(arguments.seconds)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                cosine.step()
                if model.module[0].weight.grad is None:  # of an epoch that the others have had before: no step
                    continue
                step = int(cosine.last_epoch)
                now, size = check(model, optimizer), dist.get_world_size()
                file.write(f"step {step} {now} {len(index)} {epoch} {size} {time.time():.3f}\n")
            model.eval()
            right = torch.zeros(2, dtype=torch.int64)
            with torch.no_grad():
                for x, y, _ in tests:
                    right += torch.tensor([int((model(x).argmax(1) == y).sum()), len(y)])
            dist.all_reduce(right)
            schedule.step()
            file.write(f"epoch {epoch} {right[0]} {right[1]} {check(model, optimizer)} {time.time():.3f}\n")
            file.write(f"schedule {epoch} {schedule.last_epoch}\n")
            if rank == 0:
                torch.save(model.module.state_dict(), arguments.place / "model.pt")
            if arguments.until is not None and arguments.until.exists():
                break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
