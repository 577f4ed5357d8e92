/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of graphs. An allocation node fixes an address; each launch makes the card pay for it, until a free
 * node, cuMemFree or cuMemFreeAsync gives it back: to the device's graph pool, which keeps it until
 * cuDeviceGraphMemTrim (CUDA programming guide, "Graph memory nodes"). That the pool gives way when the card
 * is full is a guess.
 */
#include "graph.h"

#include <stdlib.h>

enum { AUTO_FREE_ON_LAUNCH = 1 };
enum { POOL_RESERVED_CURRENT = 5, POOL_RESERVED_HIGH, POOL_USED_CURRENT, POOL_USED_HIGH };

struct entry {
  struct graph_memory memory;
  struct entry *next;
};

static struct entry *entries;

static struct entry *entry_at(CUdeviceptr address) {
  struct entry *entry = entries;
  while (entry != NULL && entry->memory.block->base != address) entry = entry->next;
  return entry;
}

bool graph_memory_known(CUdeviceptr address) { return address != 0 && entry_at(address) != NULL; }

/* What an allocation node or a captured allocation needs; params->address is filled in. */
CUresult graph_memory_new(CUDA_MEM_ALLOC_NODE_PARAMS *params, CUcontext context,
                          struct graph_memory **memory) {
  CUdevice ordinal = params->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                         ? params->properties.location.id
                     : context == NULL ? -1
                                       : context->device;
  struct device *device = device_at(ordinal);
  if (params->bytes == 0 || params->properties.handle_types != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  struct entry *entry = calloc(1, sizeof *entry);
  struct block *block = entry == NULL ? NULL : address_take(params->bytes, false);
  CUmemoryPool pool = block == NULL ? NULL : device_graph_pool(device);
  uint64_t rounded = memory_rounded(params->bytes);
  if (pool == NULL || rounded == 0) {
    if (block != NULL) address_drop(block);
    free(entry);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  block->kind = BLOCK_RESERVED;
  block->card = device->card;
  entry->memory = (struct graph_memory){.block = block, .pool = pool, .bytes = rounded, .references = 1};
  entry->next = entries;
  entries = entry;
  params->address = block->base;
  params->accesses = NULL; /* the caller's */
  params->access_count = 0;
  *memory = &entry->memory;
  return CUDA_SUCCESS;
}

static void forget_if_unused(struct graph_memory *memory) {
  if (memory->references != 0 || memory->live) return;
  struct entry **link = &entries;
  while (&(*link)->memory != memory) link = &(*link)->next;
  struct entry *gone = *link;
  *link = gone->next;
  address_drop(memory->block);
  free(gone);
}

void graph_memory_drop(struct graph_memory *memory) {
  memory->references--;
  forget_if_unused(memory);
}

/* Frees of the address among a node and all that it comes after. */
static unsigned frees_up_to(CUgraphNode node, CUdeviceptr address) {
  if (node->visit != 0) return 0;
  node->visit = 1;
  unsigned found = node->work.type == NODE_MEM_FREE && node->work.params.freed == address;
  for (size_t index = 0; index < node->need_count; index++) found += frees_up_to(node->needs[index], address);
  return found;
}

/* Whether every use that the graph has of this memory is over before the new node. */
static bool is_over(const struct graph_memory *memory, const CUgraphNode *needs, size_t need_count) {
  unsigned uses = 0, frees = 0;
  for (CUgraphNode node = needs[0]->graph->first; node != NULL; node = node->next) {
    node->visit = 0;
    uses += node->work.memory == memory;
  }
  for (size_t index = 0; index < need_count; index++)
    frees += frees_up_to(needs[index], memory->block->base);
  return uses == frees;
}

/* "CUDA may reuse memory within a graph by assigning the same virtual address ranges to different allocations
 * whose lifetimes do not overlap" (CUDA programming guide, "Graph memory nodes"). Here: the first that is as
 * large, where the order of the nodes says that it has been freed. */
void graph_memory_reuse(struct work *work, const CUgraphNode *needs, size_t need_count) {
  if (work->type != NODE_MEM_ALLOC || need_count == 0) return;
  for (CUgraphNode node = needs[0]->graph->first; node != NULL; node = node->next) {
    struct graph_memory *memory = node->work.memory;
    if (memory == NULL || memory->pool != work->memory->pool || memory->bytes < work->memory->bytes ||
        !is_over(memory, needs, need_count))
      continue;
    graph_memory_drop(work->memory);
    memory->references++;
    work->memory = memory;
    work->params.alloc.address = memory->block->base;
    return;
  }
}

static void set_live(struct graph_memory *memory, bool live) {
  memory->live = live;
  memory->block->kind = live ? BLOCK_GRAPH : BLOCK_RESERVED;
}

bool graph_memory_free(CUdeviceptr address) {
  struct entry *entry = entry_at(address);
  if (entry == NULL || !entry->memory.live) return false;
  set_live(&entry->memory, false);
  pool_release(entry->memory.pool, entry->memory.bytes);
  forget_if_unused(&entry->memory);
  return true;
}

static void give_back_from(CUgraphExec exec, size_t end) {
  for (size_t index = 0; index < end; index++) {
    const struct graph_memory *memory = exec->steps[index].work.memory;
    if (memory != NULL && memory->live) graph_memory_free(memory->block->base);
  }
}

/* All of a launch's memory, before anything of it runs; where it does not fit, the launch leaves nothing. */
CUresult steps_take_memory(CUgraphExec exec) {
  if ((exec->flags & AUTO_FREE_ON_LAUNCH) != 0) give_back_from(exec, exec->count);
  for (size_t index = 0; index < exec->count; index++) {
    const struct graph_memory *memory = exec->steps[index].work.memory;
    if (memory != NULL && memory->live)
      return CUDA_ERROR_INVALID_VALUE; /* still there since the last launch */
  }
  for (size_t index = 0; index < exec->count; index++) {
    struct work *work = &exec->steps[index].work;
    if (work->memory != NULL) {
      CUresult result = pool_charge(work->memory->pool, work->memory->bytes);
      if (result != CUDA_SUCCESS) {
        give_back_from(exec, index);
        return result;
      }
      set_live(work->memory, true);
    } else if (work->type == NODE_MEM_FREE && !graph_memory_free(work->params.freed)) {
      give_back_from(exec, index);
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

static bool has_live(CUgraphExec exec, CUdeviceptr address) {
  for (size_t index = 0; index < exec->count; index++) {
    const struct graph_memory *memory = exec->steps[index].work.memory;
    if (memory != NULL && memory->live && memory->block->base == address) return true;
  }
  return false;
}

/* "Calling cudaGraphUpload can separate out the cost of allocation from the launch by performing all mappings
 * for that graph immediately" (CUDA programming guide, "Graph memory nodes"): the pool has reserved, and keeps,
 * what a launch then uses. */
CUresult steps_reserve_memory(CUgraphExec exec) {
  CUresult result = CUDA_SUCCESS;
  size_t index = 0;
  for (size_t step = 0; step < exec->count; step++) {
    const struct graph_memory *memory = exec->steps[step].work.memory;
    if (memory != NULL && memory->live) return CUDA_SUCCESS; /* it is all there since a launch */
  }
  for (; index < exec->count && result == CUDA_SUCCESS; index++) {
    struct work *work = &exec->steps[index].work;
    if (work->type == NODE_MEM_FREE && has_live(exec, work->params.freed)) graph_memory_free(work->params.freed);
    if (work->memory == NULL || work->memory->live) continue;
    result = pool_charge(work->memory->pool, work->memory->bytes);
    if (result == CUDA_SUCCESS) set_live(work->memory, true);
  }
  give_back_from(exec, index);
  return result;
}

static CUresult pool_of(CUdevice ordinal, CUmemoryPool *pool) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  struct device *device = device_at(ordinal);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  driver_lock();
  *pool = device_graph_pool(device);
  driver_unlock();
  return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  CUmemoryPool pool = NULL;
  CUresult result = pool_of(device, &pool);
  return result == CUDA_SUCCESS ? cuMemPoolTrimTo(pool, 0) : result;
}

static const CUmemPool_attribute attributes[] = {POOL_USED_CURRENT, POOL_USED_HIGH, POOL_RESERVED_CURRENT,
                                                 POOL_RESERVED_HIGH};

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
  CUmemoryPool pool = NULL;
  CUresult result = pool_of(device, &pool);
  if (result != CUDA_SUCCESS) return result;
  return attribute < 4 ? cuMemPoolGetAttribute(pool, attributes[attribute], value) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
  CUmemoryPool pool = NULL;
  CUresult result = pool_of(device, &pool);
  if (result != CUDA_SUCCESS) return result;
  return attribute < 4 ? cuMemPoolSetAttribute(pool, attributes[attribute], value) : CUDA_ERROR_INVALID_VALUE;
}
