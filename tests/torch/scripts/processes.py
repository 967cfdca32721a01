"""Starts processes of its own that want to train together."""

import os
import sys

import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29511"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    print("trains", flush=True)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    if sys.argv[1:] == ["joined"]:
        dist.init_process_group("gloo")
    processes = [mp.Process(target=train, args=(rank, 1)) for rank in range(1)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    sys.exit(max(one.exitcode for one in processes))
