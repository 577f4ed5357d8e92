/* SPDX-License-Identifier: Apache-2.0
 *
 * Comes to the driver as a CUDA runtime does: every look-up of one version of it, in its order, with its
 * versions and flags, each by the function that the look-ups before have given; then what it calls for a
 * program that allocates until it is refused, launches, records a graph, and goes on. The runtime itself asks
 * the driver for an answer that only a genuine one has.
 *
 *   cudart LOOKUPS legacy|per-thread
 *
 * LOOKUPS: a line per look-up, name, version, flags, as seen of cudart. Prints JSON. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t pointer;
typedef int ask_v1(const char *, void **, int, uint64_t);
typedef int ask_v2(const char *, void **, int, uint64_t, int *);

#define BLOCK (8u << 20)
#define MOST 1000

static struct lookup {
  char name[80];
  int version, code;
  unsigned flags;
  void *found;
} lookups[MOST];
static int lookup_count;
static unsigned wanted_flags; /* 2: the per-thread spelling where there is one */

static void must(const char *what, int code) {
  if (code == 0) return;
  fprintf(stderr, "%s: %d\n", what, code);
  exit(3);
}

static void read_lookups(const char *path) {
  FILE *file = fopen(path, "r");
  if (file == NULL) must(path, -1);
  struct lookup *next = lookups;
  while (lookup_count < MOST && fscanf(file, "%79s %d %u", next->name, &next->version, &next->flags) == 3) {
    if (strcmp(next->name, "\"\"") == 0) next->name[0] = '\0';
    lookup_count++;
    next++;
  }
  fclose(file);
}

/* Until it has got the second version of the look-up function, a runtime has the first; those before CUDA 12
   never ask for the second. */
static void look_up_all(int second) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == NULL) must("dlopen", -1);
  int *(*version)(int *);
  *(void **)&version = dlsym(driver, "cuDriverGetVersion");
  void *ask = dlsym(driver, second ? "cuGetProcAddress_v2" : "cuGetProcAddress");
  if (ask == NULL || version == NULL) must("dlsym", -1);
  for (int i = 0; i < lookup_count; i++) {
    struct lookup *one = &lookups[i];
    int status = 0;
    one->code = second ? ((ask_v2 *)ask)(one->name, &one->found, one->version, one->flags, &status)
                       : ((ask_v1 *)ask)(one->name, &one->found, one->version, one->flags);
    int newer = strcmp(one->name, "cuGetProcAddress") == 0 && one->version == (second ? 12000 : 11030);
    if (newer) must("cuGetProcAddress", one->code), ask = one->found;
  }
}

static void *found(const char *name, int version) {
  void *answer = NULL;
  for (int i = 0; i < lookup_count; i++) {
    const struct lookup *one = &lookups[i];
    if (strcmp(one->name, name) != 0 || one->code != 0) continue;
    if (one->flags == 0 && (one->version == version || version == 0)) answer = one->found;
    if (one->flags != 0 && one->flags == wanted_flags) return one->found;
  }
  return answer;
}

