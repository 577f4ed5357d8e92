/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes of kernels, and occupancy. Every kernel here is the same modest one: 32 registers, no shared
 * memory.
 */
#include "driver.h"

#define REGISTERS 32
#define MAX_DYNAMIC_SHARED (227 << 10)

enum {
  FUNCTION_MAX_THREADS = 0,
  FUNCTION_REGISTERS = 4,
  FUNCTION_PTX_VERSION = 5,
  FUNCTION_BINARY_VERSION = 6,
  FUNCTION_MAX_DYNAMIC_SHARED = 8,
  FUNCTION_CARVEOUT = 9,
  FUNCTION_ATTRIBUTES = 16,
};

static CUresult get(int *value, CUfunction_attribute attribute, CUfunction function, CUdevice device) {
  const struct card_config *card = device_config(device);
  if (value == NULL || attribute >= FUNCTION_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (card == NULL) return CUDA_ERROR_INVALID_DEVICE;
  int version = (int)(card->compute_major * 10u + card->compute_minor);
  switch (attribute) {
    case FUNCTION_MAX_THREADS:
      *value = 1024;
      return CUDA_SUCCESS;
    case FUNCTION_REGISTERS:
      *value = REGISTERS;
      return CUDA_SUCCESS;
    case FUNCTION_PTX_VERSION:
    case FUNCTION_BINARY_VERSION:
      *value = version;
      return CUDA_SUCCESS;
    case FUNCTION_MAX_DYNAMIC_SHARED:
      *value = function->dynamic_shared_bytes != 0 ? function->dynamic_shared_bytes : 48 << 10;
      return CUDA_SUCCESS;
    case FUNCTION_CARVEOUT:
      *value = function->carveout - 1; /* -1: the driver's choice */
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}

static CUresult set(CUfunction function, CUfunction_attribute attribute, int value) {
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == FUNCTION_MAX_DYNAMIC_SHARED) {
    if (value < 0 || value > MAX_DYNAMIC_SHARED) return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared_bytes = value;
    return CUDA_SUCCESS;
  }
  if (attribute == FUNCTION_CARVEOUT) {
    if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
    function->carveout = value + 1;
    return CUDA_SUCCESS;
  }
  return attribute < FUNCTION_ATTRIBUTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  return result == CUDA_SUCCESS ? get(value, attribute, function, context->device) : result;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CUresult ready = driver_ready();
  return ready == CUDA_SUCCESS ? set(function, attribute, value) : ready;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  return config <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  CUresult ready = driver_ready();
  return ready == CUDA_SUCCESS ? get(value, attribute, kernel, device) : ready;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  return device_at(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : set(kernel, attribute, value);
}

/* Blocks of block_size threads that fit on one multiprocessor at a time. */
static CUresult resident_blocks(CUfunction function, int block_size, size_t shared_bytes, int *blocks,
                                int *sms) {
  CUcontext context = NULL;
  int threads = 0, most = 0, shared = 0;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  cuDeviceGetAttribute(&threads, 39, context->device);
  cuDeviceGetAttribute(&most, 106, context->device);
  cuDeviceGetAttribute(&shared, 81, context->device);
  cuDeviceGetAttribute(sms, 16, context->device);
  int warps = (block_size + 31) / 32;
  int fit = block_size > 1024 ? 0 : threads / (warps * 32);
  if (shared_bytes != 0 && (size_t)fit > (size_t)shared / shared_bytes)
    fit = (int)((size_t)shared / shared_bytes);
  *blocks = fit < most ? fit : most;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_size, size_t dynamic_bytes,
                                                              unsigned flags) {
  int sms = 0;
  if (blocks == NULL || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  return resident_blocks(function, block_size, dynamic_bytes, blocks, &sms);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t dynamic_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic_bytes, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block_size, CUfunction function,
                                                   CUoccupancyB2DSize block_to_bytes, size_t dynamic_bytes,
                                                   int limit, unsigned flags) {
  if (grid == NULL || block_size == NULL || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  int size = limit > 0 && limit < 1024 ? limit : 1024, blocks = 0, sms = 0;
  size_t shared = block_to_bytes != NULL ? block_to_bytes(size) : dynamic_bytes;
  CUresult result = resident_blocks(function, size, shared, &blocks, &sms);
  if (result != CUDA_SUCCESS) return result;
  *block_size = size;
  *grid = blocks * sms;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize block_to_bytes, size_t dynamic_bytes,
                                          int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block_size, function, block_to_bytes, dynamic_bytes,
                                                   limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic_bytes, CUfunction function, int blocks,
                                                 int block_size) {
  CUcontext context = NULL;
  int shared = 0;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (dynamic_bytes == NULL || blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  cuDeviceGetAttribute(&shared, 81, context->device);
  *dynamic_bytes = (size_t)shared / (size_t)blocks;
  return CUDA_SUCCESS;
}

/* Clusters: eight blocks are what every card with clusters can do (CUDA programming guide, "Thread block
 * clusters"). */
CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (size == NULL || config == NULL) return CUDA_ERROR_INVALID_VALUE;
  *size = 8;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config) {
  int blocks = 0, sms = 0;
  if (count == NULL || config == NULL) return CUDA_ERROR_INVALID_VALUE;
  int threads = (int)(config->block_x * config->block_y * config->block_z);
  CUresult result = resident_blocks(function, threads, config->shared_bytes, &blocks, &sms);
  if (result == CUDA_SUCCESS) *count = blocks * sms / 8;
  return result;
}
