/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver knows of a pointer. The plural form succeeds for every pointer and writes every output,
 * with zeros for one it doesn't know, as clients rely on.
 */
#include "driver.h"

#include <string.h>

enum {
  POINTER_CONTEXT = 1,
  POINTER_MEMORY_TYPE = 2,
  POINTER_DEVICE_POINTER = 3,
  POINTER_HOST_POINTER = 4,
  POINTER_SYNC_MEMOPS = 6,
  POINTER_BUFFER_ID = 7,
  POINTER_IS_MANAGED = 8,
  POINTER_DEVICE_ORDINAL = 9,
  POINTER_IS_LEGACY_IPC_CAPABLE = 10,
  POINTER_RANGE_START = 11,
  POINTER_RANGE_SIZE = 12,
  POINTER_MAPPED = 13,
  POINTER_ALLOWED_HANDLE_TYPES = 14,
  POINTER_IS_RDMA_CAPABLE = 15,
  POINTER_ACCESS_FLAGS = 16,
  POINTER_POOL = 17,
};

#define NO_DEVICE ((uint64_t)-2)

/* A mapping belongs to no context, but to the card whose memory is mapped. */
static int ordinal_of(const struct block *block) {
  if (block->context != NULL) return block->context->device;
  for (int ordinal = 0; ordinal < device_count(); ordinal++)
    if (device_at(ordinal)->card == block->card) return ordinal;
  return (int)NO_DEVICE;
}

static bool is_host(const struct block *block) {
  return block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED;
}

static void put(void *data, uint64_t value, size_t size) { memcpy(data, &value, size); }

/* block is NULL for a pointer that the driver doesn't know. False: no such attribute. */
static bool answer(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                   const struct block *block) {
  bool host = block != NULL && (is_host(block) || block->kind == BLOCK_MANAGED);
  bool plain = block != NULL && block->kind == BLOCK_DEVICE;
  switch (attribute) {
    case POINTER_CONTEXT:
      put(data, block == NULL ? 0 : (uint64_t)(uintptr_t)block->context, sizeof(CUcontext));
      return true;
    case POINTER_MEMORY_TYPE:
      put(data, block == NULL ? 0 : is_host(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE, 4);
      return true;
    case POINTER_DEVICE_POINTER:
      put(data, block == NULL ? 0 : address, 8);
      return true;
    case POINTER_HOST_POINTER:
      put(data, host ? address : 0, sizeof(void *));
      return true;
    case POINTER_SYNC_MEMOPS:
      put(data, 0, sizeof(int));
      return true;
    case POINTER_BUFFER_ID:
      put(data, block == NULL ? 0 : block->id, 8);
      return true;
    case POINTER_IS_MANAGED:
      put(data, block != NULL && block->kind == BLOCK_MANAGED, sizeof(int));
      return true;
    case POINTER_DEVICE_ORDINAL:
      put(data, block == NULL ? NO_DEVICE : (uint64_t)ordinal_of(block), sizeof(int));
      return true;
    case POINTER_IS_LEGACY_IPC_CAPABLE:
    case POINTER_IS_RDMA_CAPABLE:
      put(data, plain, sizeof(int));
      return true;
    case POINTER_RANGE_START:
      put(data, block == NULL ? 0 : block->base, 8);
      return true;
    case POINTER_RANGE_SIZE:
      put(data, block == NULL ? 0 : block->bytes, sizeof(size_t));
      return true;
    case POINTER_MAPPED:
      put(data, block != NULL, sizeof(int));
      return true;
    case POINTER_ALLOWED_HANDLE_TYPES:
      put(data, 0, 8);
      return true;
    case POINTER_ACCESS_FLAGS:
      put(data, block == NULL ? 0 : 3, sizeof(int)); /* 3: read and write */
      return true;
    case POINTER_POOL:
      put(data, block == NULL ? 0 : (uint64_t)(uintptr_t)block->pool, sizeof(CUmemoryPool));
      return true;
    default:
      return false;
  }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (data == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  const struct block *block = address_find(address);
  if (block == NULL || !answer(data, attribute, address, block)) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (count == 0 || attributes == NULL || data == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  const struct block *block = address_find(address);
  for (unsigned index = 0; index < count && result == CUDA_SUCCESS; index++)
    if (!answer(data[index], attributes[index], address, block)) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}
