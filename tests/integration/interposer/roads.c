/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA program for the tests: comes to the driver by a named road and does one thing with it.
 *
 *   roads ROAD edge KIND       allocate until refused down to the byte, report, free, report
 *   roads ROAD race THREADS N [KIND]  allocate and free at random in threads, N times each; report the codes
 *   roads ROAD fill BLOCK [KIND]      allocate blocks until refused; report; hold until stdin ends
 *   roads ROAD churn BLOCK [KIND]     allocate and free one block for ever
 *   roads ROAD mixed           frees by the other family's calls, unknown pointers, NULL arguments
 *   roads ROAD contexts        what a destroyed context held is back
 *   roads ROAD fork            parent and child both allocate
 *   roads ROAD info            the views' figures by device
 *
 * ROAD is one of roads.h's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "roads.h"

#define VIRTUAL (2u << 20)

static void *context;

static void use_device(int device) {
  must("cuInit", cuda.cuInit(0));
  must("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(&context, device));
  must("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context));
}

/* CUDA_ARRAY3D_DESCRIPTOR: of so many bytes in the fake's layout, in any number of dimensions that does. */
struct deep {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

static struct deep shape_of(size_t bytes, int dimensions) {
  struct deep shape = {bytes, 0, 0, 1, 1, 0};
  if (bytes < 16384 || dimensions == 1) return shape;
  shape = (struct deep){128, bytes / 2048, 0, 0x20, 4, 0}; /* rows of 2 KiB, padded to eight */
  if (dimensions == 3) shape.height = 8, shape.depth = bytes / 16384;
  return shape;
}

static result allocate_array(const char *kind, pointer *address, size_t bytes) {
  void *made = NULL;
  struct deep shape = shape_of(bytes, strcmp(kind, "array3d") == 0 ? 3 : 2);
  struct {
    size_t width, height;
    int format;
    unsigned channels;
  } flat = {shape.width, shape.height, shape.format, shape.channels};
  result code = strcmp(kind, "array") == 0    ? cuda.cuArrayCreate(&made, &flat)
                : strcmp(kind, "mipmap") == 0 ? cuda.cuMipmappedArrayCreate(&made, &shape, 1)
                                              : cuda.cuArray3DCreate(&made, &shape);
  *address = (pointer)(uintptr_t)made;
  return code;
}

/* A pool of one's own, which keeps everything. */
static void *keeping_pool(void) {
  static void *pool;
  if (pool != NULL) return pool;
  struct {
    int type, handle_types, location_type, location;
    uint64_t rest[9];
  } properties = {1, 0, 1, 0, {0}};
  uint64_t everything = UINT64_MAX;
  must("cuMemPoolCreate", cuda.cuMemPoolCreate(&pool, &properties));
  must("cuMemPoolSetAttribute", cuda.cuMemPoolSetAttribute(pool, 4, &everything));
  return pool;
}

/* A graph that allocates and does nothing else. Its address is told by the node. */
#define MOST_GRAPHS 4096
static struct graph {
  pointer address;
  void *graph, *exec;
} graphs[MOST_GRAPHS];

static result allocate_graph(pointer *address, size_t bytes) {
  struct alloc_node node = {.type = 1, .location_type = 1, .bytes = bytes};
  struct graph *graph = graphs;
  void *added;
  while (graph->address != 0) graph++;
  must("cuGraphCreate", cuda.cuGraphCreate(&graph->graph, 0));
  must("cuGraphAddMemAllocNode", cuda.cuGraphAddMemAllocNode(&added, graph->graph, NULL, 0, &node));
  must("cuGraphInstantiate", cuda.cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0));
  result code = cuda.cuGraphLaunch(graph->exec, NULL);
  if (code == 0) {
    *address = graph->address = node.address;
  } else {
    must("cuGraphExecDestroy", cuda.cuGraphExecDestroy(graph->exec));
    must("cuGraphDestroy", cuda.cuGraphDestroy(graph->graph));
  }
  return code;
}

static result release_graph(pointer address) {
  struct graph *graph = graphs;
  while (graph->address != address) graph++;
  graph->address = 0;
  must("cuMemFree", cuda.cuMemFree(address));
  must("cuGraphExecDestroy", cuda.cuGraphExecDestroy(graph->exec));
  must("cuGraphDestroy", cuda.cuGraphDestroy(graph->graph));
  return cuda.cuDeviceGraphMemTrim(0);
}

static result allocate(const char *kind, pointer *address, size_t bytes) {
  if (strcmp(kind, "virtual") == 0) {
    int properties[8] = {1, 0, 1, 0};
    return cuda.cuMemCreate(address, (bytes + VIRTUAL - 1) / VIRTUAL * VIRTUAL, properties, 0);
  }
  if (strncmp(kind, "array", 5) == 0 || strcmp(kind, "mipmap") == 0)
    return allocate_array(kind, address, bytes);
  if (strcmp(kind, "graph") == 0) return allocate_graph(address, bytes);
  if (strcmp(kind, "keep") == 0) return cuda.cuMemAllocFromPoolAsync(address, bytes, keeping_pool(), NULL);
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
  void *object = (void *)(uintptr_t)address;
  if (strcmp(kind, "virtual") == 0) return cuda.cuMemRelease(address);
  if (strncmp(kind, "array", 5) == 0) return cuda.cuArrayDestroy(object);
  if (strcmp(kind, "mipmap") == 0) return cuda.cuMipmappedArrayDestroy(object);
  if (strcmp(kind, "graph") == 0) return release_graph(address);
  int stream_ordered = strcmp(kind, "async") == 0 || strcmp(kind, "pool") == 0 || strcmp(kind, "keep") == 0;
  return stream_ordered ? cuda.cuMemFreeAsync(address, NULL) : cuda.cuMemFree(address);
}

#define MOST 100000
static pointer held[MOST];

static size_t rounded(const char *kind, size_t bytes) {
  size_t unit = strcmp(kind, "virtual") == 0 ? VIRTUAL : 512;
  return (bytes + unit - 1) / unit * unit;
}

static void edge(const char *kind) {
  size_t block = 64u << 20, sum = 0, available, total, again;
  int count = 0, code = 0;
  while (block > 0 && count < MOST) {
    code = allocate(kind, &held[count], block);
    if (code == 0) {
      sum += rounded(kind, block);
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
static const char *race_kind = "plain";
static int codes[1000];

static void *race_thread(void *seed) {
  unsigned state = (unsigned)(uintptr_t)seed;
  pointer mine[32] = {0};
  must("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context));
  for (int i = 0; i < rounds; i++) {
    int at = rand_r(&state) % 32;
    if (mine[at] != 0) {
      must("release", release(race_kind, mine[at]));
      mine[at] = 0;
      continue;
    }
    int code = allocate(race_kind, &mine[at], (size_t)(rand_r(&state) % 16384 + 1) * 512);
    __atomic_fetch_add(&codes[code], 1, __ATOMIC_RELAXED);
    if (code != 0) mine[at] = 0;
  }
  for (int at = 0; at < 32; at++)
    if (mine[at] != 0) must("release", release(race_kind, mine[at]));
  return NULL;
}

static void race(int threads, int each) {
  pthread_t thread[64];
  int keep = strcmp(race_kind, "keep") == 0;
  if (keep) keeping_pool(); /* before there are threads */
  rounds = each;
  for (int i = 0; i < threads; i++)
    pthread_create(&thread[i], NULL, race_thread, (void *)(uintptr_t)(getpid() * 64 + i));
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  /* The fake driver counts what the dead held until somebody looks. */
  if (keep) must("cuMemPoolTrimTo", cuda.cuMemPoolTrimTo(keeping_pool(), 0));
  printf("{");
  for (int code = 0, first = 1; code < 1000; code++)
    if (codes[code] != 0) {
      printf("%s\"%d\": %d", first ? "" : ", ", code, codes[code]);
      first = 0;
    }
  printf("}\n");
}

static void fill(size_t block, const char *kind) {
  size_t sum = 0;
  int code;
  char byte;
  for (int count = 0; (code = allocate(kind, &held[count], block)) == 0 && count < MOST - 1; count++)
    sum += block;
  printf("{\"held\": %zu, \"code\": %d}\n", sum, code);
  fflush(stdout);
  while (read(0, &byte, 1) > 0) continue;
}

static void churn(size_t block, const char *kind) {
  pointer address;
  printf("ready\n");
  fflush(stdout);
  for (;;)
    if (allocate(kind, &address, block) == 0) must("release", release(kind, address));
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
  if (count > 5) race_kind = words[5];
  if (strcmp(what, "race") == 0) race(atoi(words[3]), atoi(words[4]));
  if (strcmp(what, "fill") == 0) fill(strtoul(words[3], NULL, 0), count > 4 ? words[4] : "plain");
  if (strcmp(what, "churn") == 0) churn(strtoul(words[3], NULL, 0), count > 4 ? words[4] : "plain");
  if (strcmp(what, "mixed") == 0) mixed();
  if (strcmp(what, "contexts") == 0) contexts();
  return 0;
}
