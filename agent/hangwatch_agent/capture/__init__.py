"""What the watchdog gathers when nothing moves: one file a source of evidence, `capture()` for all of them."""

from hangwatch_agent.capture.evidence import capture
from hangwatch_agent.capture.means import CaptureResult, Means, Target
from hangwatch_agent.capture.native import with_native_stacks

__all__ = ["CaptureResult", "Means", "Target", "capture", "with_native_stacks"]
