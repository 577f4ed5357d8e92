/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA program whose threads never stop calling the driver, and which forks all the while: whatever its threads
 * were at, each child gets an answer to its calls, which is the driver's, since a child has no CUDA.
 *
 *   forks N
 *
 * Prints how often it has forked as JSON. Ends with 3 where a child gets another answer, or none. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int result;
typedef uint64_t pointer;

extern result cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int);
extern result cuCtxSetCurrent(void *), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *);
extern result cuMemAlloc_v2(pointer *, size_t), cuMemFree_v2(pointer), cuMemGetInfo_v2(size_t *, size_t *);
extern result cuDeviceGetDefaultMemPool(void **, int), cuMemFreeAsync(pointer, void *);
extern result cuMemAllocFromPoolAsync(pointer *, size_t, void *, void *);
extern result cuMemCreate(pointer *, size_t, const void *, uint64_t), cuMemRelease(pointer);
extern result cuModuleLoadData(void **, const void *), cuModuleUnload(void *);
extern result cuModuleGetFunction(void **, void *, const char *);
extern result cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             void *, void **, void **);

#define NOT_INITIALIZED 3
#define PATIENCE 60 /* seconds */

static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_ns(.param .u64 nanoseconds)\n{\n ret;\n}\n";
static const int properties[8] = {1, 0, 1, 0};
static void *context, *pool, *function;
static pointer address, handle; /* what threads allocate and free over and over is mostly at the same place */
static const char **doing;      /* shared with the child */

static void must(const char *what, int code) {
  if (code == 0) return;
  fprintf(stderr, "%s: %d\n", what, code);
  exit(3);
}

/* --- what the threads do: a call each that holds one of the library's locks ----------------------------- */

static void plain(void) {
  must("cuMemAlloc", cuMemAlloc_v2(&address, 4096));
  must("cuMemFree", cuMemFree_v2(address));
}

static void from_pool(void) {
  pointer block;
  must("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&block, 4096, pool, NULL));
  must("cuMemFreeAsync", cuMemFreeAsync(block, NULL));
}

static void launch(void) {
  uint64_t nanoseconds = 1000;
  void *parameters[] = {&nanoseconds};
  must("cuLaunchKernel", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

static void retain(void) {
  void *same;
  must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&same, 0));
  must("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2(0));
}

static void create(void) {
  must("cuMemCreate", cuMemCreate(&handle, 2u << 20, properties, 0));
  must("cuMemRelease", cuMemRelease(handle));
}

static void load(void) {
  void *module;
  must("cuModuleLoadData", cuModuleLoadData(&module, image));
  must("cuModuleUnload", cuModuleUnload(module));
}

static void (*const steps[])(void) = {plain, from_pool, launch, retain, create, load};

static void *keep_at(void *step) {
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
  for (;;) (*(void (*const *)(void))step)();
  return NULL;
}

/* --- the child ------------------------------------------------------------------------------------------ */

static void answered(const char *call, int code) {
  if (code != NOT_INITIALIZED) _exit(4);
  (void)call;
}

#define ASK(call) (*doing = #call, answered(#call, call))

/* Each comes to one of the locks that a thread may have had. */
static void child(void) {
  pointer other;
  size_t free_bytes, total_bytes;
  void *made;
  alarm(PATIENCE);
  ASK(cuMemFree_v2(address));
  ASK(cuMemAlloc_v2(&other, 4096));
  ASK(cuMemAllocFromPoolAsync(&other, 4096, pool, NULL));
  ASK(cuMemFreeAsync(address, NULL));
  ASK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  ASK(cuDevicePrimaryCtxRetain(&made, 0));
  ASK(cuCtxDestroy_v2(context));
  ASK(cuMemRelease(handle));
  ASK(cuMemCreate(&other, 2u << 20, properties, 0));
  ASK(cuCtxCreate_v2(&made, 0, 0));
  ASK(cuModuleLoadData(&made, image));
  _exit(0);
}

int main(int count, char **arguments) {
  pthread_t thread;
  void *module;
  int forks = count > 1 ? atoi(arguments[1]) : 0, status;
  doing = mmap(NULL, sizeof *doing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  must("mmap", doing == MAP_FAILED);
  must("cuInit", cuInit(0));
  must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
  must("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&pool, 0));
  must("cuModuleLoadData", cuModuleLoadData(&module, image));
  must("cuModuleGetFunction", cuModuleGetFunction(&function, module, "spin_ns"));
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    must("pthread_create", pthread_create(&thread, NULL, keep_at, (void *)&steps[i]));
  for (int i = 0; i < forks; i++) {
    pid_t pid = fork();
    if (pid == 0) child();
    must("waitpid", waitpid(pid, &status, 0) != pid);
    must(*doing, status);
  }
  printf("{\"forks\": %d}\n", forks);
  fflush(stdout);
  _exit(0);
}
