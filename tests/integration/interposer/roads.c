/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA program for the tests: comes to the driver by a named road and does one thing with it.
 *
 *   roads ROAD edge KIND       allocate until refused down to the byte, report, free, report
 *   roads ROAD race THREADS N  allocate and free at random in threads, N times each; report the codes seen
 *   roads ROAD fill BLOCK      allocate blocks until refused; report; hold until stdin ends
 *   roads ROAD churn BLOCK     allocate and free one block for ever
 *   roads ROAD mixed           frees by the other family's calls, unknown pointers, NULL arguments
 *   roads ROAD contexts        what a destroyed context held is back
 *   roads ROAD fork            parent and child both allocate
 *   roads ROAD info            the views' figures by device
 *
 * ROAD: link, dlsym, next (RTLD_NEXT), gpa1, gpa2 (cuGetProcAddress, its _v2), ptsz (per-thread spellings by
 * gpa2) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int result;
typedef uint64_t pointer;

/* name as in cuda.h's macros, symbol, version for cuGetProcAddress, has a per-thread spelling, parameters */
#define FUNCTIONS(X)                                                                                 \
  X(cuInit, cuInit, 2000, 0, (unsigned))                                                             \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000, 0, (int *))                                            \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, 0, (size_t *, int))                                 \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0, (void **, int))                     \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, 0, (int))                        \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, 0, (int))                            \
  X(cuCtxCreate, cuCtxCreate_v2, 3020, 0, (void **, unsigned, int))                                  \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000, 0, (void *))                                                \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0, (void *))                                             \
  X(cuMemAlloc, cuMemAlloc_v2, 3020, 0, (pointer *, size_t))                                         \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (pointer *, size_t, unsigned))                    \
  X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, 0, (pointer *, size_t *, size_t, size_t, unsigned))   \
  X(cuMemAllocAsync, cuMemAllocAsync, 11020, 1, (pointer *, size_t, void *))                         \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 1, (pointer *, size_t, void *, void *)) \
  X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, 0, (void **, int))                  \
  X(cuMemFree, cuMemFree_v2, 3020, 0, (pointer))                                                     \
  X(cuMemFreeAsync, cuMemFreeAsync, 11020, 1, (pointer, void *))                                     \
  X(cuMemGetInfo, cuMemGetInfo_v2, 3020, 0, (size_t *, size_t *))

#define DECLARE(name, symbol, version, per_thread, parameters) extern result symbol parameters;
FUNCTIONS(DECLARE)
extern result cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static struct {
#define MEMBER(name, symbol, version, per_thread, parameters) result(*name) parameters;
  FUNCTIONS(MEMBER)
} cuda;

static void fail(const char *what, int code) {
  fprintf(stderr, "%s: %d\n", what, code);
  exit(3);
}

static void must(const char *what, int code) {
  if (code != 0) fail(what, code);
}

typedef result ask_v1(const char *, void **, int, uint64_t);
typedef result ask_v2(const char *, void **, int, uint64_t, int *);

/* As the CUDA runtime does it: the look-up function is itself looked up, by dlsym and then by itself. */
static void *asked(const char *name, int version, int per_thread, int old) {
  static void *library;
  void *found = NULL;
  int status = 0;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (old) {
    ask_v1 *ask = (ask_v1 *)dlsym(library, "cuGetProcAddress");
    must(name, ask(name, &found, version, per_thread ? 2 : 0));
    return found;
  }
  ask_v2 *first = (ask_v2 *)dlsym(library, "cuGetProcAddress_v2"), *ask = NULL;
  must("cuGetProcAddress", first("cuGetProcAddress", (void **)&ask, 12000, 0, &status));
  must(name, ask(name, &found, version, per_thread ? 2 : 0, &status));
  return found;
}

static void *found_by(const char *road, const char *name, const char *symbol, void *linked, int version,
                      int per_thread) {
  if (strcmp(road, "link") == 0) return linked;
  if (strcmp(road, "dlsym") == 0) return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), symbol);
  if (strcmp(road, "next") == 0) return dlsym(RTLD_NEXT, symbol);
  if (strcmp(road, "gpa1") == 0) return asked(name, version, 0, 1);
  if (strcmp(road, "gpa2") == 0) return asked(name, version, 0, 0);
  if (strcmp(road, "ptsz") == 0) return asked(name, version, per_thread, 0);
  fail(road, -1);
  return NULL;
}

