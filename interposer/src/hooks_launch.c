/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches, in every spelling; a graph is one piece of work. Stream captures are only counted, so that launches
 * pay for them as long as one goes on. */
#include "clock.h"
#include "graph_memory.h"
#include "hooks.h"
#include "launch_hook.h"
#include "samples.h"

#define GRID unsigned int grid_x, unsigned int grid_y, unsigned int grid_z
#define BLOCK unsigned int block_x, unsigned int block_y, unsigned int block_z
#define GRID_LAUNCH(symbol, per_thread)                                                                    \
  LAUNCH(symbol,                                                                                           \
         (CUfunction function, GRID, BLOCK, unsigned int shared_bytes, CUstream stream, void **parameters, \
          void **extra),                                                                                   \
         function, product(grid_x, grid_y, grid_z), stream, per_thread,                                    \
         (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters,   \
          extra))
GRID_LAUNCH(cuLaunchKernel, false)
GRID_LAUNCH(cuLaunchKernel_ptsz, true)

#define COOPERATIVE_LAUNCH(symbol, per_thread)                                                              \
  LAUNCH(symbol,                                                                                            \
         (CUfunction function, GRID, BLOCK, unsigned int shared_bytes, CUstream stream, void **parameters), \
         function, product(grid_x, grid_y, grid_z), stream, per_thread,                                     \
         (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters))
COOPERATIVE_LAUNCH(cuLaunchCooperativeKernel, false)
COOPERATIVE_LAUNCH(cuLaunchCooperativeKernel_ptsz, true)

static const struct cuda_launch_config no_config;
#define CONFIG (config != NULL ? config : &no_config)
#define CONFIG_LAUNCH(symbol, per_thread)                                                                 \
  LAUNCH(symbol,                                                                                          \
         (const struct cuda_launch_config *config, CUfunction function, void **parameters, void **extra), \
         function, product(CONFIG->grid_x, CONFIG->grid_y, CONFIG->grid_z), CONFIG->stream, per_thread,   \
         (config, function, parameters, extra))
CONFIG_LAUNCH(cuLaunchKernelEx, false)
CONFIG_LAUNCH(cuLaunchKernelEx_ptsz, true)

/* A graph may allocate: charged when its turn has come. */
#define GRAPH_LAUNCH(symbol, per_thread)                                               \
  static CUresult symbol##_with_memory(CUgraphExec graph, CUstream stream) {           \
    struct graph_charge memory;                                                        \
    if (!graph_memory_begin(&memory, graph)) return CUDA_ERROR_OUT_OF_MEMORY;          \
    CUresult result = IN_DRIVER(REAL(symbol)(graph, stream));                          \
    graph_memory_end(&memory, graph, result);                                          \
    return result;                                                                     \
  }                                                                                    \
  CUresult symbol(CUgraphExec graph, CUstream stream) {                                \
    if (passes_on()) return REAL(symbol)(graph, stream);                               \
    if (throttle_is_free() || throttle_is_paid((const void *)graph, 0))                \
      return symbol##_with_memory(graph, stream);                                      \
    struct launch launch = throttle_begin((const void *)graph, 0, stream, per_thread); \
    return throttle_end(&launch, symbol##_with_memory(graph, stream));                 \
  }
GRAPH_LAUNCH(cuGraphLaunch, false)
GRAPH_LAUNCH(cuGraphLaunch_ptsz, true)

#define CARDS 64
#define AT_ONCE_NS 50000u

/* One function on several cards at once: each pays for its own part. Where it had to wait for one card, the
   others' parts seem to have begun before it: only the last is timed then, and in turn each is. */
CUresult cuLaunchCooperativeKernelMultiDevice(struct cuda_launch_params *launches, unsigned int count,
                                              unsigned int flags) {
  static _Atomic uint32_t turns;
  struct launch begun[CARDS];
  if (passes_on() || throttle_is_free() || launches == NULL || count > CARDS)
    return REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
  uint32_t turn = atomic_fetch_add_explicit(&turns, 1, memory_order_relaxed);
  uint64_t before = clock_now();
  for (unsigned int i = 0; i < count; i++) {
    const struct cuda_launch_params *one = &launches[(turn + i) % count];
    uint64_t blocks = product(one->grid_x, one->grid_y, one->grid_z);
    begun[i] = throttle_begin(one->function, blocks, one->stream, false);
  }
  bool waited = clock_now() - before > AT_ONCE_NS;
  CUresult result = IN_DRIVER(REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags));
  for (unsigned int i = 0; i < count; i++) {
    if (waited && i + 1 != count && begun[i].sample >= 0) {
      sample_end(begun[i].sample, CUDA_ERROR_NOT_READY); /* untimed */
      begun[i].sample = -1;
    }
    throttle_end(&begun[i], result);
  }
  return result;
}

