/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of CUDA 2, with addresses and sizes of 32 bits (cuda.h keeps them as _v1 types). What they do on
 * a 64-bit machine isn't documented; a guess: the same as today's, with memory from below 4 GiB, and figures
 * that don't fit are the largest that do.
 */
#include "driver.h"

#include <string.h>

static unsigned fitting(size_t number) { return number > UINT32_MAX ? UINT32_MAX : (unsigned)number; }

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
  size_t wide = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuDeviceTotalMem_v2(&wide, device);
  if (result == CUDA_SUCCESS) *bytes = fitting(wide);
  return result;
}

CUresult cuDeviceGetProperties(CUdevprop_v1 *properties, CUdevice device) {
  /* CU_DEVICE_ATTRIBUTE_* in the order of the struct. */
  static const CUdevice_attribute attributes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (properties == NULL) return CUDA_ERROR_INVALID_VALUE;
  int values[sizeof attributes / sizeof attributes[0]] = {0};
  static_assert(sizeof values == sizeof *properties, "one attribute for each figure");
  for (size_t index = 0; index < sizeof attributes / sizeof attributes[0]; index++) {
    CUresult result = cuDeviceGetAttribute(&values[index], attributes[index], device);
    if (result != CUDA_SUCCESS) return result;
  }
  memcpy(properties, values, sizeof *properties);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned *free, unsigned *total) {
  size_t wide_free = 0, wide_total = 0;
  CUresult result = cuMemGetInfo_v2(free == NULL ? NULL : &wide_free, total == NULL ? NULL : &wide_total);
  if (result != CUDA_SUCCESS) return result;
  if (free != NULL) *free = fitting(wide_free);
  if (total != NULL) *total = fitting(wide_total);
  return CUDA_SUCCESS;
}

/* An address that doesn't fit is none that the caller could use. */
static CUresult narrowed(CUresult result, CUdeviceptr wide, CUdeviceptr_v1 *address) {
  if (result != CUDA_SUCCESS || address == NULL) return result;
  if (wide > UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  *address = (CUdeviceptr_v1)wide;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned bytes) {
  CUdeviceptr wide = 0;
  CUresult result = memory_allocate_low(bytes, address == NULL ? NULL : &wide);
  return narrowed(result, wide, address);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width, unsigned height,
                         unsigned element_bytes) {
  if (pitch == NULL || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return CUDA_ERROR_INVALID_VALUE;
  uint64_t row = ((uint64_t)width + PITCH - 1) / PITCH * PITCH, bytes = row * height;
  if (row > UINT32_MAX || bytes > UINT32_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = cuMemAlloc(address, (unsigned)bytes);
  if (result == CUDA_SUCCESS) *pitch = (unsigned)row;
  return result;
}

CUresult cuMemFree(CUdeviceptr_v1 address) { return cuMemFree_v2(address); }
CUresult cuMemAllocHost(void **pointer, unsigned bytes) { return cuMemAllocHost_v2(pointer, bytes); }

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned *bytes, CUdeviceptr_v1 address) {
  CUdeviceptr wide_base = 0;
  size_t wide_bytes = 0;
  CUresult result = cuMemGetAddressRange_v2(&wide_base, &wide_bytes, address);
  if (result != CUDA_SUCCESS) return result;
  if (base != NULL) *base = (CUdeviceptr_v1)wide_base;
  if (bytes != NULL) *bytes = fitting(wide_bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *address, void *pointer, unsigned flags) {
  CUdeviceptr wide = 0;
  if (address == NULL) return CUDA_ERROR_INVALID_VALUE;
  return narrowed(cuMemHostGetDevicePointer_v2(&wide, pointer, flags), wide, address);
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned *bytes, CUmodule module, const char *name) {
  CUdeviceptr wide = 0;
  size_t wide_bytes = 0;
  CUresult result = narrowed(cuModuleGetGlobal_v2(&wide, &wide_bytes, module, name), wide, address);
  if (result == CUDA_SUCCESS && bytes != NULL) *bytes = fitting(wide_bytes);
  return result;
}

/* Copies and fills: the same parameters, only narrower. */
#define FORWARD(symbol, parameters, target, arguments) \
  CUresult symbol parameters { return target arguments; }
#define CELL unsigned bytes
FORWARD(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, CELL), cuMemcpyHtoD_v2, (to, from, bytes))
FORWARD(cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, CELL), cuMemcpyDtoH_v2, (to, from, bytes))
FORWARD(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, CELL), cuMemcpyDtoD_v2, (to, from, bytes))
FORWARD(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, CELL, CUstream stream), cuMemcpyHtoDAsync_v2,
        (to, from, bytes, stream))
FORWARD(cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, CELL, CUstream stream), cuMemcpyDtoHAsync_v2,
        (to, from, bytes, stream))
FORWARD(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, CELL, CUstream stream),
        cuMemcpyDtoDAsync_v2, (to, from, bytes, stream))
FORWARD(cuMemcpyDtoA, (CUarray to, unsigned offset, CUdeviceptr_v1 from, CELL), cuMemcpyDtoA_v2,
        (to, offset, from, bytes))
FORWARD(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned offset, CELL), cuMemcpyAtoD_v2,
        (to, from, offset, bytes))
FORWARD(cuMemcpyHtoA, (CUarray to, unsigned offset, const void *from, CELL), cuMemcpyHtoA_v2,
        (to, offset, from, bytes))
