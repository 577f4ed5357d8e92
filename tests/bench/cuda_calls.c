/* SPDX-License-Identifier: Apache-2.0
 *
 * Nanoseconds per driver call, best of many rounds; one line of JSON. Run bare and with the library in front of
 * the driver (tests/bench/cuda-calls), by each road that programs take.
 *
 *   cuda-calls ROAD [BLOCKS [PEERS]]   so many live blocks in this process; so many other processes with one each
 *
 * ROAD: link; dlsym; ask (cuGetProcAddress, as the CUDA runtime does) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef int CUdevice;
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;

/* name for cuGetProcAddress, its version, the symbol, parameters */
#define FUNCTIONS(X)                                                                                         \
  X(cuInit, 2000, cuInit, (unsigned flags))                                                                  \
  X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))        \
  X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, (CUcontext context))                                             \
  X(cuCtxSynchronize, 2000, cuCtxSynchronize, (void))                                                        \
  X(cuMemAlloc, 3020, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                  \
  X(cuMemFree, 3020, cuMemFree_v2, (CUdeviceptr address))                                                    \
  X(cuMemAllocAsync, 11020, cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream))         \
  X(cuMemFreeAsync, 11020, cuMemFreeAsync, (CUdeviceptr address, CUstream stream))                           \
  X(cuMemGetInfo, 3020, cuMemGetInfo_v2, (size_t *free, size_t *total))                                      \
  X(cuStreamCreate, 2000, cuStreamCreate, (CUstream * stream, unsigned flags))                               \
  X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, (CUstream stream, int mode))                       \
  X(cuStreamEndCapture, 10000, cuStreamEndCapture, (CUstream stream, void **graph))                          \
  X(cuModuleLoadData, 2000, cuModuleLoadData, (CUmodule * module, const void *image))                        \
  X(cuModuleGetFunction, 2000, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name)) \
  X(cuLaunchKernel, 4000, cuLaunchKernel,                                                                    \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,               \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,          \
     void **extra))

#define DECLARE(name, version, symbol, parameters) CUresult symbol parameters;
FUNCTIONS(DECLARE)

static struct {
#define MEMBER(name, version, symbol, parameters) CUresult(*name) parameters;
  FUNCTIONS(MEMBER)
} cuda;

static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry spin_ns(.param .u64 nanoseconds)\n{\n ret;\n}\n";
static CUfunction kernel;

static void check(CUresult result, const char *call) {
  if (result == 0) return;
  fprintf(stderr, "cuda-calls: %s answered %d\n", call, result);
  exit(1);
}

/* --- roads -------------------------------------------------------------------------------------------- */

typedef CUresult ask_function(const char *name, void **function, int version, uint64_t flags, int *found);

static void *looked_up(const char *symbol) {
  static void *library;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
  void *found = library == NULL ? NULL : dlsym(library, symbol);
  check(found == NULL, symbol);
  return found;
}

static void *asked(const char *name, int version) {
  void *found = NULL;
  int status = 0;
  ask_function *ask = (ask_function *)looked_up("cuGetProcAddress_v2");
  check(ask(name, &found, version, 0, &status), name);
  return found;
}

static void take_road(const char *road) {
#define LINKED(name, version, symbol, parameters) cuda.name = symbol;
#define LOOKED_UP(name, version, symbol, parameters) cuda.name = (CUresult(*) parameters)looked_up(#symbol);
#define ASKED(name, version, symbol, parameters) cuda.name = (CUresult(*) parameters)asked(#name, version);
  if (strcmp(road, "link") == 0) {
    FUNCTIONS(LINKED)
  } else if (strcmp(road, "dlsym") == 0) {
    FUNCTIONS(LOOKED_UP)
  } else if (strcmp(road, "ask") == 0) {
    FUNCTIONS(ASKED)
  } else {
    check(1, road);
  }
}

/* --- calls -------------------------------------------------------------------------------------------- */

static void plain(void) {
  CUdeviceptr address;
  check(cuda.cuMemAlloc(&address, 1 << 20), "cuMemAlloc");
  check(cuda.cuMemFree(address), "cuMemFree");
}

static void async(void) {
  CUdeviceptr address;
  check(cuda.cuMemAllocAsync(&address, 1 << 20, NULL), "cuMemAllocAsync");
  check(cuda.cuMemFreeAsync(address, NULL), "cuMemFreeAsync");
}

static void info(void) {
  size_t free_bytes, total_bytes;
  check(cuda.cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo");
}

static void launch(void) {
  uint64_t nanoseconds = 0;
  void *parameters[] = {&nanoseconds};
  check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
}

static void use_card(void) {
  CUcontext context;
  check(cuda.cuInit(0), "cuInit");
  check(cuda.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

static void capture(void) {
  CUstream stream;
  void *graph;
  check(cuda.cuStreamCreate(&stream, 1), "cuStreamCreate");
  check(cuda.cuStreamBeginCapture(stream, 0), "cuStreamBeginCapture");
  check(cuda.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
}

static void hold(long blocks) {
  CUdeviceptr address;
  for (long i = 0; i < blocks; i++) check(cuda.cuMemAlloc(&address, 512), "cuMemAlloc");
}

/* Processes that have a block each, and end with this one. One starts after the other. */
static void start_peers(long count) {
  int ready[2];
  char byte;
  if (pipe(ready) != 0) exit(1);
  for (long i = 0; i < count; i++) {
    if (fork() != 0) {
      if (read(ready[0], &byte, 1) == 1) continue;
      fprintf(stderr, "cuda-calls: a peer did not start\n");
      exit(1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    use_card();
    hold(1);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The best round is the one that the rest of the machine disturbed least. */
static double best(void (*call)(void), int rounds, int calls) {
  double least = 1e30;
  for (int round = 0; round < rounds; round++) {
    double begin = now();
    for (int index = 0; index < calls; index++) call();
    double each = (now() - begin) / calls;
    if (each < least) least = each;
    check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
  }
  return least;
}

int main(int count, char **words) {
  CUmodule module;
  if (count < 2) return 2;
  take_road(words[1]);
  if (count > 3) start_peers(atol(words[3]));
  double begin = now();
  use_card();
  double start = now() - begin;
  if (count > 2) hold(atol(words[2]));
  check(cuda.cuModuleLoadData(&module, image), "cuModuleLoadData");
  check(cuda.cuModuleGetFunction(&kernel, module, "spin_ns"), "cuModuleGetFunction");
  printf("{\"alloc+free\": %.1f, ", best(plain, 60, 1000));
  printf("\"async alloc+free\": %.1f, ", best(async, 60, 1000));
  printf("\"cuMemGetInfo\": %.1f, ", best(info, 60, 1000));
  printf("\"cuLaunchKernel\": %.1f, ", best(launch, 60, 500));
  capture();
  printf("\"cuLaunchKernel after a capture\": %.1f, ", best(launch, 60, 500));
  printf("\"cuInit + context\": %.1f}\n", start);
  return 0;
}
