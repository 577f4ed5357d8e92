/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs that allocate: allocation nodes are looked for at instantiation, and a launch or an upload is
 * charged like an allocation from each device's pool of graphs. Their addresses tell what they take together:
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
  CUdevice device;
  uint64_t start, end;
};

struct need {
  struct range *ranges; /* of addresses, one per allocation */
  size_t count, capacity;
  bool frees; /* in the graph itself */
};

static bool add_range(struct need *need, const struct cuda_alloc_node *allocation) {
  if (need->count == need->capacity) {
    size_t capacity = need->capacity == 0 ? 64 : need->capacity * 2;
    struct range *grown = realloc(need->ranges, capacity * sizeof *grown);
    if (grown == NULL) return false;
    need->ranges = grown;
    need->capacity = capacity;
  }
  need->ranges[need->count++] =
      (struct range){.device = allocation->pool.location.id,
                     .start = allocation->address,
                     .end = allocation->address + memory_rounded(allocation->bytes)};
  return true;
}

static int compare(const void *left, const void *right) {
  const struct range *first = left, *second = right;
  if (first->device != second->device) return first->device < second->device ? -1 : 1;
  return first->start < second->start ? -1 : first->start > second->start;
}

/* What the ranges of one device cover, each place once; `at` is the first of them and becomes the next one's. */
static uint64_t covered(const struct need *need, size_t *at) {
  uint64_t bytes = 0, end = 0;
  for (CUdevice device = need->ranges[*at].device; *at < need->count; ++*at) {
    struct range range = need->ranges[*at];
    if (range.device != device) break;
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
  return add_range(need, &allocation);
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

/* One block per device, told by the low bits, which a handle leaves free. */
static uint64_t number_of(CUgraphExec exec, uint32_t place) { return (uint64_t)(uintptr_t)exec | place; }

static bool find(CUgraphExec exec, uint32_t place, struct block *block) {
  return place < GRAPH_DEVICES && blocks_find(BLOCK_EXEC, number_of(exec, place), block);
}

/* false: no memory for the book-keeping, or too many devices. */
static bool note(CUgraphExec exec, const struct need *need, uintptr_t state) {
  struct block stale, block = {.kind = BLOCK_EXEC, .context = (void *)state};
  uint32_t place = 0;
  for (size_t at = 0; at < need->count;) {
    CUdevice device = need->ranges[at].device;
    block.card = (uint16_t)device;
    block.bytes = covered(need, &at);
    if (card_of_device(device) == NULL) continue;
    block.address = number_of(exec, place);
    if (place++ == GRAPH_DEVICES || !blocks_add(&block, &stale)) return false;
  }
  return true;
}

static void forget(CUgraphExec exec) {
  struct block block;
  for (uint32_t place = 0; place < GRAPH_DEVICES; place++)
    blocks_take(BLOCK_EXEC, number_of(exec, place), &block);
}

static CUresult instantiated(CUresult result, CUgraphExec *exec, CUgraph graph, uint64_t flags) {
  struct need need = {0};
  if (result != CUDA_SUCCESS || !has_begun() || grants_load() != GRANTS_READY) return result;
  bool good = add_graph(&need, graph, 0);
  bool fresh = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0 && !need.frees;
  if (need.count != 0) qsort(need.ranges, need.count, sizeof *need.ranges, compare);
  good = good && note(*exec, &need, fresh ? FREES_ON_LAUNCH : NEVER_ALL_THERE);
  free(need.ranges);
  if (good) return result;
  forget(*exec);
  IN_DRIVER(REAL(cuGraphExecDestroy)(*exec));
  *exec = NULL;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* In the order of the devices, whose pools are locked until the end: so no two threads wait for each other. */
bool graph_memory_begin(struct graph_charge *charge, CUgraphExec exec) {
  struct block block;
  charge->count = 0;
  if (!has_begun()) return true;
  uint64_t frees_seen = atomic_load_explicit(&frees, memory_order_relaxed);
  while (find(exec, charge->count, &block)) {
    uint64_t bytes = block.context == noted(frees_seen) ? 0 : block.bytes;
    if (pools_begin(&charge->pools[charge->count], pools_of_graphs(block.card), bytes)) {
      charge->count++;
      continue;
    }
    while (charge->count != 0) pools_end(&charge->pools[--charge->count], CUDA_ERROR_OUT_OF_MEMORY, 0);
    return false;
  }
  return true;
}

void graph_memory_end(struct graph_charge *charge, CUgraphExec exec, CUresult result) {
  struct block block, stale;
  for (uint32_t place = 0; place < charge->count; place++) {
    bool taken = charge->pools[place].pool != NULL && result == CUDA_SUCCESS;
    pools_end(&charge->pools[place], result, 0);
    if (!taken || !find(exec, place, &block)) continue;
    if (block.context == (void *)(uintptr_t)NEVER_ALL_THERE) continue;
    block.context = noted(atomic_load_explicit(&frees, memory_order_relaxed));
    blocks_add(&block, &stale); /* in its own place */
  }
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

#define UPLOAD(symbol)                                                                                  \
  CUresult symbol(CUgraphExec exec, CUstream stream) {                                                  \
    struct graph_charge charge;                                                                         \
    if (passes_on()) return REAL(symbol)(exec, stream);                                                 \
    if (!graph_memory_begin(&charge, exec)) return CUDA_ERROR_OUT_OF_MEMORY;                            \
    CUresult result = IN_DRIVER(REAL(symbol)(exec, stream));                                            \
    for (uint32_t place = 0; place < charge.count; place++) pools_end(&charge.pools[place], result, 0); \
    return result;                                                                                      \
  }
UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

/* The parameters begin with the flags and the stream of an upload, which becomes a call of its own: what it takes is
   only known, and charged, once the graph is instantiated. */
#define INSTANTIATE_WITH(symbol, upload)                                                 \
  CUresult symbol(CUgraphExec *exec, CUgraph graph, uint64_t *parameters) {              \
    if (passes_on() || parameters == NULL) return REAL(symbol)(exec, graph, parameters); \
    uint64_t flags = parameters[0];                                                      \
    uint64_t uploads = has_begun() ? flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD : 0;     \
    parameters[0] = flags & ~uploads;                                                    \
    CUresult result = IN_DRIVER(REAL(symbol)(exec, graph, parameters));                  \
    parameters[0] = flags;                                                               \
    result = instantiated(result, exec, graph, flags);                                   \
    if (result != CUDA_SUCCESS || uploads == 0) return result;                           \
    result = upload(*exec, (CUstream)(uintptr_t)parameters[1]);                          \
    if (result == CUDA_SUCCESS) return result;                                           \
    cuGraphExecDestroy(*exec);                                                           \
    *exec = NULL;                                                                        \
    return result;                                                                       \
  }
INSTANTIATE_WITH(cuGraphInstantiateWithParams, cuGraphUpload)
INSTANTIATE_WITH(cuGraphInstantiateWithParams_ptsz, cuGraphUpload_ptsz)

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  struct block blocks[GRAPH_DEVICES];
  uint32_t count = 0;
  if (passes_on()) return REAL(cuGraphExecDestroy)(exec);
  while (has_begun() && count < GRAPH_DEVICES &&
         memory_take(BLOCK_EXEC, number_of(exec, count), &blocks[count]))
    count++;
  CUresult result = IN_DRIVER(REAL(cuGraphExecDestroy)(exec));
  for (uint32_t i = 0; result != CUDA_SUCCESS && i < count; i++) memory_put_back(&blocks[i]);
  if (count != 0) pools_settle(NULL);
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
