"""A convolutional network in plain PyTorch with DistributedDataParallel, on digits that the script draws itself.

The script knows nothing of DeepRec Extension. Stock: `torchrun --nproc_per_node 2 train.py`.
"""

import argparse
import os
import zlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def digits(count: int, seed: int) -> TensorDataset:
    """Ten shapes of 28 x 28, moved about and noisy."""
    shapes = F.interpolate(torch.randn(10, 1, 5, 5, generator=torch.Generator().manual_seed(0)), 28, mode="bicubic")
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=chance)
    moves = torch.randint(-3, 4, (count, 2), generator=chance).tolist()
    images = torch.stack([shapes[label].roll(move, (1, 2)) for label, move in zip(labels.tolist(), moves)])
    return TensorDataset(images + torch.randn(images.shape, generator=chance), labels)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU(),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """Of all processes together."""
    model.eval()
    right = torch.zeros(2)
    with torch.no_grad():
        for images, labels in loader:
            right += torch.tensor([float((model(images).argmax(1) == labels).sum()), float(len(labels))])
    dist.all_reduce(right)
    return float(right[0] / right[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--records", type=int, default=6000)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--out", default=os.path.join(os.environ.get("DEEPREC_EXT_WORKDIR", "."), "torch_mnist.pt"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    records, tests = digits(arguments.records, 1), digits(1000, 2)
    sampler = DistributedSampler(records)
    loader = DataLoader(records, batch_size=arguments.batch_size, sampler=sampler)
    test_loader = DataLoader(tests, batch_size=100, sampler=DistributedSampler(tests, shuffle=False))
    model = DDP(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.7)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer)
        schedule.step()
        found = accuracy(model, test_loader)
        weights = zlib.crc32(b"".join(one.numpy().tobytes() for one in model.module.state_dict().values()))
        print(
            f"epoch {epoch}: {dist.get_world_size()} processes, accuracy {found:.3f}, weights {weights:08x}", flush=True
        )
        if rank == 0:
            torch.save(model.module.state_dict(), arguments.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
