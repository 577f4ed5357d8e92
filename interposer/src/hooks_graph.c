/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs that allocate: allocation nodes are looked for at instantiation, and a launch or an upload is
 * charged like an allocation from the device's pool of graphs. Their addresses tell what they take together:
 * allocations that never live at the same time the driver puts in the same place. That is the most that a
 * launch can need; what the pool has kept from before counts against it. A graph that frees on launch needs
 * nothing more while all that its last launch took is still there. */
#include <stdlib.h>

#include "graph_memory.h"
#include "hooks.h"
#include "memory.h"

#define DEPTH 16 /* of graphs in graphs */

static atomic_bool begun;

void graph_memory_begun(void) { atomic_store_explicit(&begun, true, memory_order_relaxed); }

static _Atomic uint64_t frees;

void graph_memory_freed(void) {
  if (atomic_load_explicit(&begun, memory_order_relaxed))
    atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
}

/* What a graph's block notes where a context would stand; odd, so that it is none. */
enum { NEVER_ALL_THERE = 1, FREES_ON_LAUNCH = 3 };

static void *noted(uint64_t frees_seen) { return (void *)(uintptr_t)(frees_seen << 3 | 5); }

static bool has_begun(void) { return atomic_load_explicit(&begun, memory_order_relaxed); }

struct range {
  uint64_t start, end;
};

struct need {
  struct range *ranges; /* of addresses, one per allocation */
  size_t count, capacity;
  bool frees; /* in the graph itself */
  CUdevice device;
};

static bool add_range(struct need *need, uint64_t start, uint64_t bytes) {
  if (need->count == need->capacity) {
    size_t capacity = need->capacity == 0 ? 64 : need->capacity * 2;
    struct range *grown = realloc(need->ranges, capacity * sizeof *grown);
    if (grown == NULL) return false;
    need->ranges = grown;
    need->capacity = capacity;
  }
  need->ranges[need->count++] = (struct range){start, start + bytes};
  return true;
}

static int compare(const void *left, const void *right) {
  uint64_t first = ((const struct range *)left)->start, second = ((const struct range *)right)->start;
  return first < second ? -1 : first > second;
}

/* What the ranges cover, each place once. */
static uint64_t covered(struct need *need) {
  uint64_t bytes = 0, end = 0;
  if (need->count != 0) qsort(need->ranges, need->count, sizeof *need->ranges, compare);
  for (size_t i = 0; i < need->count; i++) {
    struct range range = need->ranges[i];
    if (range.start < end) range.start = end;
    if (range.start >= range.end) continue;
    bytes += range.end - range.start;
    end = range.end;
  }
  return bytes;
}

/* false: no memory for the ranges. */
static bool add_graph(struct need *need, CUgraph graph, int depth);

static bool add_node(struct need *need, CUgraphNode node, int depth) {
  struct cuda_alloc_node allocation = {0};
  CUgraph inner = NULL;
  int type = -1;
  if (DRIVER(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return true;
  need->frees = need->frees || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH && DRIVER(cuGraphChildGraphNodeGetGraph)(node, &inner) == CUDA_SUCCESS)
    return add_graph(need, inner, depth + 1);
  if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      DRIVER(cuGraphMemAllocNodeGetParams)(node, &allocation) != CUDA_SUCCESS)
    return true;
  if (need->count == 0) need->device = allocation.pool.location.id;
  return add_range(need, allocation.address, memory_rounded(allocation.bytes));
}

