"""What stops a GPU or its connections."""

from __future__ import annotations

from hangwatch.model import Stage

from .cause import Cause

DEVICE = (
    Cause(
        "device-stall",
        Stage.DEVICE,
        "A device does not finish",
        "The ranks wait for their devices, and one device's work does not complete.",
        "look at that GPU (nvidia-smi, dmesg for Xid); run with CUDA_LAUNCH_BLOCKING=1 to find the kernel",
        ("gpu-fault", "interconnect-stall"),
    ),
    Cause(
        "gpu-fault",
        Stage.DEVICE,
        "A GPU has failed",
        "The driver reports an error of a GPU.",
        "drain the node and reset or replace the GPU",
        ("device-stall",),
    ),
    Cause(
        "interconnect-stall",
        Stage.DEVICE,
        "The GPUs do not reach each other",
        "Every GPU has started the collective and none completes it.",
        "try NCCL_P2P_DISABLE=1; if that helps, switch off ACS or fix the topology",
        ("device-stall", "network-partition"),
    ),
    Cause(
        "duplicate-gpu",
        Stage.DEVICE,
        "Two ranks share one GPU",
        "Two ranks of one communicator are bound to the same device.",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group",
        (),
    ),
)
