/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: what names meant before CUDA 3.2, with 32-bit addresses and sizes.
 */
#ifndef FAKEGPU_CUDA_TABLE_FIRST_H
#define FAKEGPU_CUDA_TABLE_FIRST_H

/* clang-format off */
#define CUDA_FIRST(PLAIN, STREAM)                                                                            \
  PLAIN(cuDeviceTotalMem, 2000, cuDeviceTotalMem, (unsigned *bytes, CUdevice device))                        \
  PLAIN(cuModuleGetGlobal, 2000, cuModuleGetGlobal, (CUdeviceptr_v1 *address, unsigned *bytes, CUmodule      \
      module, const char *name))                                                                             \
  PLAIN(cuMemGetInfo, 2000, cuMemGetInfo, (unsigned *free, unsigned *total))                                 \
  PLAIN(cuMemAlloc, 2000, cuMemAlloc, (CUdeviceptr_v1 *address, unsigned bytes))                             \
  PLAIN(cuMemAllocPitch, 2000, cuMemAllocPitch, (CUdeviceptr_v1 *address, unsigned *pitch, unsigned width,   \
      unsigned height, unsigned element_bytes))                                                              \
  PLAIN(cuMemFree, 2000, cuMemFree, (CUdeviceptr_v1 address))                                                \
  PLAIN(cuMemGetAddressRange, 2000, cuMemGetAddressRange, (CUdeviceptr_v1 *base, unsigned *bytes,            \
      CUdeviceptr_v1 address))                                                                               \
  PLAIN(cuMemAllocHost, 2000, cuMemAllocHost, (void **pointer, unsigned bytes))                              \
  PLAIN(cuMemHostGetDevicePointer, 2020, cuMemHostGetDevicePointer, (CUdeviceptr_v1 *address, void           \
      *pointer, unsigned flags))                                                                             \
  PLAIN(cuMemcpyHtoD, 2000, cuMemcpyHtoD, (CUdeviceptr_v1 target, const void *source, unsigned bytes))       \
  PLAIN(cuMemcpyDtoH, 2000, cuMemcpyDtoH, (void *target, CUdeviceptr_v1 source, unsigned bytes))             \
  PLAIN(cuMemcpyDtoD, 2000, cuMemcpyDtoD, (CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned bytes))    \
  PLAIN(cuMemcpyDtoA, 2000, cuMemcpyDtoA, (CUarray target, unsigned offset, CUdeviceptr_v1 source,           \
      unsigned bytes))                                                                                       \
  PLAIN(cuMemcpyAtoD, 2000, cuMemcpyAtoD, (CUdeviceptr_v1 target, CUarray source, unsigned offset,           \
      unsigned bytes))                                                                                       \
  PLAIN(cuMemcpyHtoA, 2000, cuMemcpyHtoA, (CUarray target, unsigned offset, const void *source, unsigned     \
      bytes))                                                                                                \
  PLAIN(cuMemcpyAtoH, 2000, cuMemcpyAtoH, (void *target, CUarray source, unsigned offset, unsigned bytes))   \
  PLAIN(cuMemcpyAtoA, 2000, cuMemcpyAtoA, (CUarray target, unsigned target_offset, CUarray source,           \
      unsigned source_offset, unsigned bytes))                                                               \
  PLAIN(cuMemcpyHtoAAsync, 2000, cuMemcpyHtoAAsync, (CUarray target, unsigned offset, const void *source,    \
      unsigned bytes, CUstream stream))                                                                      \
  PLAIN(cuMemcpyAtoHAsync, 2000, cuMemcpyAtoHAsync, (void *target, CUarray source, unsigned offset,          \
      unsigned bytes, CUstream stream))                                                                      \
  PLAIN(cuMemcpy2D, 2000, cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *copy))                                        \
  PLAIN(cuMemcpy2DUnaligned, 2000, cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *copy))                      \
  PLAIN(cuMemcpy2DAsync, 2000, cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream))             \
  PLAIN(cuMemcpy3D, 2000, cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *copy))                                        \
  PLAIN(cuMemcpy3DAsync, 2000, cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream))             \
  PLAIN(cuMemcpyHtoDAsync, 2000, cuMemcpyHtoDAsync, (CUdeviceptr_v1 target, const void *source, unsigned     \
      bytes, CUstream stream))                                                                               \
  PLAIN(cuMemcpyDtoHAsync, 2000, cuMemcpyDtoHAsync, (void *target, CUdeviceptr_v1 source, unsigned bytes,    \
      CUstream stream))                                                                                      \
  PLAIN(cuMemcpyDtoDAsync, 3000, cuMemcpyDtoDAsync, (CUdeviceptr_v1 target, CUdeviceptr_v1 source,           \
      unsigned bytes, CUstream stream))                                                                      \
  PLAIN(cuMemsetD8, 2000, cuMemsetD8, (CUdeviceptr_v1 target, unsigned char value, unsigned count))          \
  PLAIN(cuMemsetD16, 2000, cuMemsetD16, (CUdeviceptr_v1 target, unsigned short value, unsigned count))       \
  PLAIN(cuMemsetD32, 2000, cuMemsetD32, (CUdeviceptr_v1 target, unsigned value, unsigned count))             \
  PLAIN(cuMemsetD2D8, 2000, cuMemsetD2D8, (CUdeviceptr_v1 target, unsigned pitch, unsigned char value,       \
      unsigned width, unsigned height))                                                                      \
  PLAIN(cuMemsetD2D16, 2000, cuMemsetD2D16, (CUdeviceptr_v1 target, unsigned pitch, unsigned short value,    \
      unsigned width, unsigned height))                                                                      \
  PLAIN(cuMemsetD2D32, 2000, cuMemsetD2D32, (CUdeviceptr_v1 target, unsigned pitch, unsigned value,          \
      unsigned width, unsigned height))                                                                      \
  PLAIN(cuArrayCreate, 2000, cuArrayCreate, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor))    \
  PLAIN(cuArrayGetDescriptor, 2000, cuArrayGetDescriptor, (CUDA_ARRAY_DESCRIPTOR_v1 *descriptor, CUarray     \
      array))                                                                                                \
  PLAIN(cuArray3DCreate, 2000, cuArray3DCreate, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1            \
      *descriptor))                                                                                          \
  PLAIN(cuArray3DGetDescriptor, 2000, cuArray3DGetDescriptor, (CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor,       \
      CUarray array))                                                                                        \
  PLAIN(cuDeviceGetProperties, 2000, cuDeviceGetProperties, (CUdevprop_v1 *properties, CUdevice device))
/* clang-format on */

#endif
