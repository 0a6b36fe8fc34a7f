/* What a program meets of CUDA where it waits: a call that spins without the interpreter lock, kernels that take their
 * time, and a watchdog that ends the process without asking Python. The functions that a native stack is to show have
 * the names of those that they stand in for.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMUNICATORS 64
#define LONGEST 4096
#define SPIN_S 0.05 /* after which a wait gives way to all others: there are more ranks than processors here */

/* Counters of the compute stream, written by Python. */
volatile long standin_enqueued;
volatile long standin_completed;

static struct {
    volatile double deadline; /* of CLOCK_MONOTONIC; 0 where nothing is outstanding */
    char lines[LONGEST];
} watched[COMMUNICATORS];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static void set_policy(int policy)
{
    struct sched_param none = {0};
    sched_setscheduler(0, policy, &none);
}

/* Spins until a counter has come so far. */
static void spin(volatile long *counter, long until)
{
    double began = now();
    int idle = 0;
    while (*counter < until) {
        if (!idle && now() - began > SPIN_S) {
            set_policy(SCHED_IDLE);
            idle = 1;
        }
        sched_yield();
    }
    if (idle)
        set_policy(SCHED_OTHER);
}

/* Returns when all that was enqueued before the call is complete. Spins, as CUDA does by default. */
int cudaStreamSynchronize(void *stream)
{
    (void)stream;
    spin(&standin_completed, standin_enqueued);
    return 0;
}

/* Returns when all members have come, which Python counts as 1. NCCL polls for them. */
int ncclCommInitRankConfig(volatile long *joined)
{
    spin(joined, 1);
    return 0;
}

/* The host's side of the end of a kernel. */
typedef void (*ended)(long);
struct kernel {
    double seconds;
    ended callback;
    long number;
};

static void *run(void *given)
{
    struct kernel kernel = *(struct kernel *)given;
    free(given);
    nap(kernel.seconds);
    kernel.callback(kernel.number);
    return NULL;
}

int standin_launch(double seconds, ended callback, long number)
{
    pthread_t thread;
    struct kernel *kernel = malloc(sizeof *kernel);
    *kernel = (struct kernel){seconds, callback, number};
    int failed = pthread_create(&thread, NULL, run, kernel);
    return failed ? failed : pthread_detach(thread);
}

/* What to write, and when to abort, if the communicator's first outstanding collective does not complete before. */
void standin_expect(int communicator, double seconds, const char *lines)
{
    if (communicator < 0 || communicator >= COMMUNICATORS)
        return;
    watched[communicator].deadline = 0;
    if (lines == NULL)
        return;
    snprintf(watched[communicator].lines, LONGEST, "%s", lines);
    watched[communicator].deadline = now() + seconds;
}

static void *watch(void *unused)
{
    (void)unused;
    for (;;) {
        nap(0.1);
        for (int each = 0; each < COMMUNICATORS; each++) {
            double deadline = watched[each].deadline;
            if (deadline != 0 && now() > deadline && watched[each].deadline == deadline) {
                if (write(STDERR_FILENO, watched[each].lines, strlen(watched[each].lines)) >= 0)
                    abort();
                abort();
            }
        }
    }
    return NULL;
}

/* torch keeps the request handler, a Python function, beyond the interpreter's end: destroying it would crash. */
static void leave(int status, void *unused)
{
    (void)unused;
    fflush(NULL);
    _exit(status);
}

/* The watchdog's thread, and the way out. */
int standin_start(void)
{
    pthread_t thread;
    on_exit(leave, NULL);
    int failed = pthread_create(&thread, NULL, watch, NULL);
    return failed ? failed : pthread_detach(thread);
}