/* CUDA 2's launches, in the default stream unless they name one. */
LAUNCH(cuLaunch, (CUfunction function), function, 1, NULL, false, (function))
LAUNCH(cuLaunchGrid, (CUfunction function, int grid_x, int grid_y), function,
       product((unsigned int)grid_x, (unsigned int)grid_y, 1), NULL, false, (function, grid_x, grid_y))
LAUNCH(cuLaunchGridAsync, (CUfunction function, int grid_x, int grid_y, CUstream stream), function,
       product((unsigned int)grid_x, (unsigned int)grid_y, 1), stream, false,
       (function, grid_x, grid_y, stream))

/* Counted before it begins, so that another thread's launch into the stream is not taken for a plain one. */
#define CAPTURE(symbol, parameters, arguments)           \
  CUresult symbol parameters {                           \
    if (passes_on()) return REAL(symbol) arguments;      \
    samples_capture_begins();                            \
    CUresult result = IN_DRIVER(REAL(symbol) arguments); \
    if (result != CUDA_SUCCESS) samples_capture_ended(); \
    return result;                                       \
  }
CAPTURE(cuStreamBeginCapture, (CUstream stream), (stream))
CAPTURE(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
CAPTURE(cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode))
CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream stream, int mode), (stream, mode))
CAPTURE(cuStreamBeginCaptureToGraph,
        (CUstream stream, CUgraph graph, const void *nodes, const void *edges, size_t count, int mode),
        (stream, graph, nodes, edges, count, mode))
CAPTURE(cuStreamBeginCaptureToGraph_ptsz,
        (CUstream stream, CUgraph graph, const void *nodes, const void *edges, size_t count, int mode),
        (stream, graph, nodes, edges, count, mode))
#define RECAPTURE (CUstream stream, int mode, CUgraph graph, void *callback, void *data)
CAPTURE(cuStreamBeginRecaptureToGraph, RECAPTURE, (stream, mode, graph, callback, data))
CAPTURE(cuStreamBeginRecaptureToGraph_ptsz, RECAPTURE, (stream, mode, graph, callback, data))
CAPTURE(cuStreamBeginCaptureToCig, (CUstream stream, void *parameters), (stream, parameters))
CAPTURE(cuStreamBeginCaptureToCig_ptsz, (CUstream stream, void *parameters), (stream, parameters))

/* One that was spoilt, or whose streams weren't joined, ends as well; another stream's or thread's goes on. */
static bool has_ended(CUresult result, CUstream stream, bool per_thread) {
  if (result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && result != CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    return result == CUDA_SUCCESS;
  return !stream_captures(stream, per_thread);
}

#define END_CAPTURE(symbol, parameters, per_thread, arguments)          \
  CUresult symbol parameters {                                          \
    if (passes_on()) return REAL(symbol) arguments;                     \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                \
    if (has_ended(result, stream, per_thread)) samples_capture_ended(); \
    return result;                                                      \
  }
END_CAPTURE(cuStreamEndCapture, (CUstream stream, CUgraph *graph), false, (stream, graph))
END_CAPTURE(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph), true, (stream, graph))
END_CAPTURE(cuStreamEndCaptureToCig, (CUstream stream), false, (stream))
END_CAPTURE(cuStreamEndCaptureToCig_ptsz, (CUstream stream), true, (stream))
