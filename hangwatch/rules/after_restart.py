"""What to do about a start that hangs or fails after a restart by torchrun."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import restarted_with_its_store
from hangwatch.stacks.activity import Doing

FIX_RESTART = (
    "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where torchrun restarts the job (--rdzv-backend=c10d or --standalone heed"
    " it): an attempt then finds no addresses of the one before; else look for what ended that rank first"
)


def fix_after_restart(case: Case) -> str:
    """The advice, where all ranks wait in init_process_group of a later attempt, with the store of those before."""
    living = [view for view in case if not view.dead]
    start = all(view.now.doing is Doing.RENDEZVOUS for view in living)
    return FIX_RESTART if living and start and any(map(restarted_with_its_store, living)) else ""
