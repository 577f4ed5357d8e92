/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: multicast objects, sparse arrays, and parts of a card (green contexts).
 */
#ifndef FAKEGPU_CUDA_TABLE_PARTS_H
#define FAKEGPU_CUDA_TABLE_PARTS_H

/* clang-format off */
#define CUDA_PARTS(PLAIN, STREAM)                                                                            \
  PLAIN(cuMulticastCreate, 12010, cuMulticastCreate, (CUmemGenericAllocationHandle *number, const            \
      CUmulticastObjectProp_v1 *properties))                                                                 \
  PLAIN(cuMulticastAddDevice, 12010, cuMulticastAddDevice, (CUmemGenericAllocationHandle number, CUdevice    \
      device))                                                                                               \
  PLAIN(cuMulticastBindMem, 12010, cuMulticastBindMem, (CUmemGenericAllocationHandle number, size_t          \
      offset, CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes, unsigned long long    \
      flags))                                                                                                \
  PLAIN(cuMulticastBindMem, 13010, cuMulticastBindMem_v2, (CUmemGenericAllocationHandle number, CUdevice     \
      device, size_t offset, CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,        \
      unsigned long long flags))                                                                             \
  PLAIN(cuMulticastBindAddr, 12010, cuMulticastBindAddr, (CUmemGenericAllocationHandle number, size_t        \
      offset, CUdeviceptr address, size_t bytes, unsigned long long flags))                                  \
  PLAIN(cuMulticastBindAddr, 13010, cuMulticastBindAddr_v2, (CUmemGenericAllocationHandle number, CUdevice   \
      device, size_t offset, CUdeviceptr address, size_t bytes, unsigned long long flags))                   \
  PLAIN(cuMulticastUnbind, 12010, cuMulticastUnbind, (CUmemGenericAllocationHandle number, CUdevice          \
      device, size_t offset, size_t bytes))                                                                  \
  PLAIN(cuMulticastGetGranularity, 12010, cuMulticastGetGranularity, (size_t *granularity, const             \
      CUmulticastObjectProp_v1 *properties, unsigned option))                                                \
  PLAIN(cuArrayGetSparseProperties, 11010, cuArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES_v1      \
      *properties, CUarray array))                                                                           \
  PLAIN(cuMipmappedArrayGetSparseProperties, 11010, cuMipmappedArrayGetSparseProperties,                     \
      (CUDA_ARRAY_SPARSE_PROPERTIES_v1 *properties, CUmipmappedArray mipmap))                                \
  PLAIN(cuDeviceGetDevResource, 12040, cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource,    \
      unsigned type))                                                                                        \
  PLAIN(cuCtxGetDevResource, 12040, cuCtxGetDevResource, (CUcontext context, CUdevResource *resource,        \
      unsigned type))                                                                                        \
  PLAIN(cuGreenCtxGetDevResource, 12040, cuGreenCtxGetDevResource, (CUgreenCtx green, CUdevResource          \
      *resource, unsigned type))                                                                             \
  PLAIN(cuDevSmResourceSplitByCount, 12040, cuDevSmResourceSplitByCount, (CUdevResource *groups, unsigned    \
      *count, const CUdevResource *input, CUdevResource *remaining, unsigned flags, unsigned smallest))      \
  PLAIN(cuDevSmResourceSplit, 13010, cuDevSmResourceSplit, (CUdevResource *groups, unsigned count, const     \
      CUdevResource *input, CUdevResource *remaining, unsigned flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS        \
      *wishes))                                                                                              \
  PLAIN(cuDevResourceGenerateDesc, 12040, cuDevResourceGenerateDesc, (CUdevResourceDesc *description,        \
      CUdevResource *resources, unsigned count))                                                             \
  PLAIN(cuGreenCtxCreate, 12040, cuGreenCtxCreate, (CUgreenCtx *green, CUdevResourceDesc description,        \
      CUdevice device, unsigned flags))                                                                      \
  PLAIN(cuGreenCtxDestroy, 12040, cuGreenCtxDestroy, (CUgreenCtx green))                                     \
  PLAIN(cuCtxFromGreenCtx, 12040, cuCtxFromGreenCtx, (CUcontext *context, CUgreenCtx green))                 \
  PLAIN(cuGreenCtxGetId, 12090, cuGreenCtxGetId, (CUgreenCtx green, unsigned long long *id))                 \
  PLAIN(cuGreenCtxRecordEvent, 12040, cuGreenCtxRecordEvent, (CUgreenCtx green, CUevent event))              \
  PLAIN(cuGreenCtxWaitEvent, 12040, cuGreenCtxWaitEvent, (CUgreenCtx green, CUevent event))                  \
  PLAIN(cuGreenCtxStreamCreate, 12050, cuGreenCtxStreamCreate, (CUstream *stream, CUgreenCtx green,          \
      unsigned flags, int priority))                                                                         \
  PLAIN(cuCtxRecordEvent, 12050, cuCtxRecordEvent, (CUcontext context, CUevent event))                       \
  PLAIN(cuCtxWaitEvent, 12050, cuCtxWaitEvent, (CUcontext context, CUevent event))                           \
  PLAIN(cuStreamGetGreenCtx, 12040, cuStreamGetGreenCtx, (CUstream stream, CUgreenCtx *green))               \
  STREAM(cuMemMapArrayAsync, 11010, cuMemMapArrayAsync, 11010, _ptsz, (CUarrayMapInfo_v1 *maps, unsigned     \
      count, CUstream handle), (maps, count, handle))                                                        \
  STREAM(cuStreamGetDevResource, 13010, cuStreamGetDevResource, 13010, _ptsz, (CUstream handle,              \
      CUdevResource *resource, unsigned type), (handle, resource, type))
/* clang-format on */

#endif
