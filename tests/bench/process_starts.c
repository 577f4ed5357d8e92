/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts so many processes of itself together; each comes to a context and allocates. Prints the milliseconds
 * until the last is done, and those of a processor that each of them took. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t);

static int one(void) {
  void *context;
  uint64_t address;
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 1;
  return cuMemAlloc_v2(&address, 1 << 20) != 0 || cuMemFree_v2(address) != 0;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static double milliseconds(struct timeval time) {
  return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3;
}

int main(int count, char **words) {
  if (count < 2) return one();
  int processes = atoi(words[1]), failed = 0, status;
  char *alone[] = {words[0], NULL};
  double began = now();
  for (int i = 0; i < processes; i++)
    failed |= posix_spawn(&(pid_t){0}, "/proc/self/exe", NULL, NULL, alone, environ);
  while (wait(&status) > 0) failed |= status;
  struct rusage used;
  double took = now() - began;
  getrusage(RUSAGE_CHILDREN, &used);
  printf("%.2f %.4f\n", took, (milliseconds(used.ru_utime) + milliseconds(used.ru_stime)) / processes);
  return failed != 0;
}
