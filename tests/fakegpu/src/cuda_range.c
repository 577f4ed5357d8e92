/* SPDX-License-Identifier: Apache-2.0
 *
 * What was advised of managed memory, and attributes that can be set on a pointer. Advice is not remembered.
 */
#include "driver.h"

#include <string.h>

enum {
  RANGE_READ_MOSTLY = 1,
  RANGE_PREFERRED_LOCATION,
  RANGE_ACCESSED_BY,
  RANGE_LAST_PREFETCH,
  RANGE_LOCATIONS = 8
};
enum { NOWHERE = -2 };

static CUresult answer(void *data, size_t size, unsigned attribute) {
  int value = attribute == RANGE_READ_MOSTLY ? 0 : NOWHERE;
  if (data == NULL || size < sizeof value || attribute == 0 || attribute > RANGE_LOCATIONS)
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute != RANGE_ACCESSED_BY) size = sizeof value;
  for (size_t done = 0; done + sizeof value <= size; done += sizeof value)
    memcpy((char *)data + done, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, unsigned *attributes, size_t attribute_count,
                                 CUdeviceptr address, size_t bytes) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (data == NULL || sizes == NULL || attributes == NULL || attribute_count == 0 || bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  const struct block *block = address_find(address);
  if (block == NULL || block->kind != BLOCK_MANAGED) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  for (size_t index = 0; index < attribute_count && result == CUDA_SUCCESS; index++)
    result = answer(data[index], sizes[index], attributes[index]);
  return result;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, unsigned attribute, CUdeviceptr address,
                                size_t bytes) {
  return cuMemRangeGetAttributes(&data, &size, &attribute, 1, address, bytes);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  enum { SYNC_MEMOPS = 6 };
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (value == NULL || attribute != SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  if (address_find(address) == NULL) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}

/* Pools by location (CUDA 13): those of the devices. The host's have none here. */
static CUresult device_of(const CUmemLocation_v1 *location, unsigned type, CUdevice *device) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (location == NULL || type != 1) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = location->id;
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation_v1 *location, unsigned type) {
  CUdevice device = 0;
  CUresult result = device_of(location, type, &device);
  return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool, device) : result;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation_v1 *location, unsigned type) {
  CUdevice device = 0;
  CUresult result = device_of(location, type, &device);
  return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, device) : result;
}

CUresult cuMemSetMemPool(CUmemLocation_v1 *location, unsigned type, CUmemoryPool pool) {
  CUdevice device = 0;
  CUresult result = device_of(location, type, &device);
  return result == CUDA_SUCCESS ? device_take_from(device, pool) : result;
}
