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

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes,
                                     const void *attributes, CUstream stream) {
  return attributes == NULL ? CUDA_ERROR_INVALID_VALUE : cuMemcpyAsync(target, source, bytes, stream);
}

enum { OPERAND_MEMORY = 1, OPERAND_ARRAY = 2 };
enum { MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };

/* Bytes of a cell where one end is an array, else 1: extents count cells then. */
static size_t cell_bytes(const CUDA_MEMCPY3D_BATCH_OP_v1 *op) {
  const CUmemcpy3DOperand_v1 *end = op->source.type == OPERAND_ARRAY ? &op->source : &op->target;
  if (end->type != OPERAND_ARRAY || array_resolve(end->array.array) != CUDA_SUCCESS) return 1;
  return end->array.array->row / end->array.array->descriptor.width;
}

/* Rows and layers of 0 are as wide and high as what is copied. */
static CUDA_MEMCPY3D_v2 box_of(const CUDA_MEMCPY3D_BATCH_OP_v1 *op) {
  size_t cell = cell_bytes(op);
  const CUmemcpy3DOperand_v1 *from = &op->source, *to = &op->target;
  CUDA_MEMCPY3D_v2 box = {.width = op->width * cell, .height = op->height, .depth = op->depth};
  if (from->type == OPERAND_ARRAY) {
    box.source_type = MEMORY_ARRAY;
    box.source_array = from->array.array;
    box.source_x = from->array.x * cell;
    box.source_y = from->array.y;
    box.source_z = from->array.z;
  } else {
    box.source_type = MEMORY_UNIFIED;
    box.source_device = from->memory.address;
    box.source_pitch = (from->memory.row == 0 ? op->width : from->memory.row) * cell;
    box.source_height = from->memory.layer == 0 ? op->height : from->memory.layer;
  }
  if (to->type == OPERAND_ARRAY) {
    box.target_type = MEMORY_ARRAY;
    box.target_array = to->array.array;
    box.target_x = to->array.x * cell;
    box.target_y = to->array.y;
    box.target_z = to->array.z;
  } else {
    box.target_type = MEMORY_UNIFIED;
    box.target_device = to->memory.address;
    box.target_pitch = (to->memory.row == 0 ? op->width : to->memory.row) * cell;
    box.target_height = to->memory.layer == 0 ? op->height : to->memory.layer;
  }
  return box;
}

static bool is_operand(unsigned type) { return type == OPERAND_MEMORY || type == OPERAND_ARRAY; }

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP_v1 *copy, unsigned long long flags,
                                       CUstream stream) {
  if (copy == NULL || flags != 0 || !is_operand(copy->source.type) || !is_operand(copy->target.type))
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D_v2 box = box_of(copy);
  return cuMemcpy3DAsync_v2(&box, stream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP_v1 *copies, unsigned long long flags,
                                 CUstream stream) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == 0 || copies == NULL || stream == NULL || stream == CU_STREAM_LEGACY)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t index = 0; index < count && result == CUDA_SUCCESS; index++)
    result = cuMemcpy3DWithAttributesAsync(&copies[index], flags, stream);
  return result;
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP_v1 *copies, size_t *failed,
                              unsigned long long flags, CUstream stream) {
  if (failed != NULL) *failed = SIZE_MAX;
  return cuMemcpy3DBatchAsync_v2(count, copies, flags, stream);
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
