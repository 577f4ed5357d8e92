/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-alloc: takes memory by a named road until the driver refuses, block by block, each refusal halving the
 * block down to one byte, and reports how much it holds at the exact edge. Runs on any CUDA driver from 12.0
 * on.
 */
#define _GNU_SOURCE
#include "arguments.h"
#include "cuda_client.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct cuda cuda;
static CUmemoryPool pool;

static CUresult by_plain(size_t bytes, CUdeviceptr *address) { return cuda.cuMemAlloc(address, bytes); }
static CUresult by_managed(size_t bytes, CUdeviceptr *address) {
  return cuda.cuMemAllocManaged(address, bytes, 1);
}
static CUresult by_async(size_t bytes, CUdeviceptr *address) {
  return cuda.cuMemAllocAsync(address, bytes, NULL);
}
static CUresult by_pool(size_t bytes, CUdeviceptr *address) {
  return cuda.cuMemAllocFromPoolAsync(address, bytes, pool, NULL);
}
static CUresult by_pitch(size_t bytes,
                         CUdeviceptr *address) { /* rows of 64 KiB, so that nothing is lost to the pitch */
  enum { ROW = 65536 };
  size_t pitch = 0, width = bytes < ROW ? bytes : ROW;
  return cuda.cuMemAllocPitch(address, &pitch, width, (bytes + width - 1) / width, 4);
}

struct road {
  const char *name;
  CUresult (*take)(size_t bytes, CUdeviceptr *address);
};
static const struct road roads[] = {
    {"plain", by_plain}, {"managed", by_managed}, {"async", by_async}, {"pool", by_pool}, {"pitch", by_pitch},
};

struct result {
  unsigned long long held;
  unsigned long blocks;
  CUresult refusal; /* 0: the total was reached */
  unsigned long long refused_bytes;
  size_t free, total;
  double seconds;
};

static const struct road *road_named(const char *name) {
  for (size_t index = 0; index < sizeof roads / sizeof roads[0]; index++)
    if (strcmp(roads[index].name, name) == 0) return &roads[index];
  fprintf(stderr, "cuda-alloc: no road %s; there are plain, managed, async, pool, pitch\n", name);
  exit(2);
}

static void fill(const struct road *road, unsigned long long block, unsigned long long total,
                 struct result *result) {
  double begin = seconds_now();
  while (block > 0 && result->held < total) {
    unsigned long long bytes = block < total - result->held ? block : total - result->held;
    CUdeviceptr address = 0;
    CUresult answer = road->take(bytes, &address);
    if (answer == 0) {
      result->held += bytes;
      result->blocks++;
      continue;
    }
    result->refusal = answer;
    result->refused_bytes = bytes;
    block = bytes / 2;
  }
  if (result->held >= total) result->refusal = 0; /* smaller blocks fitted in the end */
  result->seconds = seconds_now() - begin;
}

static void report(const char *road, const struct result *result, bool as_json) {
  const char *refusal = result->refusal == 0 ? NULL : cuda_error_name(&cuda, result->refusal);
  if (as_json) {
    printf(
        "{\"road\": \"%s\", \"held_bytes\": %llu, \"blocks\": %lu, \"refusal\": %s%s%s, \"refused_bytes\": "
        "%llu, "
        "\"free_bytes\": %zu, \"total_bytes\": %zu, \"seconds\": %.6f}\n",
        road, result->held, result->blocks, refusal ? "\"" : "", refusal ? refusal : "null",
        refusal ? "\"" : "", result->refused_bytes, result->free, result->total, result->seconds);
  } else {
    printf("held %llu bytes (%.3f MiB) in %lu blocks by road %s\n", result->held,
           (double)result->held / 1048576.0, result->blocks, road);
    if (refusal != NULL)
      printf("refused %llu more: %s\n", result->refused_bytes, refusal);
    else
      puts("nothing was refused");
    printf("cuMemGetInfo: %zu of %zu bytes free\n", result->free, result->total);
  }
  fflush(stdout);
}

static void hold(double seconds) {
  struct timespec pause = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
  nanosleep(&pause, NULL);
}

int main(int argc, char **argv) {
  long device = 0;
  const char *road_name = "plain";
  unsigned long long block = 64ull << 20, total = 1ull << 60;
  double hold_seconds = 0;
  bool as_json = false;
  const struct option_rule rules[] = {
      {"--device", OPTION_NUMBER, &device, "CUDA ordinal (0)"},
      {"--road", OPTION_TEXT, &road_name, "plain, managed, async, pool or pitch (plain)"},
      {"--block", OPTION_SIZE, &block, "first size of a block (64Mi)"},
      {"--total", OPTION_SIZE, &total, "stop there (until refused)"},
      {"--hold", OPTION_REAL, &hold_seconds, "seconds to keep it after the report (0)"},
      {"--json", OPTION_SWITCH, &as_json, "one line of JSON"},
      {NULL, OPTION_TEXT, NULL, NULL},
  };
  read_arguments(argc, argv, rules, "Takes device memory until the driver refuses; reports the exact edge.");
  const struct road *road = road_named(road_name);
  cuda_open(&cuda, (int)device);
  cuda_check(&cuda, cuda.cuDeviceGetDefaultMemPool(&pool, (CUdevice)device), "cuDeviceGetDefaultMemPool");
  struct result result = {0};
  fill(road, block, total, &result);
  cuda_check(&cuda, cuda.cuMemGetInfo(&result.free, &result.total), "cuMemGetInfo");
  report(road_name, &result, as_json);
  if (hold_seconds > 0) hold(hold_seconds);
  return 0;
}
