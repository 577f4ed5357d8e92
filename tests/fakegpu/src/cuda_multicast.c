/* SPDX-License-Identifier: Apache-2.0
 *
 * Multicast objects (CUDA driver API manual, "Multicast Object Management"): a range of addresses that stands
 * for the memory of several cards. They take no memory; what is bound stays alive while it is. What is written
 * to a mapping of one reaches no bound memory here, it stays in the mapping. In another process each of them
 * counts for itself (a simplification), so there it isn't known whether all devices have been added.
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

#define ATTRIBUTE_MULTICAST 132u
#define HOST_CARD UINT32_MAX

struct binding {
  struct binding *next;
  CUdevice device;
  uint64_t offset, bytes;
  CUmemHandle memory; /* NULL: bound by its address */
};

struct multicast {
  unsigned device_count;
  uint64_t added; /* bit set of devices */
  bool shared;    /* also in other processes */
  struct binding *bindings;
};

struct multicast *multicast_new(unsigned device_count) {
  struct multicast *made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  made->device_count = device_count;
  made->shared = true;
  return made;
}

static void unbind(struct binding **link) {
  struct binding *gone = *link;
  *link = gone->next;
  if (gone->memory != NULL) {
    gone->memory->mapped--;
    handle_settle(gone->memory);
  }
  free(gone);
}

void multicast_free(struct multicast *multicast) {
  while (multicast->bindings != NULL) unbind(&multicast->bindings);
  free(multicast);
}

static bool supports(CUdevice device) {
  int can = 0;
  return cuDeviceGetAttribute(&can, ATTRIBUTE_MULTICAST, device) == CUDA_SUCCESS && can != 0;
}