static bool add_graph(struct need *need, CUgraph graph, int depth) {
  size_t count = 0;
  if (depth == DEPTH || DRIVER(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
    return true;
  CUgraphNode *nodes = calloc(count, sizeof(CUgraphNode));
  bool good = nodes != NULL;
  if (good && DRIVER(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
    for (size_t i = 0; good && i < count; i++) good = add_node(need, nodes[i], depth);
  free(nodes);
  return good;
}

static CUresult instantiated(CUresult result, const CUgraphExec *exec, CUgraph graph, uint64_t flags) {
  struct need need = {0};
  struct block stale;
  if (result != CUDA_SUCCESS || !has_begun() || grants_load() != GRANTS_READY) return result;
  bool good = add_graph(&need, graph, 0);
  uint64_t bytes = covered(&need);
  free(need.ranges);
  if (good && (bytes == 0 || card_of_device(need.device) == NULL)) return result;
  bool fresh = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0 && !need.frees;
  struct block block = {.context = (void *)(uintptr_t)(fresh ? FREES_ON_LAUNCH : NEVER_ALL_THERE),
                        .address = (uint64_t)(uintptr_t)*exec,
                        .bytes = bytes,
                        .kind = BLOCK_EXEC,
                        .grant = (uint16_t)need.device};
  if (good && blocks_add(&block, &stale)) return result;
  REAL(cuGraphExecDestroy)(*exec);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool graph_memory_begin(struct pool_charge *charge, CUgraphExec exec) {
  struct block block;
  charge->pool = NULL;
  if (!has_begun() || !blocks_find(BLOCK_EXEC, (uint64_t)(uintptr_t)exec, &block)) return true;
  bool all_there = block.context == noted(atomic_load_explicit(&frees, memory_order_relaxed));
  return pools_begin(charge, pools_of_graphs(block.grant), all_there ? 0 : block.bytes);
}

void graph_memory_end(struct pool_charge *charge, CUgraphExec exec, CUresult result) {
  struct block block, stale;
  bool taken = charge->pool != NULL && result == CUDA_SUCCESS;
  pools_end(charge, result, 0);
  if (!taken || !blocks_find(BLOCK_EXEC, (uint64_t)(uintptr_t)exec, &block)) return;
  if (block.context == (void *)(uintptr_t)NEVER_ALL_THERE) return;
  block.context = noted(atomic_load_explicit(&frees, memory_order_relaxed));
  blocks_add(&block, &stale); /* in its own place */
}

#define INSTANTIATE(symbol, parameters, flagged, arguments) \
  CUresult symbol parameters {                              \
    if (passes_on()) return REAL(symbol) arguments;         \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);    \
    return instantiated(result, exec, graph, flagged);      \
  }
#define OLD (CUgraphExec * exec, CUgraph graph, CUgraphNode * node, char *log, size_t size)
INSTANTIATE(cuGraphInstantiate, OLD, 0, (exec, graph, node, log, size))
INSTANTIATE(cuGraphInstantiate_v2, OLD, 0, (exec, graph, node, log, size))
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags), flags,
            (exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, uint64_t *parameters),
            parameters != NULL ? *parameters : 0, (exec, graph, parameters))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * exec, CUgraph graph, uint64_t *parameters),
            parameters != NULL ? *parameters : 0, (exec, graph, parameters))

#define UPLOAD(symbol)                                                       \
  CUresult symbol(CUgraphExec exec, CUstream stream) {                       \
    struct pool_charge charge;                                               \
    if (passes_on()) return REAL(symbol)(exec, stream);                      \
    if (!graph_memory_begin(&charge, exec)) return CUDA_ERROR_OUT_OF_MEMORY; \
    CUresult result = IN_DRIVER(REAL(symbol)(exec, stream));                 \
    pools_end(&charge, result, 0);                                           \
    return result;                                                           \
  }
UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  struct block block;
  if (passes_on()) return REAL(cuGraphExecDestroy)(exec);
  bool known = has_begun() && memory_take(BLOCK_EXEC, (uint64_t)(uintptr_t)exec, &block);
  CUresult result = IN_DRIVER(REAL(cuGraphExecDestroy)(exec));
  if (result != CUDA_SUCCESS && known) memory_put_back(&block);
  if (known) pools_settle(NULL);
  return result;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                                struct cuda_alloc_node *parameters) {
  graph_memory_begun();
  return REAL(cuGraphAddMemAllocNode)(node, graph, before, count, parameters);
}

/* The type of the node is the first field. */
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                        int *parameters) {
  if (parameters != NULL && *parameters == CU_GRAPH_NODE_TYPE_MEM_ALLOC) graph_memory_begun();
  return REAL(cuGraphAddNode)(node, graph, before, count, parameters);
}

#define ADD_NODE(symbol)                                                                          \
  CUresult symbol(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, const void *edges, \
                  size_t count, int *parameters) {                                                \
    if (parameters != NULL && *parameters == CU_GRAPH_NODE_TYPE_MEM_ALLOC) graph_memory_begun();  \
    return REAL(symbol)(node, graph, before, edges, count, parameters);                           \
  }
ADD_NODE(cuGraphAddNode_v2)
ADD_NODE(cuGraphAddNode_v3)

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  if (passes_on()) return REAL(cuDeviceGraphMemTrim)(device);
  CUresult result = IN_DRIVER(REAL(cuDeviceGraphMemTrim)(device));
  if (result == CUDA_SUCCESS && has_begun()) pools_settle(card_of_device(device));
  return result;
}
