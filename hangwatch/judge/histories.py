"""The rules for ranks whose histories differ, in the order in which they are asked.

They hold for a job that waits as for one that was brought down, as its ranks stood then (`judge.as_they_stood`).
"""

from __future__ import annotations

from hangwatch.rules.finding import Rule
from hangwatch.rules.left_the_order import left_the_order
from hangwatch.rules.step.collective_mismatch import collective_mismatch, mispaired_by_a_hash
from hangwatch.rules.step.collective_mismatch.another_order import issued_in_another_order
from hangwatch.rules.step.collective_mismatch.in_another_group import called_in_another_group
from hangwatch.rules.step.compile_skew import communicates_as_it_compiles
from hangwatch.rules.step.concurrent_collectives import concurrent_collectives, mispaired_threads, turns_by_a_lock
from hangwatch.rules.step.data_dependent_graph import data_dependent_graph
from hangwatch.rules.step.early_exit import early_exit, ended_its_epoch_early, left_another_loop, stopped_after_epoch
from hangwatch.rules.step.early_exit import fewer_steps as left_early
from hangwatch.rules.step.exception_on_one_rank import caught_around_its_loop, swallowed
from hangwatch.rules.step.exception_on_one_rank.called_again import called_again
from hangwatch.rules.step.exception_on_one_rank.caught import caught_at_its_loader, caught_past_a_call
from hangwatch.rules.step.gradient_sync_mismatch import (
    accumulated_otherwise,
    gradient_sync_mismatch,
    split_or_repeated,
    synchronised_alone,
    synchronised_at_own_intervals,
    synchronised_out_of_turn,
)
from hangwatch.rules.step.gradient_sync_mismatch.below_no_sync import accumulated_alone
from hangwatch.rules.step.point_to_point_deadlock import point_to_point_deadlock
from hangwatch.rules.step.point_to_point_deadlock.wrong_peer import names_the_wrong_peer
from hangwatch.rules.step.rank_local_decision import (
    counts_on_from_elsewhere,
    decided_about_a_meeting,
    rank_local_decision,
)
from hangwatch.rules.step.rank_local_decision.at_a_mismatch import decided_at_a_mismatch
from hangwatch.rules.step.rank_local_decision.before_an_update import left_an_update_out, went_past_an_update
from hangwatch.rules.step.rank_local_decision.by_a_trainer import (
    decided_by_a_trainer,
    led_by_a_switch,
    logged_by_some,
    stopped_by_a_switch,
)
from hangwatch.rules.step.rank_local_decision.by_recomputation import repeated_in_the_backward
from hangwatch.rules.step.rank_local_decision.by_turns import (
    left_an_inner_loop,
    made_another_turn,
    made_fewer_turns_of_a_step,
    made_fewer_turns_through_its_items,
    made_unlike_turns,
)
from hangwatch.rules.step.rank_local_decision.repeated import repeated_a_call, repeats_a_call
from hangwatch.rules.step.rank_local_decision.tried_again import tried_its_step_again
from hangwatch.rules.step.rank_zero_only_collective import rank_zero_only
from hangwatch.rules.step.rank_zero_only_collective.at_a_new_place import mispaired_at_a_new_place
from hangwatch.rules.step.rank_zero_only_collective.before_the_end import stayed_with_a_lone_call
from hangwatch.rules.step.rank_zero_only_collective.in_a_meeting import alone_in_a_meeting
from hangwatch.rules.step.rank_zero_only_collective.in_a_trainer import logged_alone
from hangwatch.rules.step.rank_zero_only_collective.inside_a_block import called_before_it_lets_them_in
from hangwatch.rules.step.signal_handler_deadlock import signal_handler_deadlock
from hangwatch.rules.step.skipped_collective import skipped_collective
from hangwatch.rules.step.skipped_collective.before_a_common_call import left_out_before_a_common_call
from hangwatch.rules.step.skipped_collective.before_a_message import left_out_before_a_message
from hangwatch.rules.step.skipped_collective.by_a_meeting import went_by_a_meeting
from hangwatch.rules.step.skipped_collective.by_a_rank_check import went_by_for_its_rank
from hangwatch.rules.step.skipped_collective.by_a_turn_begun_anew import began_its_turn_anew
from hangwatch.rules.step.skipped_collective.by_count import left_out_while_it_counted
from hangwatch.rules.step.skipped_collective.by_turns import made_fewer_calls, passed_a_call
from hangwatch.rules.step.skipped_collective.in_another_loop import left_out_in_another_loop
from hangwatch.rules.step.skipped_collective.in_background import left_out_in_the_background
from hangwatch.rules.step.skipped_collective.while_accumulating import left_a_backward_out
from hangwatch.rules.step.uneven_steps import (
    batches_discarded,
    began_at_other_epochs,
    ended_another_loop,
    fewer_steps,
    uneven_epochs,
    uneven_other_loader,
    uneven_steps,
    uneven_validation,
    without_any_batch,
)
from hangwatch.rules.undetermined.counters_differ import counters_differ

HISTORIES: tuple[Rule, ...] = (
    mispaired_by_a_hash,
    signal_handler_deadlock,
    called_before_it_lets_them_in,
    communicates_as_it_compiles,
    concurrent_collectives,
    turns_by_a_lock,
    mispaired_threads,
    issued_in_another_order,
    tried_its_step_again,
    began_its_turn_anew,
    repeats_a_call,
    repeated_in_the_backward,
    left_an_inner_loop,
    without_any_batch,
    uneven_validation,
    uneven_other_loader,
    ended_another_loop,
    left_another_loop,
    batches_discarded,
    accumulated_alone,
    left_a_backward_out,
    gradient_sync_mismatch,
    synchronised_at_own_intervals,
    synchronised_alone,
    synchronised_out_of_turn,
    split_or_repeated,
    accumulated_otherwise,
    left_an_update_out,
    went_past_an_update,
    data_dependent_graph,
    counts_on_from_elsewhere,
    left_out_while_it_counted,
    counters_differ,
    caught_past_a_call,
    called_in_another_group,
    led_by_a_switch,
    stopped_by_a_switch,
    rank_local_decision,
    made_unlike_turns,
    logged_by_some,
    logged_alone,
    decided_by_a_trainer,
    repeated_a_call,
    ended_its_epoch_early,
    rank_zero_only,
    made_fewer_turns_of_a_step,
    made_fewer_turns_through_its_items,
    skipped_collective,
    uneven_steps,
    caught_at_its_loader,
    caught_around_its_loop,
    early_exit,
    began_at_other_epochs,
    stopped_after_epoch,
    uneven_epochs,
    made_fewer_calls,
    left_early,
    swallowed,
    called_again,
    fewer_steps,
    passed_a_call,
    left_out_in_another_loop,
    mispaired_at_a_new_place,
    made_another_turn,
    left_the_order,
    left_out_before_a_common_call,
    left_out_before_a_message,
    left_out_in_the_background,
    went_by_for_its_rank,
    alone_in_a_meeting,
    decided_about_a_meeting,
    went_by_a_meeting,
    decided_at_a_mismatch,
)

# What ranks called: it ends jobs too, where messages meet that are none of each other's.
CALLS: tuple[Rule, ...] = (
    stayed_with_a_lone_call,
    *HISTORIES,
    collective_mismatch,
    names_the_wrong_peer,
    point_to_point_deadlock,
)
