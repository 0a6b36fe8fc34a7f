"""The order in which the rules are asked: the first that finds something is told, or one that explains it.

What ended a rank or its data comes before the end of the rank itself, a process that is gone before any counting, an
earlier step before a later one, a cause inside the ranks before one outside. Which causes explain others, the catalogue
says (`Cause.explains`); `hangwatch.judge.explained` asks it.
"""

from __future__ import annotations

from hangwatch.judge.as_they_stood import as_they_stood
from hangwatch.judge.histories import HISTORIES
from hangwatch.rules.by_queues import as_queued
from hangwatch.rules.data.file_descriptors_exhausted import file_descriptors_exhausted
from hangwatch.rules.data.loader_fork_deadlock import loader_fork_deadlock
from hangwatch.rules.data.loader_worker_blocked import loader_worker_blocked
from hangwatch.rules.data.loader_worker_died import loader_worker_died
from hangwatch.rules.data.loader_worker_frozen import loader_worker_frozen
from hangwatch.rules.data.shared_memory_exhausted import shared_memory_exhausted
from hangwatch.rules.device.device_stall import awaited_device, device_stall, no_device_finishes
from hangwatch.rules.device.duplicate_gpu import duplicate_gpu
from hangwatch.rules.device.gpu_fault import gpu_fault
from hangwatch.rules.device.interconnect_stall import interconnect_stall
from hangwatch.rules.exit.exit_atexit_handler import atexit_handler
from hangwatch.rules.exit.exit_child_process import child_process
from hangwatch.rules.exit.exit_destroy_asymmetric import began_anew_before, destroy_asymmetric, destroyed_before
from hangwatch.rules.exit.exit_destructor import destructor
from hangwatch.rules.exit.exit_launcher_order import launcher_order
from hangwatch.rules.exit.exit_non_daemon_thread import non_daemon_thread
from hangwatch.rules.exit.exit_orphan_holds_pipe import orphan_holds_pipe
from hangwatch.rules.exit.exit_queue_feeder import queue_feeder
from hangwatch.rules.exit.output_pipe_full import output_pipe_full
from hangwatch.rules.finding import Rule
from hangwatch.rules.start.launch_mismatch import launch_mismatch
from hangwatch.rules.start.new_group_mismatch import failed_in_one_name, new_group_mismatch
from hangwatch.rules.start.node_not_started import node_not_started
from hangwatch.rules.start.rank_died_before_init import ended_beside_the_ranks, rank_died_before_init
from hangwatch.rules.start.rendezvous_duplicate_rank import duplicate_rank
from hangwatch.rules.start.rendezvous_missing_ranks import missing_ranks
from hangwatch.rules.start.rendezvous_port_conflict import port_conflict
from hangwatch.rules.start.rendezvous_unreachable_master import unreachable_master
from hangwatch.rules.start.stale_file_lock import left_over_file, stale_file_lock
from hangwatch.rules.step.collective_mismatch import aborted_by_a_peers_size, collective_mismatch
from hangwatch.rules.step.collective_mismatch.at_one_place import unlike_sizes_at_one_place
from hangwatch.rules.step.collective_mismatch.two_roles import counted_otherwise
from hangwatch.rules.step.collective_mismatch.uneven_exchange import aborted_by_its_splits, aborted_in_an_exchange
from hangwatch.rules.step.collective_mismatch.unlike_broadcast import aborted_in_a_broadcast
from hangwatch.rules.step.collective_mismatch.unlike_models import unlike_models
from hangwatch.rules.step.collective_mismatch.unlike_settings import unlike_settings
from hangwatch.rules.step.compile_skew import compile_skew
from hangwatch.rules.step.concurrent_collectives import mispaired_with_the_main_thread
from hangwatch.rules.step.data_dependent_graph import ended_without_gradients
from hangwatch.rules.step.early_exit import ended_alone
from hangwatch.rules.step.exception_on_one_rank import (
    caught_in_forward,
    exception_on_one_rank,
    left_with_a_loader_error,
)
from hangwatch.rules.step.exception_on_one_rank.caught import (
    caught_in_its_backward,
    caught_where_it_parted,
    caught_without_backward,
    caught_without_its_key,
)
from hangwatch.rules.step.fork_deadlock import fork_deadlock
from hangwatch.rules.step.gil_held import gil_held
from hangwatch.rules.step.group_order_cycle import group_order_cycle
from hangwatch.rules.step.lock_held_by_process import lock_held_by_process
from hangwatch.rules.step.lock_held_by_process.semaphore import semaphore_held
from hangwatch.rules.step.network_partition import network_partition
from hangwatch.rules.step.node_lost import node_lost
from hangwatch.rules.step.point_to_point_deadlock import (
    lacks_a_counterpart,
    no_sender_is_left,
    point_to_point_deadlock,
)
from hangwatch.rules.step.point_to_point_deadlock.before_the_end import (
    ended_with_fewer_messages,
    ended_without_an_answer,
)
from hangwatch.rules.step.point_to_point_deadlock.wrong_peer import names_the_wrong_peer
from hangwatch.rules.step.rank_died import aborted_at_its_exit, dead_by_nccl, rank_died
from hangwatch.rules.step.rank_frozen import rank_frozen
from hangwatch.rules.step.rank_local_decision.by_unlike_steps import ended_in_unlike_steps
from hangwatch.rules.step.rank_local_decision.until_the_end import repeated_until_the_end
from hangwatch.rules.step.rank_zero_only_collective import evaluated_alone
from hangwatch.rules.step.rank_zero_only_collective.aborted import extra_call
from hangwatch.rules.step.rank_zero_only_collective.before_a_common_call import issued_before_a_common_call
from hangwatch.rules.step.rank_zero_only_collective.before_the_end import (
    stayed_with_a_lone_call,
)
from hangwatch.rules.step.rank_zero_only_collective.behind_a_check import ended_behind_a_rank_check
from hangwatch.rules.step.skipped_collective.before_an_abort import skipped_before_an_abort
from hangwatch.rules.step.skipped_collective.by_place import ended_earlier_than_ever
from hangwatch.rules.step.skipped_collective.monitored import passed_a_monitored_barrier
from hangwatch.rules.step.skipped_collective.until_the_end import skipped_until_its_end
from hangwatch.rules.step.slow_checkpoint import slow_checkpoint
from hangwatch.rules.step.uneven_steps import outside_of_join
from hangwatch.rules.step.user_code_blocked import user_code_blocked
from hangwatch.rules.step.user_code_blocked.at_the_start import came_too_late, late_for_new_group, late_rank
from hangwatch.rules.step.user_code_blocked.for_a_remote_call import answers_no_call
from hangwatch.rules.undetermined.brought_down import (
    ended_by_launcher,
    ended_by_peers,
    lost_peers,
    never_enqueued,
    reason_not_known,
)
from hangwatch.rules.undetermined.in_the_store import gave_up_on_a_key, waits_for_a_key
from hangwatch.rules.undetermined.initialised_again import initialised_again
from hangwatch.rules.undetermined.never_answered import never_answered

