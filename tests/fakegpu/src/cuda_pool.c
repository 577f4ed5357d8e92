/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory. A pool counts what is in use and what it keeps for later (up to its release
 * threshold); both are charged to the card. Memory is given back at the call that frees it, not when the
 * stream gets there, and a pool reserves exactly what is used, not the real one's chunks of 32 MiB (both
 * guesses on the simple side).
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HANDLE_FILE_DESCRIPTOR = 1 };

enum {
  REUSE_FOLLOW_EVENTS = 1,
  REUSE_OPPORTUNISTIC,
  REUSE_INTERNAL,
  RELEASE_THRESHOLD,
  RESERVED_CURRENT,
  RESERVED_HIGH,
  USED_CURRENT,
  USED_HIGH,
};

struct CUmemPoolHandle_st {
  struct object object;
  CUmemoryPool next; /* all pools of the process */
  uint32_t card;
  bool is_default, imported;
  unsigned handle_types; /* it may be exported as */
  int reuse[3];
  uint64_t threshold;
  uint64_t used, used_high;
  uint64_t kept; /* charged, but not in use */
  uint64_t reserved_high;
};

static struct object *spare;
static CUmemoryPool pools;

static bool alive(CUmemoryPool pool) { return pool != NULL && pool->object.magic == MAGIC_POOL; }

CUmemoryPool pool_create(uint32_t card) {
  CUmemoryPool pool = object_new(&spare, sizeof *pool, MAGIC_POOL);
  if (pool == NULL) return NULL;
  pool->card = card;
  for (int index = 0; index < 3; index++) pool->reuse[index] = 1;
  pool->next = pools;
  pools = pool;
  return pool;
}

static void give_back(CUmemoryPool pool, uint64_t bytes) {
  state_lock();
  memory_give(pool->card, bytes);
  state_unlock();
  pool->kept -= bytes;
}

static void trim(CUmemoryPool pool, uint64_t keep) {
  uint64_t reserved = pool->used + pool->kept;
  if (reserved <= keep) return;
  uint64_t excess = reserved - keep;
  give_back(pool, excess < pool->kept ? excess : pool->kept);
}

void pools_trim(uint32_t card) {
  for (CUmemoryPool pool = pools; pool != NULL; pool = pool->next)
    if (pool->card == card) trim(pool, 0);
}

CUresult pool_charge(CUmemoryPool pool, uint64_t bytes) {
  uint64_t from_kept = bytes < pool->kept ? bytes : pool->kept;
  for (int attempt = 0;; attempt++) {
    state_lock();
    bool fits = memory_take(pool->card, bytes - from_kept);
    state_unlock();
    if (fits) break;
    if (attempt > 0) return CUDA_ERROR_OUT_OF_MEMORY;
    pools_trim(pool->card);
    from_kept = 0;
  }
  pool->kept -= from_kept;
  pool->used += bytes;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  if (pool->used + pool->kept > pool->reserved_high) pool->reserved_high = pool->used + pool->kept;
  return CUDA_SUCCESS;
}

void pool_release(CUmemoryPool pool, uint64_t bytes) {
  pool->used -= bytes;
  pool->kept += bytes;
  trim(pool, alive(pool) ? pool->threshold : 0);
}

