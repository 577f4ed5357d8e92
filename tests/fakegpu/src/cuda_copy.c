/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. Those to and from the host take no device time, since copy engines do them; those within
 * a card are kernels there, which take it where the inventory says so (copy_gib_s). Synchronous ones wait for
 * what their stream has before them. Bytes move at the call (kernels here compute nothing that a copy could
 * miss).
 */
#include "driver.h"

#include <string.h>

/* Host address of [address, address + bytes): inside one block, or plain host memory; NULL: a device address
 * that is not (or not all) allocated. Under driver_lock. */
void *memory_reach(CUdeviceptr address, uint64_t bytes, bool must_be_device) {
  struct block *block = address_find(address);
  if (block == NULL)
    return must_be_device ? NULL : (void *)(uintptr_t)address;  // NOLINT(performance-no-int-to-ptr)
  if (!address_open(block)) return NULL;
  if (block->kind == BLOCK_MAPPED &&
      address - block->base + bytes > block->bytes) { /* on into the next mapping */
    uint64_t first = block->bytes - (address - block->base);
    return memory_reach(address + first, bytes - first, true) == NULL
               ? NULL
               : (void *)(uintptr_t)address;  // NOLINT(performance-no-int-to-ptr)
  }
  if (address - block->base + bytes > block->bytes) return NULL;
  return (void *)(uintptr_t)address;  // NOLINT(performance-no-int-to-ptr)
}

bool memory_on_card(CUdeviceptr address, uint32_t card) {
  const struct block *block = address_find(address);
  return block != NULL && block->kind != BLOCK_HOST && block->kind != BLOCK_REGISTERED && block->card == card;
}

CUresult copy_run(CUcontext context, CUstream stream, uint64_t bytes) {
  uint64_t rate = member_state()->driver.copy_gib_s;
  if (rate == 0) return CUDA_SUCCESS;
  return kernel_run(context, stream, (uint64_t)((double)bytes / (double)(rate << 30) * 1e9));
}

static CUresult copy(CUdeviceptr target, bool target_is_device, CUdeviceptr source, bool source_is_device,
                     uint64_t bytes, CUstream handle, bool synchronous) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_SUCCESS;
  if (capture_any()) {
    bool captured = false;
    CUgraphNodeParams node = {.type = NODE_MEMCPY};
    enum { UNIFIED = 4 };
    node.copy.copy = (CUDA_MEMCPY3D_v2){.source_type = UNIFIED,
                                        .source_device = source,
                                        .target_type = UNIFIED,
                                        .target_device = target,
                                        .width = bytes,
                                        .height = 1,
                                        .depth = 1};
    result = capture_work(context, stream, &node, false, &captured);
    if (result != CUDA_SUCCESS || captured) return result;
  }
  driver_lock();
  void *to = target == 0 ? NULL : memory_reach(target, bytes, target_is_device);
  const void *from = source == 0 ? NULL : memory_reach(source, bytes, source_is_device);
  bool within = memory_on_card(target, context->card) && memory_on_card(source, context->card);
  driver_unlock();
  if (to == NULL || from == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (within) result = copy_run(context, stream, bytes);
  if (result != CUDA_SUCCESS) return result;
  if (synchronous) timeline_wait(context->card, stream_newest(context, stream));
  memmove(to, from, bytes);
  return CUDA_SUCCESS;
}

#define HOST(pointer) ((CUdeviceptr)(uintptr_t)(pointer)), false

CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return copy(target, false, source, false, bytes, NULL, true);
}
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy(target, false, source, false, bytes, stream, false);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t bytes) {
  return copy(target, true, HOST(source), bytes, NULL, true);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
  return copy(target, true, HOST(source), bytes, stream, false);
}
CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t bytes) {
  return copy(HOST(target), source, true, bytes, NULL, true);
}
CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy(HOST(target), source, true, bytes, stream, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return copy(target, true, source, true, bytes, NULL, false);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy(target, true, source, true, bytes, stream, false);
}

static CUresult fill(CUdeviceptr target, const void *value, size_t width, size_t count, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (count == 0) return CUDA_SUCCESS;
  if (target % width != 0 || count > SIZE_MAX / width) return CUDA_ERROR_INVALID_VALUE;
  bool captured = false;
  CUgraphNodeParams node = {.type = NODE_MEMSET};
  node.fill = (CUDA_MEMSET_NODE_PARAMS_v1){
      .target = target, .element_bytes = (unsigned)width, .width = count, .height = 1};
  memcpy(&node.fill.value, value, width);
  result = capture_work(context, stream, &node, false, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  driver_lock();
  unsigned char *to = target == 0 ? NULL : memory_reach(target, count * width, true);
  driver_unlock();
  if (to == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = copy_run(context, stream, count * width);
  if (result != CUDA_SUCCESS) return result;
  if (width == 1) {
    memset(to, *(const unsigned char *)value, count);
    return CUDA_SUCCESS;
  }
  for (size_t index = 0; index < count; index++) memcpy(to + index * width, value, width);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  return fill(target, &value, sizeof value, count, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count, CUstream stream) {
  return fill(target, &value, sizeof value, count, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
  return fill(target, &value, sizeof value, count, stream);
}
CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count) {
  return fill(target, &value, sizeof value, count, NULL);
}
CUresult cuMemsetD16_v2(CUdeviceptr target, unsigned short value, size_t count) {
  return fill(target, &value, sizeof value, count, NULL);
}
CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned value, size_t count) {
  return fill(target, &value, sizeof value, count, NULL);
}
