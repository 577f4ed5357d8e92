/* SPDX-License-Identifier: Apache-2.0
 *
 * Many copies or hints in one call. Attributes, which only say how, change nothing here.
 */
#include "driver.h"

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                               const void *attributes, size_t *attribute_places, size_t attribute_count,
                               CUstream stream) {
  (void)attribute_places;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (targets == NULL || sources == NULL || sizes == NULL || count == 0 || attributes == NULL ||
      attribute_count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == NULL || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE; /* the manual */
  CUresult result = CUDA_SUCCESS;
  for (size_t index = 0; index < count && result == CUDA_SUCCESS; index++)
    result = cuMemcpyAsync(targets[index], sources[index], sizes[index], stream);
  return result;
}

/* The first version tells which copy failed. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                            const void *attributes, size_t *attribute_places, size_t attribute_count,
                            size_t *failed, CUstream stream) {
  if (failed != NULL) *failed = SIZE_MAX;
  return cuMemcpyBatchAsync_v2(targets, sources, sizes, count, attributes, attribute_places, attribute_count,
                               stream);
}

static CUresult check_ranges(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                             CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (addresses == NULL || sizes == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  for (size_t index = 0; index < count && result == CUDA_SUCCESS; index++) {
    const struct block *block = address_find(addresses[index]);
    if (block == NULL || block->kind != BLOCK_MANAGED || sizes[index] == 0) result = CUDA_ERROR_INVALID_VALUE;
  }
  driver_unlock();
  return result;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                 CUmemLocation_v1 *places, size_t *place_starts, size_t place_count,
                                 uint64_t flags, CUstream stream) {
  if (places == NULL || place_starts == NULL || place_count == 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return check_ranges(addresses, sizes, count, stream);
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, uint64_t flags,
                                CUstream stream) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : check_ranges(addresses, sizes, count, stream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                           CUmemLocation_v1 *places, size_t *place_starts, size_t place_count,
                                           uint64_t flags, CUstream stream) {
  return cuMemPrefetchBatchAsync(addresses, sizes, count, places, place_starts, place_count, flags, stream);
}
