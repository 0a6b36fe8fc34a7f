"""The source of a simulated program: which frames lead to a call, and what a reader of the source would see there.

Three ways of writing one training: all in `main`, in functions, or below one call of a framework's `trainer.fit()`,
where only the framework's frames tell one call from another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.model import Frame, LoopFacts

SITE_PACKAGES = "/venv/lib/python3.12/site-packages"
TORCH = f"{SITE_PACKAGES}/torch"
FRAMEWORK = f"{SITE_PACKAGES}/lightning/pytorch"
AGENT = f"{SITE_PACKAGES}/hangwatch_agent"
STDLIB = "/usr/lib/python3.12"
SCRIPT = "/home/ann/train.py"
MODULE = Frame(SCRIPT, 199, "<module>")
SKIP = Frame(SCRIPT, 53, "train_step")  # the `continue` of the loop over batches
LAST_IN_LOOP = 75
CALLED = 105  # the line of `main` that leads to the functions: ahead of what `main` itself does behind the training
FIT = Frame(SCRIPT, CALLED, "main")
STYLES = ("script", "functions", "trainer")

# Line and function of each place of the script, and whether it stands inside the loop over batches.
LINES: dict[str, tuple[int, str, bool]] = {
    "init": (20, "setup", False),
    "model": (25, "setup", False),
    "loop": (40, "train", False),
    "load": (42, "prepare", True),
    "forward": (44, "train_step", True),
    "tensor": (46, "train_step", True),
    "send": (48, "exchange", True),
    "recv": (50, "exchange", True),
    "backward": (55, "train_step", True),
    "clip": (57, "train_step", True),
    "log": (60, "log_metrics", True),
    "item": (62, "log_metrics", True),
    "vote": (64, "train_step", True),
    "extra": (67, "retry", True),
    "lone-log": (70, "log_metrics", True),
    "handler": (73, "train_step", True),
    "save": (80, "save", False),
    "save-gather": (82, "save", False),
    "after-save": (85, "train", False),
    "validate": (90, "validate", False),
    "validate-gather": (93, "validate", False),
    "stop": (96, "train", False),
    "other-op": (98, "log_metrics", True),
    "final": (110, "main", False),
    "monitored": (112, "main", False),
    "upload": (120, "upload", False),
    "thread": (130, "background", False),
    "thread-call": (132, "background", False),
    "cleanup": (140, "main", False),
    "data-set": (150, "__getitem__", False),
}
# The condition above a place, and what it asks for.
CONDITIONS = {LINES["extra"][0]: ("if overflow", "value"), LINES["lone-log"][0]: ("if rank == 0", "rank")}


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the program: Python frames from the place outwards, and what its source says."""

    name: str
    frames: tuple[Frame, ...]
    guard: str = "none"
    in_loop: bool = False
    loop: LoopFacts | None = None
    block: str = ""


@dataclass
class Source:
    """The source of one program, written in one of the `STYLES`."""

    style: str = "script"
    skips: bool = False  # the loop over batches has a `continue`
    leaves: bool = False  # and a `break`
    counted: bool = False  # and counts its turns, rather than drawing batches
    _sites: dict[tuple[str, str, str], Site] = field(default_factory=dict)

    def site(self, name: str, guard: str = "none", block: str = "") -> Site:
        """The site of this name; one object for equal questions."""
        key = (name, guard, block)
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = self._made(name, guard, block)
        return found

    def _made(self, name: str, guard: str, block: str) -> Site:
        _, _, in_loop = LINES[name]
        frames = _FRAMES[self.style, name]
        loop = self._loop() if in_loop and self.style != "trainer" else None
        return Site(name, frames, guard, in_loop and self.style != "trainer", loop, block)

    def _loop(self) -> LoopFacts:
        return LoopFacts(
            Frame(SCRIPT, 40, "main" if self.style == "script" else "train"),
            counted=self.counted,
            skips=(SKIP,) if self.skips else (),
            leaves=(Frame(SCRIPT, 41, "train"),) if self.leaves else (),
        )


def _frames(style: str, name: str) -> tuple[Frame, ...]:
    line, function, in_loop = LINES[name]
    if function in ("__getitem__", "background", "upload"):
        return (Frame(SCRIPT, line, function), Frame(f"{STDLIB}/threading.py", 1010, "Thread.run"))
    if style == "script" or function == "main":
        return (Frame(SCRIPT, line, "main"), MODULE)
    if style == "functions":
        middle = (Frame(SCRIPT, 43, "train"),) if in_loop else ()
        return (Frame(SCRIPT, line, function), *middle, Frame(SCRIPT, CALLED, "main"), MODULE)
    inner = Frame(f"{FRAMEWORK}/{'loops/training_epoch_loop' if in_loop else 'trainer/call'}.py", line, function)
    return (inner, Frame(f"{FRAMEWORK}/trainer/trainer.py", 574, "Trainer._run"), FIT, MODULE)


_FRAMES = {(style, name): _frames(style, name) for style in STYLES for name in LINES}
