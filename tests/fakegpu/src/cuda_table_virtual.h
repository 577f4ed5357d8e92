/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: virtual memory management.
 */
#ifndef FAKEGPU_CUDA_TABLE_VIRTUAL_H
#define FAKEGPU_CUDA_TABLE_VIRTUAL_H

/* clang-format off */
#define CUDA_VIRTUAL(PLAIN, STREAM)                                                                          \
  PLAIN(cuMemCreate, 10020, cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes,                \
      const CUmemAllocationProp_v1 *properties, uint64_t flags))                                             \
  PLAIN(cuMemRelease, 10020, cuMemRelease, (CUmemGenericAllocationHandle handle))                            \
  PLAIN(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity, (size_t *granularity,           \
      const CUmemAllocationProp_v1 *properties, CUmemAllocationGranularity_flags option))                    \
  PLAIN(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle,               \
      (CUmemAllocationProp_v1 *properties, CUmemGenericAllocationHandle handle))                             \
  PLAIN(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle, (void *shareable,                 \
      CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, uint64_t flags))                  \
  PLAIN(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle,                               \
      (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type))               \
  PLAIN(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle,                                     \
      (CUmemGenericAllocationHandle *handle, void *address))                                                 \
  PLAIN(cuMemAddressReserve, 10020, cuMemAddressReserve, (CUdeviceptr *address, size_t bytes,                \
      size_t alignment, CUdeviceptr wish, uint64_t flags))                                                   \
  PLAIN(cuMemAddressFree, 10020, cuMemAddressFree, (CUdeviceptr address, size_t bytes))                      \
  PLAIN(cuMemMap, 10020, cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset,                        \
      CUmemGenericAllocationHandle handle, uint64_t flags))                                                  \
  PLAIN(cuMemUnmap, 10020, cuMemUnmap, (CUdeviceptr address, size_t bytes))                                  \
  PLAIN(cuMemSetAccess, 10020, cuMemSetAccess, (CUdeviceptr address, size_t bytes,                           \
      const CUmemAccessDesc_v1 *descriptions, size_t count))                                                 \
  PLAIN(cuMemGetAccess, 10020, cuMemGetAccess, (unsigned long long *flags,                                   \
      const CUmemLocation_v1 *location, CUdeviceptr address))
/* clang-format on */

#endif