static CUresult allocate_from(CUmemoryPool pool, CUcontext context, uint64_t bytes, CUdeviceptr *address) {
  uint64_t rounded = memory_rounded(bytes);
  CUresult result = rounded == 0 ? CUDA_ERROR_OUT_OF_MEMORY : pool_charge(pool, rounded);
  if (result != CUDA_SUCCESS) return result;
  struct block *block = address_take(bytes, pool->handle_types != 0);
  if (block == NULL) {
    pool_release(pool, rounded);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  block->kind = BLOCK_ASYNC;
  block->context = context_owner(context);
  block->card = pool->card;
  block->pool = pool;
  block->charged = rounded;
  *address = block->base;
  return CUDA_SUCCESS;
}

/* The default pool of a device, made when first asked for; NULL: no memory. Under driver_lock. */
static CUmemoryPool default_pool(struct device *device) {
  if (device->default_pool == NULL) {
    device->default_pool = pool_create(device->card);
    if (device->default_pool != NULL) device->default_pool->is_default = true;
  }
  return device->default_pool;
}

static CUmemoryPool current_pool(struct device *device) {
  return alive(device->pool) ? device->pool : default_pool(device);
}

/* An allocation in a capture becomes a node; where one begins, *captured is set. */
static CUresult capture_allocation(CUcontext context, CUstream stream, CUdevice device, uint64_t bytes,
                                   CUdeviceptr *address, bool *captured) {
  CUgraphNodeParams node = {.type = NODE_MEM_ALLOC};
  node.alloc.properties.location = (CUmemLocation_v1){CU_MEM_LOCATION_TYPE_DEVICE, device};
  node.alloc.bytes = bytes;
  CUresult result = capture_work(context, stream, &node, false, captured);
  if (result == CUDA_SUCCESS && *captured) *address = node.alloc.address;
  return result;
}

static CUdevice ordinal_of(CUmemoryPool pool) {
  for (CUdevice ordinal = 0; ordinal < device_count(); ordinal++)
    if (device_at(ordinal)->card == pool->card) return ordinal;
  return -1;
}

CUmemoryPool device_graph_pool(struct device *device) {
  if (device->graph_pool == NULL) {
    device->graph_pool = pool_create(device->card);
    if (device->graph_pool != NULL) device->graph_pool->threshold = UINT64_MAX;
  }
  return device->graph_pool;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  bool captured = false;
  if (address == NULL || bytes == 0 || !alive(pool) || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  result = capture_allocation(context, stream, ordinal_of(pool), bytes, address, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  driver_lock();
  result = allocate_from(pool, context, bytes, address);
  driver_unlock();
  return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  bool captured = false;
  if (address == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  result = capture_allocation(context, stream, context->device, bytes, address, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  driver_lock();
  CUmemoryPool pool = current_pool(device_at(context->device));
  result = pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : allocate_from(pool, context, bytes, address);
  driver_unlock();
  return result;
}

/* Frees plain blocks as well, as the real one does. */
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  CUgraphNodeParams node = {.type = NODE_MEM_FREE};
  bool captured = false;
  node.freed = address;
  result = capture_work(context, stream, &node, false, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  driver_lock();
  if (!block_give_back(address)) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}

static CUresult pool_of(CUdevice ordinal, CUmemoryPool *pool, CUmemoryPool (*choose)(struct device *device)) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  struct device *device = device_at(ordinal);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  *pool = choose(device);
  driver_unlock();
  return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  return pool_of(device, pool, default_pool);
}
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
  return pool_of(device, pool, current_pool);
}

CUresult device_take_from(CUdevice ordinal, CUmemoryPool pool) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  struct device *device = device_at(ordinal);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (!alive(pool) || pool->card != device->card) return CUDA_ERROR_INVALID_VALUE;
  device->pool = pool;
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) { return device_take_from(device, pool); }

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps_v1 *properties) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool == NULL || properties == NULL || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  const struct device *device = device_at(properties->location.id);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  driver_lock();
  *pool = pool_create(device->card);
  if (*pool != NULL) (*pool)->handle_types = properties->handle_types;
  driver_unlock();
  return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

bool pool_is_imported(CUmemoryPool pool) { return alive(pool) && pool->imported; }

/* A pool goes to another process as a file whose name tells the card; what is allocated from it follows
 * pointer by pointer (cuda_ipc.c). */
CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
                                          uint64_t flags) {
  char name[64];
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (shareable == NULL || !alive(pool) || type != HANDLE_FILE_DESCRIPTOR || flags != 0 ||
      (pool->handle_types & HANDLE_FILE_DESCRIPTOR) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, sizeof name, "fakegpu-pool-%u", pool->card);
  int file = (int)syscall(SYS_memfd_create, name, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *(int *)shareable = file;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable,
                                            CUmemAllocationHandleType type, uint64_t flags) {
  char path[64], target[128];
  uint32_t card = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool == NULL || type != HANDLE_FILE_DESCRIPTOR || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(path, sizeof path, "/proc/self/fd/%d", (int)(intptr_t)shareable);
  ssize_t length = readlink(path, target, sizeof target - 1);
  if (length < 0) return CUDA_ERROR_INVALID_VALUE;
  target[length] = '\0';
  if (sscanf(target, "/memfd:fakegpu-pool-%u", &card) != 1 || card >= FAKEGPU_UNITS)
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  *pool = pool_create(card);
  if (*pool != NULL) (*pool)->imported = true;
  driver_unlock();
  return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Its live blocks stay valid and give their memory back one by one. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(pool) || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  trim(pool, 0);
  pool->object.magic = 0; /* not reused: blocks may still name it */
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(pool)) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  trim(pool, keep_bytes);
  driver_unlock();
  return CUDA_SUCCESS;
}

static CUresult read_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  switch (attribute) {
    case REUSE_FOLLOW_EVENTS:
    case REUSE_OPPORTUNISTIC:
    case REUSE_INTERNAL:
      *(int *)value = pool->reuse[attribute - REUSE_FOLLOW_EVENTS];
      return CUDA_SUCCESS;
    case RELEASE_THRESHOLD:
      *(uint64_t *)value = pool->threshold;
      return CUDA_SUCCESS;
    case RESERVED_CURRENT:
      *(uint64_t *)value = pool->used + pool->kept;
      return CUDA_SUCCESS;
    case RESERVED_HIGH:
      *(uint64_t *)value = pool->reserved_high;
      return CUDA_SUCCESS;
    case USED_CURRENT:
      *(uint64_t *)value = pool->used;
      return CUDA_SUCCESS;
    case USED_HIGH:
      *(uint64_t *)value = pool->used_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(pool) || value == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUresult result = read_attribute(pool, attribute, value);
  driver_unlock();
  return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(pool) || value == NULL) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case REUSE_FOLLOW_EVENTS:
    case REUSE_OPPORTUNISTIC:
    case REUSE_INTERNAL:
      pool->reuse[attribute - REUSE_FOLLOW_EVENTS] = *(const int *)value;
      return CUDA_SUCCESS;
    case RELEASE_THRESHOLD:
      pool->threshold = *(const uint64_t *)value;
      return CUDA_SUCCESS;
    case RESERVED_HIGH: /* the marks can only be reset */
    case USED_HIGH:
      if (*(const uint64_t *)value != 0) return CUDA_ERROR_INVALID_VALUE;
      if (attribute == RESERVED_HIGH)
        pool->reserved_high = pool->used + pool->kept;
      else
        pool->used_high = pool->used;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc_v1 *map, size_t count) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(pool) || (map == NULL && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < count; index++)
    if (device_at(map[index].location.id) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation_v1 *location) {
  enum { ACCESS_NONE = 0, ACCESS_READ_WRITE = 3 };
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags == NULL || location == NULL || !alive(pool)) return CUDA_ERROR_INVALID_VALUE;
  const struct device *device = device_at(location->id);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  *flags = device->card == pool->card ? ACCESS_READ_WRITE : ACCESS_NONE;
  return CUDA_SUCCESS;
}
