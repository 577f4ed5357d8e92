/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: plain, pitched, managed, host. Every byte of the card is charged to this process's slot in the
 * state.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <sys/mman.h>
#include <unistd.h>

#define HOST_FLAGS 0x7u
enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };

bool card_charge(uint32_t card, uint64_t bytes) {
  state_lock();
  bool fits = memory_take(card, bytes);
  state_unlock();
  if (fits) return true;
  pools_trim(card);
  state_lock();
  fits = memory_take(card, bytes);
  state_unlock();
  return fits;
}

/* Managed memory takes what is free on the card, the rest lies in the host's memory. (The real one moves page
 * by page on use; that it is there from the beginning is a guess that keeps the sums simple.) */
static uint64_t charge_up_to(uint32_t card, uint64_t bytes) {
  state_lock();
  reap_dead_sometimes();
  uint64_t available = memory_free(card), step = member_state()->driver.granularity_bytes;
  uint64_t charged = bytes < available ? bytes : available / step * step;
  if (!memory_take(card, charged)) charged = 0;
  state_unlock();
  return charged;
}

static CUresult take(CUcontext context, uint64_t bytes, enum block_kind kind, bool low,
                     struct block **allocated) {
  uint64_t rounded = memory_rounded(bytes), charged = 0;
  if (rounded == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (kind == BLOCK_DEVICE) {
    if (!card_charge(context->card, rounded)) return CUDA_ERROR_OUT_OF_MEMORY;
    charged = rounded;
  } else if (kind == BLOCK_MANAGED) {
    charged = charge_up_to(context->card, rounded);
  }
  bool host_sees_it = kind == BLOCK_MANAGED || kind == BLOCK_HOST;
  /* Whole pages: any of them may be exported. */
  struct block *block = low ? low_take(bytes) : address_take(bytes, true);
  if (block != NULL) {
    block->kind = (uint8_t)kind;
    block->context = context_owner(context);
    block->card = context->card;
    block->charged = charged;
    if (host_sees_it && !address_open(block)) {
      address_drop(block);
      block = NULL;
    }
  }
  if (block == NULL) {
    state_lock();
    memory_give(context->card, charged);
    state_unlock();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *allocated = block;
  return CUDA_SUCCESS;
}

CUresult block_allocate(CUcontext context, uint64_t bytes, enum block_kind kind, struct block **allocated) {
  return take(context, bytes, kind, false, allocated);
}

void block_free(struct block *block) {
  if (block->pool != NULL) {
    pool_release(block->pool, block->charged);
  } else if (block->charged != 0) {
    state_lock();
    memory_give(block->card, block->charged);
    state_unlock();
  }
  address_drop(block);
}

bool block_give_back(CUdeviceptr address) {
  struct block *block = address_find(address);
  if (block == NULL || block->base != address) return false;
  switch (block->kind) {
    case BLOCK_DEVICE:
    case BLOCK_ASYNC:
    case BLOCK_MANAGED:
    case BLOCK_FOREIGN:
      block_free(block);
      return true;
    case BLOCK_GRAPH:
      return graph_memory_free(address);
    default:
      return false;
  }
}

static void drop_if_in(struct block *block, void *context) {
  if (block->context == context) block_free(block);
}

void blocks_drop(CUcontext context) { address_each(drop_if_in, context); }

static CUresult allocate(uint64_t bytes, enum block_kind kind, unsigned flags, bool low,
                         CUdeviceptr *address) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (address == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  result = capture_forbids_unsafe(context);
  if (result != CUDA_SUCCESS) return result;
  struct block *block = NULL;
  driver_lock();
  result = take(context, bytes, kind, low, &block);
  if (result == CUDA_SUCCESS) {
    block->flags = flags;
    *address = block->base;
  }
  driver_unlock();
  return result;
}

CUresult memory_allocate_low(uint64_t bytes, CUdeviceptr *address) {
  return allocate(bytes, BLOCK_DEVICE, 0, true, address);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  return allocate(bytes, BLOCK_DEVICE, 0, false, address);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned element_bytes) {
  if (pitch == NULL || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return CUDA_ERROR_INVALID_VALUE;
  if (width > SIZE_MAX - PITCH) return CUDA_ERROR_INVALID_VALUE;
  size_t row = (width + PITCH - 1) / PITCH * PITCH;
  if (height > SIZE_MAX / row) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = allocate(row * height, BLOCK_DEVICE, 0, false, address);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
  if (flags != ATTACH_GLOBAL && flags != ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return allocate(bytes, BLOCK_MANAGED, flags, false, address);
}

/* Without waiting for work that uses the block; the real driver may wait for the whole card here. */
CUresult cuMemFree_v2(CUdeviceptr address) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (address == 0) return CUDA_SUCCESS;
  driver_lock();
  if (!block_give_back(address)) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  state_lock();
  reap_dead_sometimes();
  uint64_t available = memory_free(context->card);
  state_unlock();
  if (free != NULL) *free = available;
  if (total != NULL) *total = member_state()->cards[context->card].memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  const struct block *block = address_find(address);
  if (block == NULL) {
    result = CUDA_ERROR_NOT_FOUND;
  } else {
    if (base != NULL) *base = block->base;
    if (bytes != NULL) *bytes = block->bytes;
  }
  driver_unlock();
  return result;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  CUdeviceptr address = 0;
  if (pointer == NULL || (flags & ~HOST_FLAGS) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = allocate(bytes, BLOCK_HOST, flags, false, &address);
  if (result == CUDA_SUCCESS) *pointer = (void *)(uintptr_t)address;  // NOLINT(performance-no-int-to-ptr)
  return result;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

/* The block of host memory that begins at p; NULL: none does. Under driver_lock. */
static struct block *host_block(const void *pointer) {
  struct block *block = address_find((CUdeviceptr)(uintptr_t)pointer);
  bool host = block != NULL && (block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED);
  return host ? block : NULL;
}

CUresult cuMemFreeHost(void *pointer) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  struct block *block = host_block(pointer);
  if (block == NULL || block->kind != BLOCK_HOST || block->base != (CUdeviceptr)(uintptr_t)pointer)
    result = CUDA_ERROR_INVALID_VALUE;
  else
    block_free(block);
  driver_unlock();
  return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned flags) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (address == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  if (host_block(pointer) == NULL)
    result = CUDA_ERROR_INVALID_VALUE;
  else
    *address = (CUdeviceptr)(uintptr_t)pointer; /* unified addressing */
  driver_unlock();
  return result;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *pointer) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  const struct block *block = host_block(pointer);
  if (block == NULL)
    result = CUDA_ERROR_INVALID_VALUE;
  else
    *flags = block->flags | 2u; /* unified addressing: every host allocation is mapped */
  driver_unlock();
  return result;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t count, CUmem_advise advice, CUdevice device) {
  (void)advice;
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (device >= 0 && device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  driver_lock();
  const struct block *block = address_find(address);
  if (block == NULL || block->kind != BLOCK_MANAGED) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, CUmem_advise advice, CUmemLocation_v1 location) {
  return cuMemAdvise(address, count, advice, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1);
}

/* Moves nothing: where managed memory lies is settled when it is made. */
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice target, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  return result == CUDA_SUCCESS ? cuMemAdvise(address, count, 0, target) : result;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation_v1 location, unsigned flags,
                               CUstream stream) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return cuMemPrefetchAsync(address, count, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1,
                            stream);
}