ORDER: tuple[Rule, ...] = (
    # Numbers that contradict each other explain a port that is taken and a rank that exists twice.
    launch_mismatch,
    # What ended a rank or its data comes before the end of the rank itself.
    port_conflict,
    duplicate_rank,
    initialised_again,
    rank_died_before_init,
    shared_memory_exhausted,
    file_descriptors_exhausted,
    loader_worker_died,
    loader_worker_frozen,
    unlike_settings,
    caught_in_its_backward,
    ended_without_gradients,
    outside_of_join,
    left_with_a_loader_error,
    caught_where_it_parted,
    caught_without_backward,
    caught_without_its_key,
    caught_in_forward,
    mispaired_with_the_main_thread,
    failed_in_one_name,
    as_they_stood,
    extra_call,
    issued_before_a_common_call,
    aborted_by_a_peers_size,
    aborted_in_an_exchange,
    aborted_by_its_splits,
    aborted_in_a_broadcast,
    evaluated_alone,
    ended_earlier_than_ever,
    ended_behind_a_rank_check,
    orphan_holds_pipe,
    launcher_order,
    node_lost,
    skipped_before_an_abort,
    passed_a_monitored_barrier,
    never_enqueued,
    began_anew_before,
    gave_up_on_a_key,
    came_too_late,
    unlike_models,
    unlike_sizes_at_one_place,
    reason_not_known,
    lost_peers,
    aborted_at_its_exit,
    rank_died,
    rank_frozen,
    dead_by_nccl,
    exception_on_one_rank,
    # The start.
    node_not_started,
    stale_file_lock,
    left_over_file,
    lock_held_by_process,
    semaphore_held,
    fork_deadlock,
    unreachable_master,
    late_rank,
    ended_beside_the_ranks,
    missing_ranks,
    late_for_new_group,
    new_group_mismatch,
    # Data loading.
    loader_fork_deadlock,
    loader_worker_blocked,
    # The end of the job.
    output_pipe_full,
    destructor,
    queue_feeder,
    child_process,
    non_daemon_thread,
    atexit_handler,
    stayed_with_a_lone_call,
    no_sender_is_left,
    destroy_asymmetric,
    # Ranks whose histories differ.
    *HISTORIES,
    collective_mismatch,
    counted_otherwise,
    names_the_wrong_peer,
    point_to_point_deadlock,
    group_order_cycle,
    # A rank in code of its own, and what lies outside of the ranks.
    gil_held,
    slow_checkpoint,
    compile_skew,
    waits_for_a_key,
    answers_no_call,
    never_answered,
    user_code_blocked,
    gpu_fault,
    duplicate_gpu,
    interconnect_stall,
    device_stall,
    lacks_a_counterpart,
    awaited_device,
    as_queued,
    no_device_finishes,
    network_partition,
    skipped_until_its_end,
    ended_in_unlike_steps,
    repeated_until_the_end,
    ended_without_an_answer,
    destroyed_before,
    ended_with_fewer_messages,
    ended_alone,
    ended_by_peers,
    ended_by_launcher,
)
