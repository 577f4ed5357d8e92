/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches, in every spelling; a graph is one piece of work. The begin of a stream capture is only noticed,
 * so that programs which never capture pay nothing for it. */
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
    struct pool_charge memory;                                                         \
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

/* One function on several cards at once: charged to the calling thread's card, timed on the first stream. */
static const struct cuda_launch_params no_launch;
#define FIRST (launches != NULL && count != 0 ? launches : &no_launch)
LAUNCH(cuLaunchCooperativeKernelMultiDevice,
       (struct cuda_launch_params * launches, unsigned int count, unsigned int flags), FIRST->function,
       product(FIRST->grid_x, FIRST->grid_y, FIRST->grid_z), FIRST->stream, false, (launches, count, flags))

/* CUDA 2's launches, in the default stream unless they name one. */
LAUNCH(cuLaunch, (CUfunction function), function, 1, NULL, false, (function))
LAUNCH(cuLaunchGrid, (CUfunction function, int grid_x, int grid_y), function,
       product((unsigned int)grid_x, (unsigned int)grid_y, 1), NULL, false, (function, grid_x, grid_y))
LAUNCH(cuLaunchGridAsync, (CUfunction function, int grid_x, int grid_y, CUstream stream), function,
       product((unsigned int)grid_x, (unsigned int)grid_y, 1), stream, false,
       (function, grid_x, grid_y, stream))

#define CAPTURE(symbol, parameters, arguments) \
  CUresult symbol parameters {                 \
    samples_capture_begun();                   \
    return REAL(symbol) arguments;             \
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
