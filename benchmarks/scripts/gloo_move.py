"""Send a block of bytes from rank 0 to rank 1 over stock gloo, several times; write how long each took."""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    """Send and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    block = torch.ones(options.bytes, dtype=torch.uint8)
    answer = torch.zeros(1, dtype=torch.uint8)
    durations = []
    for _ in range(options.repeats + 1):
        dist.barrier()
        begun_s = time.monotonic()
        if dist.get_rank() == 0:
            dist.send(block, 1)
            dist.recv(answer, 1)  # all has arrived
        else:
            dist.recv(block, 0)
            dist.send(answer, 0)
        durations.append(time.monotonic() - begun_s)
    if dist.get_rank() == 0:
        options.out.write_text(json.dumps(durations[1:]))  # the first one touches the memory
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