FORWARD(cuMemcpyAtoH, (void *to, CUarray from, unsigned offset, CELL), cuMemcpyAtoH_v2,
        (to, from, offset, bytes))
FORWARD(cuMemcpyAtoA, (CUarray to, unsigned at, CUarray from, unsigned offset, CELL), cuMemcpyAtoA_v2,
        (to, at, from, offset, bytes))
FORWARD(cuMemcpyHtoAAsync, (CUarray to, unsigned offset, const void *from, CELL, CUstream stream),
        cuMemcpyHtoAAsync_v2, (to, offset, from, bytes, stream))
FORWARD(cuMemcpyAtoHAsync, (void *to, CUarray from, unsigned offset, CELL, CUstream stream),
        cuMemcpyAtoHAsync_v2, (to, from, offset, bytes, stream))
FORWARD(cuMemsetD8, (CUdeviceptr_v1 to, unsigned char value, unsigned count), cuMemsetD8_v2,
        (to, value, count))
FORWARD(cuMemsetD16, (CUdeviceptr_v1 to, unsigned short value, unsigned count), cuMemsetD16_v2,
        (to, value, count))
FORWARD(cuMemsetD32, (CUdeviceptr_v1 to, unsigned value, unsigned count), cuMemsetD32_v2, (to, value, count))
FORWARD(cuMemsetD2D8, (CUdeviceptr_v1 to, unsigned pitch, unsigned char value, unsigned width, unsigned rows),
        cuMemsetD2D8_v2, (to, pitch, value, width, rows))
FORWARD(cuMemsetD2D16,
        (CUdeviceptr_v1 to, unsigned pitch, unsigned short value, unsigned width, unsigned rows),
        cuMemsetD2D16_v2, (to, pitch, value, width, rows))
FORWARD(cuMemsetD2D32, (CUdeviceptr_v1 to, unsigned pitch, unsigned value, unsigned width, unsigned rows),
        cuMemsetD2D32_v2, (to, pitch, value, width, rows))

static CUDA_MEMCPY2D_v2 flat(const CUDA_MEMCPY2D_v1 *c) {
  return (CUDA_MEMCPY2D_v2){c->source_x,     c->source_y,     c->source_type,   c->source_host,
                            c->source_device, c->source_array, c->source_pitch,  c->target_x,
                            c->target_y,     c->target_type,  c->target_host,   c->target_device,
                            c->target_array, c->target_pitch, c->width,         c->height};
}

static CUDA_MEMCPY3D_v2 box(const CUDA_MEMCPY3D_v1 *c) {
  return (CUDA_MEMCPY3D_v2){.source_x = c->source_x,
                            .source_y = c->source_y,
                            .source_z = c->source_z,
                            .source_level = c->source_level,
                            .source_type = c->source_type,
                            .source_host = c->source_host,
                            .source_device = c->source_device,
                            .source_array = c->source_array,
                            .source_pitch = c->source_pitch,
                            .source_height = c->source_height,
                            .target_x = c->target_x,
                            .target_y = c->target_y,
                            .target_z = c->target_z,
                            .target_level = c->target_level,
                            .target_type = c->target_type,
                            .target_host = c->target_host,
                            .target_device = c->target_device,
                            .target_array = c->target_array,
                            .target_pitch = c->target_pitch,
                            .target_height = c->target_height,
                            .width = c->width,
                            .height = c->height,
                            .depth = c->depth};
}

#define COPY(symbol, narrow, wide, widen, target)      \
  CUresult symbol(const narrow *copy) {                \
    if (copy == NULL) return CUDA_ERROR_INVALID_VALUE; \
    wide widened = widen(copy);                        \
    return target(&widened);                           \
  }
COPY(cuMemcpy2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY2D_v2, flat, cuMemcpy2D_v2)
COPY(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, CUDA_MEMCPY2D_v2, flat, cuMemcpy2DUnaligned_v2)
COPY(cuMemcpy3D, CUDA_MEMCPY3D_v1, CUDA_MEMCPY3D_v2, box, cuMemcpy3D_v2)

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *copy, CUstream stream) {
  if (copy == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY2D_v2 wide = flat(copy);
  return cuMemcpy2DAsync_v2(&wide, stream);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *copy, CUstream stream) {
  if (copy == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D_v2 wide = box(copy);
  return cuMemcpy3DAsync_v2(&wide, stream);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d) {
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR_v2 wide = {d->width, d->height, d->depth, d->format, d->channels, d->flags};
  return cuArray3DCreate_v2(array, &wide);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d) {
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  return cuArrayCreate_v2(array, &(CUDA_ARRAY_DESCRIPTOR_v2){d->width, d->height, d->format, d->channels});
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *d, CUarray array) {
  CUDA_ARRAY3D_DESCRIPTOR_v2 wide;
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuArray3DGetDescriptor_v2(&wide, array);
  if (result == CUDA_SUCCESS)
    *d = (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned)wide.width, (unsigned)wide.height, (unsigned)wide.depth,
                                      wide.format,          wide.channels,         wide.flags};
  return result;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *d, CUarray array) {
  CUDA_ARRAY_DESCRIPTOR_v2 wide;
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuArrayGetDescriptor_v2(&wide, array);
  if (result == CUDA_SUCCESS)
    *d = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)wide.width, (unsigned)wide.height, wide.format, wide.channels};
  return result;
}
