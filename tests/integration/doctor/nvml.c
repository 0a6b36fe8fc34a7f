/* A stand-in for NVIDIA's management library: two GPUs. FAKE_NVML says what is wrong with them:
   "hang" (the driver never answers), "ecc" (GPU 1 has errors), "held" (pid 1 holds 3 GiB of GPU 0). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } process_t;
typedef struct { unsigned int gpu, memory; } rates_t;

static int is(const char *what) { const char *said = getenv("FAKE_NVML"); return said && strstr(said, what) != NULL; }
static long index_of(void *device) { return (long)device - 1; }

int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned int flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { while (is("hang")) pause(); *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned int length) { snprintf(text, length, "GPU-%ld", index_of(device)); return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned int length) { snprintf(text, length, "NVIDIA Stand-In"); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *m) { m->total = 80ULL << 30; m->used = 1 << 28; m->free = m->total - m->used; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, rates_t *rates) { rates->gpu = rates->memory = 0; return 0; }
int nvmlDeviceGetP2PStatus(void *one, void *other, int what, int *status) { *status = is("nop2p") ? 1 : 0; return 0; }
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count) {
  *count = is("ecc") && index_of(device) == 1 ? 7 : 0;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process_t *found) {
  unsigned int room = *count;
  *count = is("held") && index_of(device) == 0 ? 1 : 0;
  if (*count > room) return 7; /* insufficient size: asked again with an array */
  if (*count) { found[0].pid = 1; found[0].used = 3ULL << 30; found[0].gpu = found[0].compute = -1; }
  return 0;
}