/* A call of what was looked up, by name and version; all of them answer a code. */
#define CALL(name, version, parameters, ...) \
  must(#name, ((int(*) parameters)found(#name, version))(__VA_ARGS__))
#define CODE(name, version, parameters, ...) ((int(*) parameters)found(#name, version))(__VA_ARGS__)

static void *context, *function;
static size_t device_total;

/* The first call of the runtime that needs a device. */
static void start(void) {
  int version, count, device, value;
  char name[256], uuid[16];
  CALL(cuInit, 2000, (unsigned), 0);
  CALL(cuDriverGetVersion, 2020, (int *), &version);
  CALL(cuDeviceGetCount, 2000, (int *), &count);
  for (int i = 0; i < count; i++) {
    size_t total;
    CALL(cuDeviceGet, 2000, (int *, int), &device, i);
    CALL(cuDeviceGetName, 2000, (char *, int, int), name, sizeof name, device);
    CALL(cuDeviceTotalMem, 3020, (size_t *, int), &total, device);
    if (i == 0) device_total = total;
    CALL(cuDeviceGetUuid, 9020, (char *, int), uuid, device);
    for (int attribute = 1; attribute <= 112; attribute++)
      CODE(cuDeviceGetAttribute, 2000, (int *, int, int), &value, attribute, device);
  }
  CALL(cuDevicePrimaryCtxRetain, 7000, (void **, int), &context, 0);
  CALL(cuCtxSetCurrent, 4000, (void *), context);
  CALL(cuCtxGetDevice, 2000, (int *), &device); /* with one argument: version 2000 */
}

static const char image[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin_ns(.param .u64 nanoseconds)\n{\n ret;\n}\n";

/* From CUDA 12 on a kernel is a library's, and passed as if it were a function. */
static void load(void) {
  void *module;
  if (found("cuLibraryLoadData", 12000) != NULL) {
    void *library;
    CALL(cuLibraryLoadData, 12000,
         (void **, const void *, void *, void *, unsigned, void *, void *, unsigned), &library, image, NULL,
         NULL, 0, NULL, NULL, 0);
    CALL(cuLibraryGetModule, 12000, (void **, void *), &module, library);
    CALL(cuLibraryGetKernel, 12000, (void **, void *, const char *), &function, library, "spin_ns");
  } else {
    CALL(cuModuleLoadData, 2000, (void **, const void *), &module, image);
    CALL(cuModuleGetFunction, 2000, (void **, void *, const char *), &function, module, "spin_ns");
  }
}

static void launch(void *stream) {
  uint64_t nanoseconds = 2000000;
  void *parameters[] = {&nanoseconds};
  CALL(cuLaunchKernel, 4000,
       (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
        void **),
       function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static void record_and_run(void) {
  void *stream, *graph, *exec;
  CALL(cuStreamCreate, 2000, (void **, unsigned), &stream, 1);
  CALL(cuStreamBeginCapture, 10010, (void *, int), stream, 0);
  launch(stream);
  CALL(cuStreamEndCapture, 10000, (void *, void **), stream, &graph);
  CALL(cuGraphInstantiateWithFlags, 11040, (void **, void *, uint64_t), &exec, graph, 0);
  CALL(cuGraphLaunch, 10000, (void *, void *), exec, stream);
  CALL(cuStreamSynchronize, 2000, (void *), stream);
  CALL(cuGraphExecDestroy, 10000, (void *), exec);
  CALL(cuGraphDestroy, 10000, (void *), graph);
}

/* cudaMalloc and cudaMallocAsync until they are refused; then all is freed. The code of the refusal. */
static int until_refused(int async, int *blocks) {
  static pointer held[MOST];
  int code = 0;
  for (*blocks = 0; *blocks < MOST; (*blocks)++) {
    pointer *place = &held[*blocks];
    code = async ? CODE(cuMemAllocAsync, 11020, (pointer *, size_t, void *), place, BLOCK, NULL)
                 : CODE(cuMemAlloc, 3020, (pointer *, size_t), place, BLOCK);
    if (code != 0) break;
  }
  for (int i = 0; i < *blocks; i++)
    if (async)
      CALL(cuMemFreeAsync, 11020, (pointer, void *), held[i], NULL);
    else
      CALL(cuMemFree, 3020, (pointer), held[i]);
  CALL(cuCtxSynchronize, 2000, (void), );
  return code;
}

int main(int count, char **words) {
  size_t available, total;
  int plain, async;
  if (count != 3) return 64;
  read_lookups(words[1]);
  wanted_flags = strcmp(words[2], "per-thread") == 0 ? 2 : 0;
  look_up_all(strstr(words[1], "11.") == NULL);
  start();
  load();
  launch(NULL);
  int plain_code = until_refused(0, &plain), async_code = until_refused(1, &async);
  launch(NULL); /* goes on */
  record_and_run();
  CALL(cuMemGetInfo, 3020, (size_t *, size_t *), &available, &total);
  printf(
      "{\"lookups\": %d, \"device_total\": %zu, \"total\": %zu, \"free\": %zu, \"plain\": [%d, %d], "
      "\"async\": [%d, %d], \"missing\": [",
      lookup_count, device_total, total, available, plain, plain_code, async, async_code);
  for (int i = 0, first = 1; i < lookup_count; i++)
    if (lookups[i].code != 0) {
      printf("%s[\"%s\", %d, %u, %d]", first ? "" : ", ", lookups[i].name, lookups[i].version,
             lookups[i].flags, lookups[i].code);
      first = 0;
    }
  printf("]}\n");
  CALL(cuDevicePrimaryCtxRelease, 7000, (int), 0);
  return 0;
}
