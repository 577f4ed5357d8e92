/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches kernels for ever, two in flight in each stream:
 *
 *   launches HOW MS[,MS…] [STREAMS [BLOCKS]]
 *
 * HOW: kernel, kernel_ptsz, ex, ex_ptsz, cooperative, cooperative_ptsz, multi, legacy, graph, graph_ptsz (ten
 * kernels a graph, captured from a stream), after_graph (kernels; a graph was captured before), retained (each
 * between a retain of the primary context and a release), two_cards (streams in turn on one and the other, by one
 * thread). One function takes all the times, in turn; 0.1x20 is twenty times in a row.
 *
 * Or copies within the card and fills, where it does a GiB in a second: fill, fill_ptsz, fill_box, copy, copy_ptsz,
 * copy_box, copy_batch, unified, abroad (while another card's context is current); or a kernel behind a copy from the
 * host: host, unified_host. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef void *handle;

struct config {
  unsigned grid[3], block[3], shared;
  handle stream;
  void *attributes;
  unsigned attribute_count;
};

struct box {
  size_t from[2];
  unsigned from_type;
  const void *from_host;
  uint64_t from_device;
  handle from_array;
  size_t from_pitch, to[2];
  unsigned to_type;
  void *to_host;
  uint64_t to_device;
  handle to_array;
  size_t to_pitch, width, height;
};

struct one_of_many {
  handle function;
  unsigned grid[3], block[3], shared;
  handle stream;
  void **parameters;
};

#define SHAPE handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **
result cuInit(unsigned);
result cuDevicePrimaryCtxRetain(handle *, int);
result cuDevicePrimaryCtxRelease_v2(int);
result cuCtxSetCurrent(handle);
result cuModuleLoadData(handle *, const void *);
result cuModuleGetFunction(handle *, handle, const char *);
result cuStreamCreate(handle *, unsigned);
result cuEventCreate(handle *, unsigned);
result cuEventRecord(handle, handle);
result cuEventRecord_ptsz(handle, handle);
result cuEventSynchronize(handle);
result cuLaunchKernel(SHAPE, void **);
result cuLaunchKernel_ptsz(SHAPE, void **);
result cuLaunchKernelEx(const struct config *, handle, void **, void **);
result cuLaunchKernelEx_ptsz(const struct config *, handle, void **, void **);
result cuLaunchCooperativeKernel(SHAPE);
result cuLaunchCooperativeKernel_ptsz(SHAPE);
result cuLaunchCooperativeKernelMultiDevice(struct one_of_many *, unsigned, unsigned);
result cuFuncSetBlockShape(handle, int, int, int);
result cuParamSetv(handle, int, void *, unsigned);
result cuParamSetSize(handle, unsigned);
result cuLaunchGridAsync(handle, int, int, handle);
result cuStreamBeginCapture_v2(handle, int);
result cuStreamEndCapture(handle, handle *);
result cuGraphInstantiateWithFlags(handle *, handle, uint64_t);
result cuGraphLaunch(handle, handle);
result cuGraphLaunch_ptsz(handle, handle);
result cuMemAlloc_v2(uint64_t *, size_t);
result cuMemsetD32Async(uint64_t, unsigned, size_t, handle);
result cuMemsetD32Async_ptsz(uint64_t, unsigned, size_t, handle);
result cuMemsetD2D8Async(uint64_t, size_t, unsigned char, size_t, size_t, handle);
result cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, handle);
result cuMemcpyDtoDAsync_v2_ptsz(uint64_t, uint64_t, size_t, handle);
result cuMemcpyAsync(uint64_t, uint64_t, size_t, handle);
result cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, handle);
result cuMemcpyBatchAsync_v2(uint64_t *, uint64_t *, size_t *, size_t, const void *, size_t *, size_t,
                             handle);
result cuMemcpy2DAsync_v2(const struct box *, handle);

static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_ns(.param .u64 nanoseconds)\n{\n ret;\n}\n";

enum { MOST_TIMES = 8, MOST_STREAMS = 8, IN_FLIGHT = 2, GRAPH = 10, RELAXED = 2, CARDS = 2 };

static handle contexts[CARDS], functions[CARDS], function;
static unsigned blocks = 1;

