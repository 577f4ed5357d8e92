/* SPDX-License-Identifier: Apache-2.0
 *
 * Nanoseconds per driver call, best of many rounds; one line of JSON. Linked against libcuda, run bare and with
 * the library in front of it (tests/bench/cuda-calls).
 *
 *   cuda-calls [BLOCKS [PEERS]]   so many live blocks in this process; so many other processes with one each
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

typedef int CUdevice;
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;

CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra);

static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry spin_ns(.param .u64 nanoseconds)\n{\n ret;\n}\n";
static CUfunction kernel;

static void check(CUresult result, const char *call) {
  if (result == 0) return;
  fprintf(stderr, "cuda-calls: %s answered %d\n", call, result);
  exit(1);
}

static void plain(void) {
  CUdeviceptr address;
  check(cuMemAlloc_v2(&address, 1 << 20), "cuMemAlloc");
  check(cuMemFree_v2(address), "cuMemFree");
}

static void async(void) {
  CUdeviceptr address;
  check(cuMemAllocAsync(&address, 1 << 20, NULL), "cuMemAllocAsync");
  check(cuMemFreeAsync(address, NULL), "cuMemFreeAsync");
}

static void info(void) {
  size_t free_bytes, total_bytes;
  check(cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
}

static void launch(void) {
  uint64_t nanoseconds = 0;
  void *parameters[] = {&nanoseconds};
  check(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
}

static void use_card(void) {
  CUcontext context;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

static void hold(long blocks) {
  CUdeviceptr address;
  for (long i = 0; i < blocks; i++) check(cuMemAlloc_v2(&address, 512), "cuMemAlloc");
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
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  return least;
}

int main(int count, char **words) {
  CUmodule module;
  if (count > 2) start_peers(atol(words[2]));
  double begin = now();
  use_card();
  double start = now() - begin;
  if (count > 1) hold(atol(words[1]));
  check(cuModuleLoadData(&module, image), "cuModuleLoadData");
  check(cuModuleGetFunction(&kernel, module, "spin_ns"), "cuModuleGetFunction");
  printf("{\"alloc+free\": %.1f, ", best(plain, 30, 2000));
  printf("\"async alloc+free\": %.1f, ", best(async, 30, 2000));
  printf("\"cuMemGetInfo\": %.1f, ", best(info, 30, 2000));
  printf("\"cuLaunchKernel\": %.1f, ", best(launch, 30, 500));
  printf("\"cuInit + context\": %.1f}\n", start);
  return 0;
}
