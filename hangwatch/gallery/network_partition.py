"""Every rank lives in a network namespace of its own, as on a host of its own, behind one virtual switch.

Some seconds into the training one host's cable is pulled: its port leaves the switch. No host is told; each
side has sent what it had to send, and the kernel repeats it in vain. With --healthy the cable is plugged in
again four seconds later. Needs root, iproute2 and util-linux.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True)


def start_host(rank: int, folder: Path, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Starts a rank in a new namespace and plugs it into the switch."""
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(args.ranks),
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": str(args.port),
        "GLOO_SOCKET_IFNAME": "eth0",
        "RUN_FOLDER": str(folder),
    }
    command = ["unshare", "--net", sys.executable, *sys.argv]
    host = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
    here, there = Path("/proc/self/ns/net"), Path(f"/proc/{host.pid}/ns/net")
    while there.readlink() == here.readlink():
        time.sleep(0.01)
    inside = f"nsenter --target {host.pid} --net"
    sh(f"ip link add port{rank} type veth peer name eth0 netns {host.pid}")
    sh(f"ip link set port{rank} master switch up")
    sh(f"{inside} ip address add 10.77.0.{rank + 1}/24 dev eth0")
    sh(f"{inside} ip link set lo up")
    sh(f"{inside} ip link set eth0 up")
    assert host.stdin is not None
    host.stdin.write(b"plugged in\n")
    host.stdin.flush()
    return host


def launch(args: argparse.Namespace) -> int:
    if "SWITCH" not in os.environ:
        os.environ["SWITCH"] = "inside"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    sh("ip link add switch type bridge")
    sh("ip link set switch up")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hosts = [start_host(rank, folder, args) for rank in range(args.ranks)]
        while len(list(folder.iterdir())) < args.ranks:
            time.sleep(0.1)
        time.sleep(args.cut_after)
        sh(f"ip link set port{args.culprit} nomaster")
        if args.healthy:
            time.sleep(4.0)
            sh(f"ip link set port{args.culprit} master switch")
        return max(host.wait() for host in hosts)


def train(args: argparse.Namespace) -> None:
    sys.stdin.readline()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(args.steps):
        loss = model(torch.randn(32, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            (Path(os.environ["RUN_FOLDER"]) / str(rank)).touch()

    dist.barrier()
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1, help="the host that loses its cable")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29505)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--cut-after", type=float, default=2.0)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        return launch(args)
    train(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