static void check(result code, const char *what) {
  if (code == 0) return;
  fprintf(stderr, "launches: %s answered %d\n", what, code);
  exit(1);
}

static result kernel(const char *how, handle stream, uint64_t nanoseconds);

/* Of as many bytes as take so long. */
static result copy(const char *how, handle stream, uint64_t nanoseconds) {
  static uint64_t from, to;
  static void *host;
  static char attributes[64];
  enum { ROW = 4096, DEVICE = 2 };
  size_t rows = (size_t)((double)nanoseconds * 1e-9 * (1 << 30) / ROW), bytes = rows * ROW, place = 0;
  if (from == 0) {
    check(cuMemAlloc_v2(&from, bytes), "cuMemAlloc");
    check(cuMemAlloc_v2(&to, bytes), "cuMemAlloc");
    host = malloc(bytes);
  }
  struct box box = {.from_type = DEVICE,
                    .from_device = from,
                    .from_pitch = ROW,
                    .to_type = DEVICE,
                    .to_device = to,
                    .to_pitch = ROW,
                    .width = ROW,
                    .height = rows};
  if (strcmp(how, "fill") == 0) return cuMemsetD32Async(to, 1, bytes / 4, stream);
  if (strcmp(how, "fill_ptsz") == 0) return cuMemsetD32Async_ptsz(to, 1, bytes / 4, NULL);
  if (strcmp(how, "fill_box") == 0) return cuMemsetD2D8Async(to, ROW, 1, ROW, rows, stream);
  if (strcmp(how, "copy") == 0 || strcmp(how, "abroad") == 0)
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
  if (strcmp(how, "copy_ptsz") == 0) return cuMemcpyDtoDAsync_v2_ptsz(to, from, bytes, NULL);
  if (strcmp(how, "copy_box") == 0) return cuMemcpy2DAsync_v2(&box, stream);
  if (strcmp(how, "copy_batch") == 0)
    return cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, attributes, &place, 1, stream);
  if (strcmp(how, "unified") == 0) return cuMemcpyAsync(to, from, bytes, stream);
  if (strcmp(how, "unified_host") == 0) {
    check(cuMemcpyAsync(to, (uint64_t)(uintptr_t)host, bytes, stream), how);
    return kernel("kernel", stream, nanoseconds);
  }
  if (strcmp(how, "host") == 0) {
    check(cuMemcpyHtoDAsync_v2(to, host, bytes, stream), how);
    return kernel("kernel", stream, nanoseconds);
  }
  fprintf(stderr, "launches: no such way: %s\n", how);
  exit(2);
}

static result retained(handle stream, uint64_t nanoseconds) {
  handle context;
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  result code = kernel("kernel", stream, nanoseconds);
  check(cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
  return code;
}

static result kernel(const char *how, handle stream, uint64_t nanoseconds) {
  void *parameters[] = {&nanoseconds};
  struct config config = {{blocks, 1, 1}, {32, 1, 1}, 0, stream, NULL, 0};
  struct one_of_many many = {function, {blocks, 1, 1}, {32, 1, 1}, 0, stream, parameters};
  if (strcmp(how, "kernel") == 0 || strcmp(how, "after_graph") == 0 || strcmp(how, "two_cards") == 0)
    return cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
  if (strcmp(how, "kernel_ptsz") == 0)
    return cuLaunchKernel_ptsz(function, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
  if (strcmp(how, "ex") == 0) return cuLaunchKernelEx(&config, function, parameters, NULL);
  if (strcmp(how, "ex_ptsz") == 0) return cuLaunchKernelEx_ptsz(&config, function, parameters, NULL);
  if (strcmp(how, "cooperative") == 0)
    return cuLaunchCooperativeKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, parameters);
  if (strcmp(how, "cooperative_ptsz") == 0)
    return cuLaunchCooperativeKernel_ptsz(function, blocks, 1, 1, 32, 1, 1, 0, stream, parameters);
  if (strcmp(how, "retained") == 0) return retained(stream, nanoseconds);
  if (strcmp(how, "multi") == 0) return cuLaunchCooperativeKernelMultiDevice(&many, 1, 0);
  if (strcmp(how, "legacy") != 0) return copy(how, stream, nanoseconds);
  check(cuFuncSetBlockShape(function, 32, 1, 1), "cuFuncSetBlockShape");
  check(cuParamSetv(function, 0, &nanoseconds, sizeof nanoseconds), "cuParamSetv");
  check(cuParamSetSize(function, sizeof nanoseconds), "cuParamSetSize");
  return cuLaunchGridAsync(function, 1, 1, stream);
}

static handle captured(handle stream, uint64_t nanoseconds) {
  handle graph, ready;
  check(cuStreamBeginCapture_v2(stream, RELAXED), "cuStreamBeginCapture");
  for (int i = 0; i < GRAPH; i++) check(kernel("kernel", stream, nanoseconds), "cuLaunchKernel");
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  check(cuGraphInstantiateWithFlags(&ready, graph, 0), "cuGraphInstantiate");
  return ready;
}

/* Makes a card's context the current one, the first time with a kernel in it. */
static void work_on(int card) {
  handle module;
  if (contexts[card] == NULL) {
    check(cuDevicePrimaryCtxRetain(&contexts[card], card), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(contexts[card]), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, image), "cuModuleLoadData");
    check(cuModuleGetFunction(&functions[card], module, "spin_ns"), "cuModuleGetFunction");
  }
  check(cuCtxSetCurrent(contexts[card]), "cuCtxSetCurrent");
  function = functions[card];
}