static CUresult check(const CUmulticastObjectProp_v1 *properties) {
  enum { HANDLE_TYPES = 1 | 8 };
  unsigned able = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (properties == NULL || properties->device_count == 0 || properties->flags != 0 ||
      (properties->handle_types & ~(unsigned long long)HANDLE_TYPES) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (int device = 0; device < device_count(); device++) able += supports(device);
  return able == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp_v1 *properties,
                                   unsigned option) {
  CUresult result = check(properties);
  if (result != CUDA_SUCCESS) return result;
  if (granularity == NULL || option > 1) return CUDA_ERROR_INVALID_VALUE;
  *granularity = VIRTUAL_GRANULARITY;
  return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *number, const CUmulticastObjectProp_v1 *properties) {
  char name[64];
  CUresult result = check(properties);
  if (result != CUDA_SUCCESS) return result;
  if (number == NULL || properties->bytes == 0 || properties->bytes % VIRTUAL_GRANULARITY != 0)
    return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, sizeof name, "fakegpu-multicast-%u", properties->device_count);
  int file = handle_file(name, properties->bytes);
  struct multicast *multicast = file < 0 ? NULL : multicast_new(properties->device_count);
  if (multicast == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  multicast->shared = properties->handle_types != 0;
  driver_lock();
  struct CUmemHandle_st made = {.bytes = properties->bytes,
                                .card = HOST_CARD,
                                .file = file,
                                .references = 1,
                                .properties = {.type = 1, .handle_types = (unsigned)properties->handle_types},
                                .multicast = multicast};
  CUmemHandle handle = handle_add(&made);
  if (handle != NULL) *number = (CUmemGenericAllocationHandle)(uintptr_t)handle;
  driver_unlock();
  return handle == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Under driver_lock. */
static struct multicast *find(CUmemGenericAllocationHandle number, uint64_t *bytes) {
  CUmemHandle handle = handle_of(number);
  if (handle == NULL || handle->multicast == NULL) return NULL;
  *bytes = handle->bytes;
  return handle->multicast;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle number, CUdevice device) {
  uint64_t bytes = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (!supports(device)) return CUDA_ERROR_NOT_SUPPORTED;
  driver_lock();
  struct multicast *multicast = find(number, &bytes);
  uint64_t bit = 1ull << device;
  bool good = multicast != NULL && (multicast->added & bit) == 0 &&
              (unsigned)__builtin_popcountll(multicast->added) < multicast->device_count;
  if (good) multicast->added |= bit;
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether the range of the object is in it, and free on that device; the manual: all devices have been added
 * before anything is bound. Under driver_lock. */
static CUresult room(const struct multicast *multicast, uint64_t whole, const struct binding *wish) {
  if (multicast == NULL || wish->bytes == 0 || (wish->offset | wish->bytes) % VIRTUAL_GRANULARITY != 0 ||
      wish->offset > whole || wish->bytes > whole - wish->offset)
    return CUDA_ERROR_INVALID_VALUE;
  if ((multicast->added >> wish->device & 1u) == 0) return CUDA_ERROR_INVALID_DEVICE;
  if (!multicast->shared && (unsigned)__builtin_popcountll(multicast->added) < multicast->device_count)
    return CUDA_ERROR_ILLEGAL_STATE;
  for (const struct binding *other = multicast->bindings; other != NULL; other = other->next)
    if (other->device == wish->device && other->offset < wish->offset + wish->bytes &&
        wish->offset < other->offset + other->bytes)
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* Under driver_lock. */
static CUresult bind(struct multicast *multicast, uint64_t whole, const struct binding *wish) {
  CUresult result = room(multicast, whole, wish);
  struct binding *made = result == CUDA_SUCCESS ? malloc(sizeof *made) : NULL;
  if (result != CUDA_SUCCESS) return result;
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = *wish;
  made->next = multicast->bindings;
  multicast->bindings = made;
  if (made->memory != NULL) made->memory->mapped++;
  return CUDA_SUCCESS;
}

enum { DEVICE_OF_MEMORY = -1 };

static CUresult bind_memory(CUmemGenericAllocationHandle number, CUdevice device, uint64_t offset,
                            CUmemGenericAllocationHandle memory, uint64_t memory_offset, uint64_t bytes) {
  uint64_t whole = 0;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  struct multicast *multicast = find(number, &whole);
  CUmemHandle handle = handle_of(memory);
  if (handle != NULL && handle->multicast == NULL && memory_offset % VIRTUAL_GRANULARITY == 0 &&
      memory_offset <= handle->bytes && bytes <= handle->bytes - memory_offset) {
    if (device == DEVICE_OF_MEMORY) device = handle_ordinal(handle->card);
    result = device < 0 ? CUDA_ERROR_INVALID_DEVICE
                        : bind(multicast, whole,
                               &(struct binding){
                                   .device = device, .offset = offset, .bytes = bytes, .memory = handle});
  }
  driver_unlock();
  return result;
}

static CUresult bind_address(CUmemGenericAllocationHandle number, CUdevice device, uint64_t offset,
                             CUdeviceptr address, uint64_t bytes) {
  uint64_t whole = 0;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  struct multicast *multicast = find(number, &whole);
  const struct block *block = address_find(address);
  if (block != NULL && bytes <= block->bytes - (address - block->base)) {
    if (device == DEVICE_OF_MEMORY) device = handle_ordinal(block->card);
    result = device < 0
                 ? CUDA_ERROR_INVALID_DEVICE
                 : bind(multicast, whole,
                        &(struct binding){.device = device, .offset = offset, .bytes = bytes, .memory = NULL});
  }
  driver_unlock();
  return result;
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle number, CUdevice device, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                               unsigned long long flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return bind_memory(number, device, offset, memory, memory_offset, bytes);
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle number, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return bind_memory(number, DEVICE_OF_MEMORY, offset, memory, memory_offset, bytes);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle number, CUdevice device, size_t offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return bind_address(number, device, offset, address, bytes);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle number, size_t offset, CUdeviceptr address,
                             size_t bytes, unsigned long long flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return bind_address(number, DEVICE_OF_MEMORY, offset, address, bytes);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle number, CUdevice device, size_t offset,
                           size_t bytes) {
  uint64_t whole = 0;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  struct multicast *multicast = find(number, &whole);
  for (struct binding **link = multicast == NULL ? NULL : &multicast->bindings; link != NULL && *link != NULL;
       link = &(*link)->next)
    if ((*link)->device == device && (*link)->offset == offset && (*link)->bytes == bytes) {
      unbind(link);
      result = CUDA_SUCCESS;
      break;
    }
  driver_unlock();
  return result;
}
