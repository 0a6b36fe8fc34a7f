"""What one process does or came to, by the kernel's facts."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import ProcessFacts

IDLE_CPU_S = 0.2  # seconds of CPU time between two samples (about 1 s apart) below which a process counts as asleep


def computed(facts: ProcessFacts) -> bool:
    """It used more processor time between two samples than a process that sleeps."""
    return (facts.cpu_delta_s or 0) > IDLE_CPU_S


def computes(facts: ProcessFacts) -> bool:
    """A child process uses the processor, or would if one were free."""
    return computed(facts) or facts.state == "R"


def without_its_call(facts: ProcessFacts) -> ProcessFacts:
    """Those of the process alone, without what its main thread is in."""
    return replace(
        facts,
        system_call=None,
        wait_channel=None,
        blocked_on=None,
        received_delta_bytes=None,
        waits_for=None,
        sleeps_s=None,
        times_out_s=None,
        private_wait=False,
    )


def is_chosen(code: int | None) -> bool:
    """An exit code that Python does not give by itself, as it does for an error (1) and for lost output (120)."""
    return code is not None and 0 < code < 128 and code not in (1, 120)