static int read_times(const char *text, uint64_t times[MOST_TIMES], long in_a_row[MOST_TIMES]) {
  int count = 0;
  for (char *end; count < MOST_TIMES && *text != '\0'; text = *end == ',' ? end + 1 : end) {
    times[count] = (uint64_t)(strtod(text, &end) * 1e6);
    in_a_row[count++] = *end == 'x' ? strtol(end + 1, &end, 10) : 1;
  }
  return count;
}

int main(int argc, char **argv) {
  uint64_t times[MOST_TIMES];
  long in_a_row[MOST_TIMES], still = 0;
  handle streams[MOST_STREAMS] = {NULL}, done[MOST_STREAMS][IN_FLIGHT], graphs[MOST_TIMES];
  if (argc < 3) return 2;
  const char *how = argv[1];
  int time = -1, count = read_times(argv[2], times, in_a_row), width = argc > 3 ? atoi(argv[3]) : 1;
  if (argc > 4) blocks = (unsigned)atoi(argv[4]);
  int is_graph = strncmp(how, "graph", 5) == 0, own_default = strstr(how, "_ptsz") != NULL;
  int cards = strcmp(how, "two_cards") == 0 ? CARDS : 1;
  check(cuInit(0), "cuInit");
  for (int s = 0; s < width; s++) {
    work_on(s % cards);
    if (!own_default) check(cuStreamCreate(&streams[s], 1), "cuStreamCreate");
    for (int i = 0; i < IN_FLIGHT; i++) check(cuEventCreate(&done[s][i], 2), "cuEventCreate");
  }
  if (strstr(how, "graph") != NULL) {
    handle stream;
    check(cuStreamCreate(&stream, 1), "cuStreamCreate");
    for (int t = 0; t < count; t++) graphs[t] = captured(stream, times[t]);
  }
  if (strcmp(how, "abroad") == 0) {
    check(kernel("copy", streams[0], times[0]), "cuMemcpyDtoDAsync");
    work_on(1);
  }
  for (long turn = 0;; turn++) {
    if (still == 0) still = in_a_row[time = (time + 1) % count];
    still--;
    for (int s = 0; s < width; s++) {
      handle event = done[s][turn % IN_FLIGHT];
      if (cards != 1) work_on(s % cards);
      if (turn >= IN_FLIGHT) check(cuEventSynchronize(event), "cuEventSynchronize");
      if (is_graph)
        check(own_default ? cuGraphLaunch_ptsz(graphs[time], NULL) : cuGraphLaunch(graphs[time], streams[s]),
              how);
      else
        check(kernel(how, streams[s], times[time]), how);
      check(own_default ? cuEventRecord_ptsz(event, NULL) : cuEventRecord(event, streams[s]),
            "cuEventRecord");
    }
  }
}
