/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: arrays, and copies of more than one dimension.
 */
#ifndef FAKEGPU_CUDA_TABLE_ARRAYS_H
#define FAKEGPU_CUDA_TABLE_ARRAYS_H

/* clang-format off */
#define CUDA_ARRAYS(PLAIN, STREAM)                                                                           \
  PLAIN(cuArrayCreate, 3020, cuArrayCreate_v2, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v2               \
      *descriptor))                                                                                          \
  PLAIN(cuArrayGetDescriptor, 3020, cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR_v2 *descriptor,          \
      CUarray array))                                                                                        \
  PLAIN(cuArrayGetMemoryRequirements, 11060, cuArrayGetMemoryRequirements,                                   \
      (CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 *needed, CUarray array, CUdevice device))                           \
  PLAIN(cuArrayDestroy, 2000, cuArrayDestroy, (CUarray array))                                               \
  PLAIN(cuArray3DCreate, 3020, cuArray3DCreate_v2, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v2         \
      *descriptor))                                                                                          \
  PLAIN(cuArray3DGetDescriptor, 3020, cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR_v2                 \
      *descriptor, CUarray array))                                                                           \
  PLAIN(cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate, (CUmipmappedArray *mipmap, const               \
      CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor, unsigned levels))                                              \
  PLAIN(cuMipmappedArrayGetLevel, 5000, cuMipmappedArrayGetLevel, (CUarray *array, CUmipmappedArray          \
      mipmap, unsigned level))                                                                               \
  PLAIN(cuMipmappedArrayGetMemoryRequirements, 11060, cuMipmappedArrayGetMemoryRequirements,                 \
      (CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 *needed, CUmipmappedArray mipmap, CUdevice device))                 \
  PLAIN(cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy, (CUmipmappedArray mipmap))                   \
  STREAM(cuMemcpy2D, 3020, cuMemcpy2D_v2, 7000, _ptds, (const CUDA_MEMCPY2D_v2 *copy), (copy))               \
  STREAM(cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2, 7000, _ptds, (const CUDA_MEMCPY2D_v2             \
         *copy), (copy))                                                                                     \
  STREAM(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, 7000, _ptsz, (const CUDA_MEMCPY2D_v2 *copy,              \
         CUstream stream), (copy, stream))                                                                   \
  STREAM(cuMemcpy3D, 3020, cuMemcpy3D_v2, 7000, _ptds, (const CUDA_MEMCPY3D_v2 *copy), (copy))               \
  STREAM(cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2, 7000, _ptsz, (const CUDA_MEMCPY3D_v2 *copy,              \
         CUstream stream), (copy, stream))                                                                   \
  STREAM(cuMemcpy3DPeer, 4000, cuMemcpy3DPeer, 7000, _ptds, (const CUDA_MEMCPY3D_v2 *copy), (copy))          \
  STREAM(cuMemcpy3DPeerAsync, 4000, cuMemcpy3DPeerAsync, 7000, _ptsz, (const CUDA_MEMCPY3D_v2 *copy,         \
         CUstream stream), (copy, stream))                                                                   \
  STREAM(cuMemcpyPeer, 4000, cuMemcpyPeer, 7000, _ptds, (CUdeviceptr target, CUcontext target_context,       \
         CUdeviceptr source, CUcontext source_context, size_t bytes), (target, target_context, source,       \
         source_context, bytes))                                                                             \
  STREAM(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync, 7000, _ptsz, (CUdeviceptr target, CUcontext             \
         target_context, CUdeviceptr source, CUcontext source_context, size_t bytes, CUstream stream),       \
         (target, target_context, source, source_context, bytes, stream))                                    \
  STREAM(cuMemcpyDtoA, 3020, cuMemcpyDtoA_v2, 7000, _ptds, (CUarray target, size_t offset, CUdeviceptr       \
         source, size_t bytes), (target, offset, source, bytes))                                             \
  STREAM(cuMemcpyAtoD, 3020, cuMemcpyAtoD_v2, 7000, _ptds, (CUdeviceptr target, CUarray source,              \
         size_t offset, size_t bytes), (target, source, offset, bytes))                                      \
  STREAM(cuMemcpyHtoA, 3020, cuMemcpyHtoA_v2, 7000, _ptds, (CUarray target, size_t offset, const void        \
         *source, size_t bytes), (target, offset, source, bytes))                                            \
  STREAM(cuMemcpyAtoH, 3020, cuMemcpyAtoH_v2, 7000, _ptds, (void *target, CUarray source, size_t             \
         offset, size_t bytes), (target, source, offset, bytes))                                             \
  STREAM(cuMemcpyAtoA, 3020, cuMemcpyAtoA_v2, 7000, _ptds, (CUarray target, size_t target_offset,            \
         CUarray source, size_t source_offset, size_t bytes), (target, target_offset, source,                \
         source_offset, bytes))                                                                              \
  STREAM(cuMemcpyHtoAAsync, 3020, cuMemcpyHtoAAsync_v2, 7000, _ptsz, (CUarray target, size_t offset,         \
         const void *source, size_t bytes, CUstream stream), (target, offset, source, bytes, stream))        \
  STREAM(cuMemcpyAtoHAsync, 3020, cuMemcpyAtoHAsync_v2, 7000, _ptsz, (void *target, CUarray source,          \
         size_t offset, size_t bytes, CUstream stream), (target, source, offset, bytes, stream))             \
  STREAM(cuMemsetD2D8, 3020, cuMemsetD2D8_v2, 7000, _ptds, (CUdeviceptr target, size_t pitch, unsigned       \
         char value, size_t width, size_t height), (target, pitch, value, width, height))                    \
  STREAM(cuMemsetD2D16, 3020, cuMemsetD2D16_v2, 7000, _ptds, (CUdeviceptr target, size_t pitch,              \
         unsigned short value, size_t width, size_t height), (target, pitch, value, width, height))          \
  STREAM(cuMemsetD2D32, 3020, cuMemsetD2D32_v2, 7000, _ptds, (CUdeviceptr target, size_t pitch,              \
         unsigned value, size_t width, size_t height), (target, pitch, value, width, height))                \
  STREAM(cuMemsetD2D8Async, 3020, cuMemsetD2D8Async, 7000, _ptsz, (CUdeviceptr target, size_t pitch,         \
         unsigned char value, size_t width, size_t height, CUstream stream), (target, pitch, value, width,   \
         height, stream))                                                                                    \
  STREAM(cuMemsetD2D16Async, 3020, cuMemsetD2D16Async, 7000, _ptsz, (CUdeviceptr target, size_t pitch,       \
         unsigned short value, size_t width, size_t height, CUstream stream), (target, pitch, value,         \
         width, height, stream))                                                                             \
  STREAM(cuMemsetD2D32Async, 3020, cuMemsetD2D32Async, 7000, _ptsz, (CUdeviceptr target, size_t pitch,       \
         unsigned value, size_t width, size_t height, CUstream stream), (target, pitch, value, width,        \
         height, stream))
/* clang-format on */

#endif