static void come_by(const char *road) {
#define FIND(name, symbol, version, per_thread, parameters)                                              \
  cuda.name = (result(*) parameters)found_by(road, #name, #symbol, (void *)symbol, version, per_thread); \
  if (cuda.name == NULL) fail(#name, -1);
  FUNCTIONS(FIND)
}

static void *context;

static void use_device(int device) {
  must("cuInit", cuda.cuInit(0));
  must("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(&context, device));
  must("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context));
}

static result allocate(const char *kind, pointer *address, size_t bytes) {
  if (strcmp(kind, "plain") == 0) return cuda.cuMemAlloc(address, bytes);
  if (strcmp(kind, "managed") == 0) return cuda.cuMemAllocManaged(address, bytes, 1);
  if (strcmp(kind, "async") == 0) return cuda.cuMemAllocAsync(address, bytes, NULL);
  if (strcmp(kind, "pool") == 0) {
    void *pool;
    must("cuDeviceGetDefaultMemPool", cuda.cuDeviceGetDefaultMemPool(&pool, 0));
    return cuda.cuMemAllocFromPoolAsync(address, bytes, pool, NULL);
  }
  if (strcmp(kind, "pitch") == 0) {
    size_t pitch; /* one narrow column: the pitch is what costs */
    return cuda.cuMemAllocPitch(address, &pitch, 100, (bytes + 511) / 512, 4);
  }
  fail(kind, -1);
  return -1;
}

static result release(const char *kind, pointer address) {
  int stream_ordered = strcmp(kind, "async") == 0 || strcmp(kind, "pool") == 0;
  return stream_ordered ? cuda.cuMemFreeAsync(address, NULL) : cuda.cuMemFree(address);
}

#define MOST 100000
static pointer held[MOST];

static void edge(const char *kind) {
  size_t block = 64u << 20, sum = 0, available, total, again;
  int count = 0, code = 0;
  while (block > 0 && count < MOST) {
    code = allocate(kind, &held[count], block);
    if (code == 0) {
      sum += strcmp(kind, "pitch") == 0 ? (block + 511) / 512 * 512 : block;
      count++;
    } else if (code == 2) {
      block /= 2;
    } else {
      fail("allocate", code);
    }
  }
  must("cuMemGetInfo", cuda.cuMemGetInfo(&available, &total));
  for (int i = 0; i < count; i++) must("release", release(kind, held[i]));
  must("cuMemGetInfo", cuda.cuMemGetInfo(&again, NULL));
  printf("{\"held\": %zu, \"code\": %d, \"free\": %zu, \"total\": %zu, \"free_after\": %zu}\n", sum, code,
         available, total, again);
}

static int rounds;
static int codes[1000];

static void *race_thread(void *seed) {
  unsigned state = (unsigned)(uintptr_t)seed;
  pointer mine[32] = {0};
  must("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context));
  for (int i = 0; i < rounds; i++) {
    int at = rand_r(&state) % 32;
    if (mine[at] != 0) {
      must("cuMemFree", cuda.cuMemFree(mine[at]));
      mine[at] = 0;
      continue;
    }
    int code = cuda.cuMemAlloc(&mine[at], (size_t)(rand_r(&state) % 16384 + 1) * 512);
    __atomic_fetch_add(&codes[code], 1, __ATOMIC_RELAXED);
    if (code != 0) mine[at] = 0;
  }
  for (int at = 0; at < 32; at++)
    if (mine[at] != 0) must("cuMemFree", cuda.cuMemFree(mine[at]));
  return NULL;
}

static void race(int threads, int each) {
  pthread_t thread[64];
  rounds = each;
  for (int i = 0; i < threads; i++)
    pthread_create(&thread[i], NULL, race_thread, (void *)(uintptr_t)(getpid() * 64 + i));
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  printf("{");
  for (int code = 0, first = 1; code < 1000; code++)
    if (codes[code] != 0) {
      printf("%s\"%d\": %d", first ? "" : ", ", code, codes[code]);
      first = 0;
    }
  printf("}\n");
}

static void fill(size_t block) {
  size_t sum = 0;
  int code;
  char byte;
  for (int count = 0; (code = cuda.cuMemAlloc(&held[count], block)) == 0 && count < MOST - 1; count++)
    sum += block;
  printf("{\"held\": %zu, \"code\": %d}\n", sum, code);
  fflush(stdout);
  while (read(0, &byte, 1) > 0) continue;
}

static void churn(size_t block) {
  pointer address;
  printf("ready\n");
  fflush(stdout);
  for (;;)
    if (cuda.cuMemAlloc(&address, block) == 0) must("cuMemFree", cuda.cuMemFree(address));
}

static void mixed(void) {
  pointer address = 0;
  size_t available = 0, total = 0;
  must("cuMemAllocAsync", cuda.cuMemAllocAsync(&address, 1 << 20, NULL));
  int async_by_plain = cuda.cuMemFree(address);
  must("cuMemAlloc", cuda.cuMemAlloc(&address, 1 << 20));
  int plain_by_async = cuda.cuMemFreeAsync(address, NULL);
  int again = cuda.cuMemFree(address), unknown = cuda.cuMemFree(0x1234567800), none = cuda.cuMemFree(0);
  int no_place = cuda.cuMemAlloc(NULL, 1 << 20), no_bytes = cuda.cuMemAlloc(&address, 0);
  int too_much = cuda.cuMemAlloc(&address, SIZE_MAX), wrong_flags = cuda.cuMemAllocManaged(&address, 512, 77);
  int no_free = cuda.cuMemGetInfo(NULL, &total), no_total = cuda.cuMemGetInfo(&available, NULL);
  int neither = cuda.cuMemGetInfo(NULL, NULL);
  printf(
      "{\"async_by_plain\": %d, \"plain_by_async\": %d, \"again\": %d, \"unknown\": %d, \"none\": %d, "
      "\"no_place\": %d, \"no_bytes\": %d, \"too_much\": %d, \"wrong_flags\": %d, \"no_free\": %d, "
      "\"no_total\": %d, \"neither\": %d, \"free\": %zu, \"total\": %zu}\n",
      async_by_plain, plain_by_async, again, unknown, none, no_place, no_bytes, too_much, wrong_flags,
      no_free, no_total, neither, available, total);
}

static void contexts(void) {
  void *second;
  pointer address;
  size_t start, with, destroyed, reset;
  must("cuMemGetInfo", cuda.cuMemGetInfo(&start, NULL));
  must("cuCtxCreate", cuda.cuCtxCreate(&second, 0, 0));
  for (int i = 0; i < 100; i++) must("cuMemAlloc", cuda.cuMemAlloc(&address, 512));
  must("cuMemGetInfo", cuda.cuMemGetInfo(&with, NULL));
  must("cuCtxDestroy", cuda.cuCtxDestroy(second));
  must("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context));
  must("cuMemGetInfo", cuda.cuMemGetInfo(&destroyed, NULL));
  must("cuMemAlloc", cuda.cuMemAlloc(&address, 1024));
  must("cuDevicePrimaryCtxReset", cuda.cuDevicePrimaryCtxReset(0));
  must("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(&context, 0));
  must("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context));
  must("cuMemGetInfo", cuda.cuMemGetInfo(&reset, NULL));
  printf("{\"held\": %zu, \"after_destroy\": %zu, \"after_reset\": %zu}\n", start - with, start - destroyed,
         start - reset);
}

/* Forked before anything of CUDA was called: both start it. */
static void fork_both(void) {
  pointer address;
  int status, pipes[2], ready[2];
  char byte;
  if (pipe(pipes) != 0 || pipe(ready) != 0) fail("pipe", -1);
  pid_t child = fork();
  use_device(0);
  must("cuMemAlloc", cuda.cuMemAlloc(&address, 1 << 20));
  if (child == 0) {
    if (write(ready[1], "x", 1) != 1 || read(pipes[0], &byte, 1) != 1) _exit(4);
    _exit(cuda.cuMemFree(address));
  }
  size_t available, total;
  if (read(ready[0], &byte, 1) != 1) fail("read", -1);
  must("cuMemGetInfo", cuda.cuMemGetInfo(&available, &total));
  if (write(pipes[1], "x", 1) != 1) fail("write", -1);
  waitpid(child, &status, 0);
  must("the child", status);
  size_t alone;
  usleep(10000);
  must("cuMemGetInfo", cuda.cuMemGetInfo(&alone, NULL));
  printf("{\"both\": %zu, \"alone\": %zu}\n", total - available, total - alone);
}

static void info(void) {
  int devices;
  must("cuInit", cuda.cuInit(0));
  must("cuDeviceGetCount", cuda.cuDeviceGetCount(&devices));
  printf("[");
  for (int device = 0; device < devices; device++) {
    size_t total_memory, available, total;
    use_device(device);
    must("cuDeviceTotalMem", cuda.cuDeviceTotalMem(&total_memory, device));
    must("cuMemGetInfo", cuda.cuMemGetInfo(&available, &total));
    printf("%s{\"device_total\": %zu, \"free\": %zu, \"total\": %zu}", device ? ", " : "", total_memory,
           available, total);
  }
  printf("]\n");
}

int main(int count, char **words) {
  if (count < 3) fail("usage", count);
  const char *what = words[2];
  come_by(words[1]);
  if (strcmp(what, "fork") == 0) {
    fork_both();
    return 0;
  }
  if (strcmp(what, "info") == 0) {
    info();
    return 0;
  }
  use_device(0);
  if (strcmp(what, "edge") == 0) edge(words[3]);
  if (strcmp(what, "race") == 0) race(atoi(words[3]), atoi(words[4]));
  if (strcmp(what, "fill") == 0) fill(strtoul(words[3], NULL, 0));
  if (strcmp(what, "churn") == 0) churn(strtoul(words[3], NULL, 0));
  if (strcmp(what, "mixed") == 0) mixed();
  if (strcmp(what, "contexts") == 0) contexts();
  return 0;
}
