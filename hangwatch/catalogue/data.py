"""What stops the loading of data."""

from __future__ import annotations

from hangwatch.model import Stage

from .cause import Cause

DATA = (
    Cause(
        "loader-worker-blocked",
        Stage.DATA,
        "A loader worker is stuck in a sample",
        "The rank waits for a batch; one worker stands in `__getitem__` or collate and does not return.",
        "mend that line or give it a timeout; DataLoader(timeout=60) turns this into an error",
        ("loader-fork-deadlock", "loader-worker-frozen", "loader-worker-died"),
    ),
    Cause(
        "loader-fork-deadlock",
        Stage.DATA,
        "Loader workers inherited a held lock",
        "The workers wait for a lock or a thread pool whose owner did not survive the fork.",
        "DataLoader(multiprocessing_context='forkserver'), or torch.set_num_threads(1), cv2.setNumThreads(0)",
        ("loader-worker-blocked", "fork-deadlock"),
    ),
    Cause(
        "loader-worker-died",
        Stage.DATA,
        "A loader worker died",
        "A worker process is gone and the rank waits for its batch.",
        "look for out-of-memory kills; give containers more shared memory (--shm-size); use fewer workers",
        ("shared-memory-exhausted", "loader-worker-frozen"),
    ),
    Cause(
        "loader-worker-frozen",
        Stage.DATA,
        "A loader worker is frozen",
        "A worker process is stopped or sleeps uninterruptibly in the kernel.",
        "resume it (kill -CONT PID), or look at the file system that it waits for",
        ("loader-worker-blocked", "loader-worker-died"),
    ),
    Cause(
        "file-descriptors-exhausted",
        Stage.DATA,
        "No file descriptors are left",
        "The process is at its limit of open files, so that tensors cannot be passed between processes.",
        "ulimit -n 65536 before the start (better than torch.multiprocessing.set_sharing_strategy('file_system'))",
        ("shared-memory-exhausted", "loader-worker-died"),
    ),
    Cause(
        "shared-memory-exhausted",
        Stage.DATA,
        "/dev/shm is full",
        "Workers pass batches through /dev/shm, which has no room left.",
        "docker run --shm-size=8g (or --ipc=host); in Kubernetes mount an emptyDir with medium: Memory on /dev/shm",
        ("loader-worker-died", "file-descriptors-exhausted"),
    ),
)
