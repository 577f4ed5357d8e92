/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-burn: launches kernels of a given size back to back and reports the share of the card's time that it
 * got: finished kernels times their time, over wall time. Runs on any CUDA driver from 12.0 on: the kernel is
 * PTX that spins until so many nanoseconds have passed (the fake driver knows it by its name).
 */
#define _GNU_SOURCE
#include "arguments.h"
#include "cuda_client.h"

#include <stdio.h>
#include <stdlib.h>

static const char kernel_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry spin_ns(.param .u64 nanoseconds) {\n"
    "  .reg .u64 %start, %now, %limit, %past;\n"
    "  .reg .pred %more;\n"
    "  ld.param.u64 %limit, [nanoseconds];\n"
    "  mov.u64 %start, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %past, %now, %start;\n"
    "  setp.lt.u64 %more, %past, %limit;\n"
    "  @%more bra again;\n"
    "  ret;\n"
    "}\n";

/* Kernels in flight: 20 ms of work, so that a busy host does not leave the card idle, but at least two. */
enum { AHEAD_MS = 20, AHEAD_MOST = 64 };

static struct cuda cuda;

struct result {
  unsigned long long kernels;
  double seconds;
  double first_ms; /* one kernel alone between two events, before the race */
};

static CUfunction load_kernel(void) {
  CUmodule module = NULL;
  CUfunction function = NULL;
  cuda_check(&cuda, cuda.cuModuleLoadData(&module, kernel_ptx), "cuModuleLoadData");
  cuda_check(&cuda, cuda.cuModuleGetFunction(&function, module, "spin_ns"), "cuModuleGetFunction");
  return function;
}

static void launch(CUfunction function, unsigned blocks, unsigned long long nanoseconds, CUstream stream) {
  void *params[] = {&nanoseconds};
  cuda_check(&cuda, cuda.cuLaunchKernel(function, blocks, 1, 1, 64, 1, 1, 0, stream, params, NULL),
             "cuLaunchKernel");
}

static double time_one(CUfunction function, unsigned blocks, unsigned long long nanoseconds,
                       CUstream stream) {
  CUevent begin = NULL, end = NULL;
  float milliseconds = 0;
  cuda_check(&cuda, cuda.cuEventCreate(&begin, 0), "cuEventCreate");
  cuda_check(&cuda, cuda.cuEventCreate(&end, 0), "cuEventCreate");
  cuda_check(&cuda, cuda.cuEventRecord(begin, stream), "cuEventRecord");
  launch(function, blocks, nanoseconds, stream);
  cuda_check(&cuda, cuda.cuEventRecord(end, stream), "cuEventRecord");
  cuda_check(&cuda, cuda.cuEventSynchronize(end), "cuEventSynchronize");
  cuda_check(&cuda, cuda.cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
  return milliseconds;
}

static struct result burn(unsigned blocks, unsigned long long nanoseconds, double seconds) {
  CUfunction function = load_kernel();
  CUstream stream = NULL;
  CUevent done[AHEAD_MOST];
  unsigned long long ahead = AHEAD_MS * 1000000ull / nanoseconds;
  ahead = ahead < 2 ? 2 : ahead > AHEAD_MOST ? AHEAD_MOST : ahead;
  cuda_check(&cuda, cuda.cuStreamCreate(&stream, 1), "cuStreamCreate");
  struct result result = {.first_ms = time_one(function, blocks, nanoseconds, stream)};
  for (unsigned index = 0; index < ahead; index++)
    cuda_check(&cuda, cuda.cuEventCreate(&done[index], 2), "cuEventCreate");
  double begin = seconds_now();
  unsigned long long launched = 0;
  while (seconds_now() - begin < seconds) {
    CUevent oldest = done[launched % ahead];
    if (launched >= ahead) cuda_check(&cuda, cuda.cuEventSynchronize(oldest), "cuEventSynchronize");
    launch(function, blocks, nanoseconds, stream);
    cuda_check(&cuda, cuda.cuEventRecord(oldest, stream), "cuEventRecord");
    launched++;
  }
  cuda_check(&cuda, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
  result.kernels = launched;
  result.seconds = seconds_now() - begin;
  return result;
}

int main(int argc, char **argv) {
  long device = 0, blocks = 1;
  double kernel_ms = 1.0, seconds = 2.0;
  bool as_json = false;
  const struct option_rule rules[] = {
      {"--device", OPTION_NUMBER, &device, "CUDA ordinal (0)"},
      {"--kernel-ms", OPTION_REAL, &kernel_ms, "device time of a kernel in milliseconds (1)"},
      {"--blocks", OPTION_NUMBER, &blocks, "blocks in its grid (1)"},
      {"--seconds", OPTION_REAL, &seconds, "how long to go on (2)"},
      {"--json", OPTION_SWITCH, &as_json, "one line of JSON"},
      {NULL, OPTION_TEXT, NULL, NULL},
  };
  read_arguments(argc, argv, rules,
                 "Launches kernels back to back; reports the share of the card's time it got.");
  if (kernel_ms < 1e-6 || blocks <= 0 || seconds <= 0) {
    fputs("cuda-burn: --kernel-ms, --blocks and --seconds must be positive\n", stderr);
    return 2;
  }
  cuda_open(&cuda, (int)device);
  struct result result = burn((unsigned)blocks, (unsigned long long)(kernel_ms * 1e6), seconds);
  double share = (double)result.kernels * kernel_ms / (result.seconds * 1e3);
  if (as_json)
    printf("{\"kernels\": %llu, \"kernel_ms\": %g, \"seconds\": %.6f, \"share\": %.4f, \"first_ms\": %.4f}\n",
           result.kernels, kernel_ms, result.seconds, share, result.first_ms);
  else
    printf("%llu kernels of %g ms in %.3f s: %.1f %% of the card's time\n", result.kernels, kernel_ms,
           result.seconds, share * 100.0);
  return 0;
}
