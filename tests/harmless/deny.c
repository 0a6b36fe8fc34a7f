// Preloaded into every process of a run: takes away from it what DENY names.
#define _GNU_SOURCE
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// No process can be traced, not even by its own user, and most of its files in /proc cannot be read.
static void tracing(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE);
    if (!syscall(SYS_capget, &header, data)) {
        unsigned kept = ~(1u << CAP_SYS_PTRACE);
        data[0].effective &= kept, data[0].permitted &= kept, data[0].inheritable &= kept;
        syscall(SYS_capset, &header, data);
    }
    prctl(PR_SET_DUMPABLE, 0);
}

// No file may grow beyond 64 kB.
static void large_files(void) {
    struct rlimit limit = {64 << 10, 64 << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
}

__attribute__((constructor)) static void deny(void) {
    const char *what = getenv("DENY");
    if (what && !strcmp(what, "tracing")) tracing();
    if (what && !strcmp(what, "large files")) large_files();
}
