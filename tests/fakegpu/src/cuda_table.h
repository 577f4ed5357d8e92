/* SPDX-License-Identifier: Apache-2.0
 *
 * Every CUDA driver function that is there, once. Exports, prototypes, per-thread spellings and the answers
 * of cuGetProcAddress are all made from these rows; a function is added by a row here and a body somewhere.
 *
 *   PLAIN(name, version, symbol, (parameters))
 *   STREAM(name, version, symbol, version of the per-thread spelling, its suffix, (parameters), (arguments))
 *
 * `name` is what cuGetProcAddress is asked for, `version` the CUDA version from which that name means
 * `symbol`. Facts from the public headers of CUDA 2.0 to 13.0. The 32-bit spellings of CUDA 2 are left out.
 */
#ifndef FAKEGPU_CUDA_TABLE_H
#define FAKEGPU_CUDA_TABLE_H

#include "cuda_table_arrays.h"
#include "cuda_table_first.h"
#include "cuda_table_further.h"
#include "cuda_table_graphs.h"
#include "cuda_table_more.h"
#include "cuda_table_parts.h"
#include "cuda_table_rest.h"
#include "cuda_table_sharing.h"
#include "cuda_table_steps.h"
#include "cuda_table_textures.h"
#include "cuda_table_virtual.h"

/* clang-format off */
#define CUDA_FUNCTIONS(PLAIN, STREAM)                                                                        \
  CUDA_BASIC(PLAIN, STREAM)                                                                                  \
  CUDA_VIRTUAL(PLAIN, STREAM)                                                                                \
  CUDA_ARRAYS(PLAIN, STREAM)                                                                                 \
  CUDA_GRAPHS(PLAIN, STREAM)                                                                                 \
  CUDA_SHARING(PLAIN, STREAM)                                                                                \
  CUDA_FIRST(PLAIN, STREAM)                                                                                  \
  CUDA_PARTS(PLAIN, STREAM)                                                                                  \
  CUDA_STEPS(PLAIN, STREAM)                                                                                  \
  CUDA_TEXTURES(PLAIN, STREAM)                                                                               \
  CUDA_FURTHER(PLAIN, STREAM)                                                                                \
  CUDA_MORE(PLAIN, STREAM)

#define CUDA_BASIC(PLAIN, STREAM)                                                                            \
  /* start and look-up */                                                                                    \
  PLAIN(cuInit, 2000, cuInit, (unsigned flags))                                                              \
  PLAIN(cuDriverGetVersion, 2020, cuDriverGetVersion, (int *version))                                        \
  PLAIN(cuGetProcAddress, 11030, cuGetProcAddress, (const char *symbol, void **function, int version,        \
      uint64_t flags))                                                                                       \
  PLAIN(cuGetProcAddress, 12000, cuGetProcAddress_v2, (const char *symbol, void **function, int version,     \
      uint64_t flags, CUdriverProcAddressQueryResult *status))                                               \
  PLAIN(cuGetExportTable, 3000, cuGetExportTable, (const void **table, const CUuuid *id))                    \
  PLAIN(cuGetErrorName, 6000, cuGetErrorName, (CUresult error, const char **text))                           \
  PLAIN(cuGetErrorString, 6000, cuGetErrorString, (CUresult error, const char **text))                       \
  /* devices */                                                                                              \
  PLAIN(cuDeviceGet, 2000, cuDeviceGet, (CUdevice *device, int ordinal))                                     \
  PLAIN(cuDeviceGetCount, 2000, cuDeviceGetCount, (int *count))                                              \
  PLAIN(cuDeviceGetName, 2000, cuDeviceGetName, (char *name, int length, CUdevice device))                   \
  PLAIN(cuDeviceGetUuid, 9020, cuDeviceGetUuid, (CUuuid *uuid, CUdevice device))                             \
  PLAIN(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device))                         \
  PLAIN(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                       \
  PLAIN(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute,         \
      CUdevice device))                                                                                      \
  PLAIN(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability, (int *major, int *minor, CUdevice        \
      device))                                                                                               \
  PLAIN(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId, (CUdevice *device, const char *text))            \
  PLAIN(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId, (char *text, int length, CUdevice device))           \
  PLAIN(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer))      \
  PLAIN(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice           \
      device))                                                                                               \
  PLAIN(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice device))                \
  PLAIN(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool))                 \
  /* contexts */                                                                                             \
  PLAIN(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))     \
  PLAIN(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease, (CUdevice device))                       \
  PLAIN(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                   \
  PLAIN(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset, (CUdevice device))                           \
  PLAIN(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, (CUdevice device))                       \
  PLAIN(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags,     \
      int *active))                                                                                          \
  PLAIN(cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags))     \
  PLAIN(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned         \
      flags))                                                                                                \
  PLAIN(cuCtxCreate, 2000, cuCtxCreate, (CUcontext *context, unsigned flags, CUdevice device))               \
  PLAIN(cuCtxCreate, 3020, cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device))            \
  PLAIN(cuCtxCreate, 11040, cuCtxCreate_v3, (CUcontext *context, CUexecAffinityParam *affinities, int        \
      affinity_count, unsigned flags, CUdevice device))                                                      \
  PLAIN(cuCtxCreate, 12050, cuCtxCreate_v4, (CUcontext *context, CUctxCreateParams *parameters, unsigned     \
      flags, CUdevice device))                                                                               \
  PLAIN(cuCtxDestroy, 2000, cuCtxDestroy, (CUcontext context))                                               \
  PLAIN(cuCtxDestroy, 4000, cuCtxDestroy_v2, (CUcontext context))                                            \
  PLAIN(cuCtxPushCurrent, 2000, cuCtxPushCurrent, (CUcontext context))                                       \
  PLAIN(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (CUcontext context))                                    \
  PLAIN(cuCtxPopCurrent, 2000, cuCtxPopCurrent, (CUcontext *context))                                        \
  PLAIN(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (CUcontext *context))                                     \
  PLAIN(cuCtxSetCurrent, 4000, cuCtxSetCurrent, (CUcontext context))                                         \
  PLAIN(cuCtxGetCurrent, 4000, cuCtxGetCurrent, (CUcontext *context))                                        \
  PLAIN(cuCtxGetDevice, 2000, cuCtxGetDevice, (CUdevice *device))                                            \
  PLAIN(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, (CUdevice *device, CUcontext context))                     \
  PLAIN(cuCtxGetFlags, 7000, cuCtxGetFlags, (unsigned *flags))                                               \
  PLAIN(cuCtxSetFlags, 12010, cuCtxSetFlags, (unsigned flags))                                               \
  PLAIN(cuCtxGetId, 12000, cuCtxGetId, (CUcontext context, unsigned long long *id))                          \
  PLAIN(cuCtxSynchronize, 2000, cuCtxSynchronize, (void))                                                    \
  PLAIN(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, (CUcontext context))                                   \
  PLAIN(cuCtxGetLimit, 3010, cuCtxGetLimit, (size_t *value, CUlimit limit))                                  \
  PLAIN(cuCtxSetLimit, 3010, cuCtxSetLimit, (CUlimit limit, size_t value))                                   \
  PLAIN(cuCtxGetCacheConfig, 3020, cuCtxGetCacheConfig, (CUfunc_cache *config))                              \
  PLAIN(cuCtxSetCacheConfig, 3020, cuCtxSetCacheConfig, (CUfunc_cache config))                               \
  PLAIN(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, (int *least, int *greatest))         \
  PLAIN(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion, (CUcontext context, unsigned *version))                \
  PLAIN(cuCtxAttach, 2000, cuCtxAttach, (CUcontext *context, unsigned flags))                                \
  PLAIN(cuCtxDetach, 2000, cuCtxDetach, (CUcontext context))                                                 \
  PLAIN(cuCtxResetPersistingL2Cache, 11000, cuCtxResetPersistingL2Cache, (void))                             \
  /* memory */                                                                                               \
  PLAIN(cuMemAlloc, 3020, cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes))                               \
  PLAIN(cuMemAllocPitch, 3020, cuMemAllocPitch_v2, (CUdeviceptr *address, size_t *pitch, size_t width,       \
      size_t height, unsigned element_bytes))                                                                \
  PLAIN(cuMemAllocManaged, 6000, cuMemAllocManaged, (CUdeviceptr *address, size_t bytes, unsigned flags))    \
  PLAIN(cuMemFree, 3020, cuMemFree_v2, (CUdeviceptr address))                                                \
  PLAIN(cuMemGetInfo, 3020, cuMemGetInfo_v2, (size_t *free, size_t *total))                                  \
  PLAIN(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *bytes,              \
      CUdeviceptr address))                                                                                  \
  PLAIN(cuMemAllocHost, 3020, cuMemAllocHost_v2, (void **pointer, size_t bytes))                             \
  PLAIN(cuMemHostAlloc, 2020, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags))                \
  PLAIN(cuMemFreeHost, 2000, cuMemFreeHost, (void *pointer))                                                 \
  PLAIN(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void           \
      *pointer, unsigned flags))                                                                             \
  PLAIN(cuMemHostGetFlags, 2030, cuMemHostGetFlags, (unsigned *flags, void *pointer))                        \
  PLAIN(cuPointerGetAttribute, 4000, cuPointerGetAttribute, (void *data, CUpointer_attribute attribute,      \
      CUdeviceptr address))                                                                                  \
  PLAIN(cuPointerGetAttributes, 7000, cuPointerGetAttributes, (unsigned count, CUpointer_attribute           \
      *attributes, void **data, CUdeviceptr address))                                                        \
  PLAIN(cuMemAdvise, 8000, cuMemAdvise, (CUdeviceptr address, size_t count, CUmem_advise advice,             \
      CUdevice device))                                                                                      \
  PLAIN(cuMemAdvise, 12020, cuMemAdvise_v2, (CUdeviceptr address, size_t count, CUmem_advise advice,         \
      CUmemLocation_v1 location))                                                                            \
  STREAM(cuMemPrefetchAsync, 8000, cuMemPrefetchAsync, 8000, _ptsz, (CUdeviceptr address, size_t count,      \
         CUdevice target, CUstream stream), (address, count, target, stream))                                \
  STREAM(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2, 12020, _ptsz, (CUdeviceptr address, size_t        \
         count, CUmemLocation_v1 location, unsigned flags, CUstream stream), (address, count, location,      \
         flags, stream))                                                                                     \
  /* copies */                                                                                               \
  STREAM(cuMemcpy, 4000, cuMemcpy, 7000, _ptds, (CUdeviceptr target, CUdeviceptr source, size_t bytes),      \
         (target, source, bytes))                                                                            \
  STREAM(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, 7000, _ptds, (CUdeviceptr target, const void *source,          \
         size_t bytes), (target, source, bytes))                                                             \
  STREAM(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, 7000, _ptds, (void *target, CUdeviceptr source, size_t         \
         bytes), (target, source, bytes))                                                                    \
  STREAM(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, 7000, _ptds, (CUdeviceptr target, CUdeviceptr source,          \
         size_t bytes), (target, source, bytes))                                                             \
  STREAM(cuMemcpyAsync, 4000, cuMemcpyAsync, 7000, _ptsz, (CUdeviceptr target, CUdeviceptr source,           \
         size_t bytes, CUstream stream), (target, source, bytes, stream))                                    \
  STREAM(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, 7000, _ptsz, (CUdeviceptr target, const void         \
         *source, size_t bytes, CUstream stream), (target, source, bytes, stream))                           \
  STREAM(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, 7000, _ptsz, (void *target, CUdeviceptr source,      \
         size_t bytes, CUstream stream), (target, source, bytes, stream))                                    \
  STREAM(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, 7000, _ptsz, (CUdeviceptr target, CUdeviceptr        \
         source, size_t bytes, CUstream stream), (target, source, bytes, stream))                            \
  STREAM(cuMemsetD8, 3020, cuMemsetD8_v2, 7000, _ptds, (CUdeviceptr target, unsigned char value, size_t      \
         count), (target, value, count))                                                                     \
  STREAM(cuMemsetD16, 3020, cuMemsetD16_v2, 7000, _ptds, (CUdeviceptr target, unsigned short value,          \
         size_t count), (target, value, count))                                                              \
  STREAM(cuMemsetD32, 3020, cuMemsetD32_v2, 7000, _ptds, (CUdeviceptr target, unsigned value, size_t         \
         count), (target, value, count))                                                                     \
  STREAM(cuMemsetD8Async, 3020, cuMemsetD8Async, 7000, _ptsz, (CUdeviceptr target, unsigned char value,      \
         size_t count, CUstream stream), (target, value, count, stream))                                     \
  STREAM(cuMemsetD16Async, 3020, cuMemsetD16Async, 7000, _ptsz, (CUdeviceptr target, unsigned short          \
         value, size_t count, CUstream stream), (target, value, count, stream))                              \
  STREAM(cuMemsetD32Async, 3020, cuMemsetD32Async, 7000, _ptsz, (CUdeviceptr target, unsigned value,         \
         size_t count, CUstream stream), (target, value, count, stream))                                     \
  /* stream-ordered memory */                                                                                \
  STREAM(cuMemAllocAsync, 11020, cuMemAllocAsync, 11020, _ptsz, (CUdeviceptr *address, size_t bytes,         \
         CUstream stream), (address, bytes, stream))                                                         \
  STREAM(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, 11020, _ptsz, (CUdeviceptr *address,       \
         size_t bytes, CUmemoryPool pool, CUstream stream), (address, bytes, pool, stream))                  \
  STREAM(cuMemFreeAsync, 11020, cuMemFreeAsync, 11020, _ptsz, (CUdeviceptr address, CUstream stream),        \
         (address, stream))                                                                                  \
  PLAIN(cuMemPoolCreate, 11020, cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps_v1                \
      *properties))                                                                                          \
  PLAIN(cuMemPoolDestroy, 11020, cuMemPoolDestroy, (CUmemoryPool pool))                                      \
  PLAIN(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep_bytes))                     \
  PLAIN(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute         \
      attribute, void *value))                                                                               \
  PLAIN(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute         \
      attribute, void *value))                                                                               \
  PLAIN(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc_v1          \
      *map, size_t count))                                                                                   \
  PLAIN(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess, (CUmemAccess_flags *flags, CUmemoryPool pool,         \
      CUmemLocation_v1 *location))                                                                           \
  /* modules and libraries */                                                                                \
  PLAIN(cuModuleLoad, 2000, cuModuleLoad, (CUmodule *module, const char *path))                              \
  PLAIN(cuModuleLoadData, 2000, cuModuleLoadData, (CUmodule *module, const void *image))                     \
  PLAIN(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned         \
      option_count, CUjit_option *options, void **option_values))                                            \
  PLAIN(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary, (CUmodule *module, const void *image))           \
  PLAIN(cuModuleUnload, 2000, cuModuleUnload, (CUmodule module))                                             \
  PLAIN(cuModuleGetFunction, 2000, cuModuleGetFunction, (CUfunction *function, CUmodule module, const        \
      char *name))                                                                                           \
  PLAIN(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2, (CUdeviceptr *address, size_t *bytes, CUmodule        \
      module, const char *name))                                                                             \
  PLAIN(cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode, (CUmoduleLoadingMode *mode))                  \
  PLAIN(cuLibraryLoadData, 12000, cuLibraryLoadData, (CUlibrary *library, const void *code, CUjit_option     \
      *jit_options, void **jit_values, unsigned jit_count, CUlibraryOption *options, void                    \
      **option_values, unsigned option_count))                                                               \
  PLAIN(cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile, (CUlibrary *library, const char *path,          \
      CUjit_option *jit_options, void **jit_values, unsigned jit_count, CUlibraryOption *options, void       \
      **option_values, unsigned option_count))                                                               \
  PLAIN(cuLibraryUnload, 12000, cuLibraryUnload, (CUlibrary library))                                        \
  PLAIN(cuLibraryGetKernel, 12000, cuLibraryGetKernel, (CUkernel *kernel, CUlibrary library, const char      \
      *name))                                                                                                \
  PLAIN(cuLibraryGetModule, 12000, cuLibraryGetModule, (CUmodule *module, CUlibrary library))                \
  PLAIN(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal, (CUdeviceptr *address, size_t *bytes, CUlibrary       \
      library, const char *name))                                                                            \
  PLAIN(cuLibraryGetKernelCount, 12040, cuLibraryGetKernelCount, (unsigned *count, CUlibrary library))       \
  PLAIN(cuKernelGetFunction, 12000, cuKernelGetFunction, (CUfunction *function, CUkernel kernel))            \
  PLAIN(cuKernelGetName, 12030, cuKernelGetName, (const char **name, CUkernel function))                     \
  PLAIN(cuKernelGetAttribute, 12000, cuKernelGetAttribute, (int *value, CUfunction_attribute attribute,      \
      CUkernel kernel, CUdevice device))                                                                     \
  PLAIN(cuKernelSetAttribute, 12000, cuKernelSetAttribute, (CUfunction_attribute attribute, int value,       \
      CUkernel kernel, CUdevice device))                                                                     \
  PLAIN(cuFuncGetAttribute, 2020, cuFuncGetAttribute, (int *value, CUfunction_attribute attribute,           \
      CUfunction function))                                                                                  \
  PLAIN(cuFuncSetAttribute, 9000, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute             \
      attribute, int value))                                                                                 \
  PLAIN(cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config))        \
  PLAIN(cuFuncGetModule, 11000, cuFuncGetModule, (CUmodule *module, CUfunction function))                    \
  PLAIN(cuFuncGetName, 12030, cuFuncGetName, (const char **name, CUfunction function))                       \
  /* launches */                                                                                             \
  STREAM(cuLaunchKernel, 4000, cuLaunchKernel, 7000, _ptsz, (CUfunction function, unsigned grid_x,           \
         unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned    \
         shared_bytes, CUstream stream, void **params, void **extra), (function, grid_x, grid_y, grid_z,     \
         block_x, block_y, block_z, shared_bytes, stream, params, extra))                                    \
  STREAM(cuLaunchKernelEx, 11060, cuLaunchKernelEx, 11060, _ptsz, (const CUlaunchConfig *config,             \
         CUfunction function, void **params, void **extra), (config, function, params, extra))               \
  STREAM(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel, 9000, _ptsz, (CUfunction function,      \
         unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned     \
         block_z, unsigned shared_bytes, CUstream stream, void **params), (function, grid_x, grid_y,         \
         grid_z, block_x, block_y, block_z, shared_bytes, stream, params))                                   \
  /* occupancy */                                                                                            \
  PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor,      \
      (int *blocks, CUfunction function, int block_size, size_t dynamic_bytes))                              \
  PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,                                          \
      cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int *blocks, CUfunction function, int           \
      block_size, size_t dynamic_bytes, unsigned flags))                                                     \
  PLAIN(cuOccupancyMaxPotentialBlockSize, 6050, cuOccupancyMaxPotentialBlockSize, (int *grid, int            \
      *block_size, CUfunction function, CUoccupancyB2DSize block_to_bytes, size_t dynamic_bytes, int         \
      limit))                                                                                                \
  PLAIN(cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, cuOccupancyMaxPotentialBlockSizeWithFlags, (int     \
      *grid, int *block_size, CUfunction function, CUoccupancyB2DSize block_to_bytes, size_t                 \
      dynamic_bytes, int limit, unsigned flags))                                                             \
  PLAIN(cuOccupancyAvailableDynamicSMemPerBlock, 10020, cuOccupancyAvailableDynamicSMemPerBlock, (size_t     \
      *dynamic_bytes, CUfunction function, int blocks, int block_size))                                      \
  /* streams */                                                                                              \
  PLAIN(cuStreamCreate, 2000, cuStreamCreate, (CUstream *stream, unsigned flags))                            \
  PLAIN(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority, (CUstream *stream, unsigned flags,     \
      int priority))                                                                                         \
  PLAIN(cuStreamDestroy, 2000, cuStreamDestroy, (CUstream stream))                                           \
  PLAIN(cuStreamDestroy, 4000, cuStreamDestroy_v2, (CUstream stream))                                        \
  STREAM(cuStreamQuery, 2000, cuStreamQuery, 7000, _ptsz, (CUstream stream), (stream))                       \
  STREAM(cuStreamSynchronize, 2000, cuStreamSynchronize, 7000, _ptsz, (CUstream stream), (stream))           \
  STREAM(cuStreamWaitEvent, 3020, cuStreamWaitEvent, 7000, _ptsz, (CUstream stream, CUevent event,           \
         unsigned flags), (stream, event, flags))                                                            \
  STREAM(cuStreamGetPriority, 5050, cuStreamGetPriority, 7000, _ptsz, (CUstream stream, int *priority),      \
         (stream, priority))                                                                                 \
  STREAM(cuStreamGetFlags, 5050, cuStreamGetFlags, 7000, _ptsz, (CUstream stream, unsigned *flags),          \
         (stream, flags))                                                                                    \
  STREAM(cuStreamGetId, 12000, cuStreamGetId, 12000, _ptsz, (CUstream stream, unsigned long long *id),       \
         (stream, id))                                                                                       \
  STREAM(cuStreamGetCtx, 9020, cuStreamGetCtx, 9020, _ptsz, (CUstream stream, CUcontext *context),           \
         (stream, context))                                                                                  \
  STREAM(cuStreamGetCtx, 12050, cuStreamGetCtx_v2, 12050, _ptsz, (CUstream stream, CUcontext *context,       \
         CUgreenCtx *green), (stream, context, green))                                                       \
  STREAM(cuStreamGetDevice, 12080, cuStreamGetDevice, 12080, _ptsz, (CUstream stream, CUdevice *device),     \
         (stream, device))                                                                                   \
  /* events */                                                                                               \
  PLAIN(cuEventCreate, 2000, cuEventCreate, (CUevent *event, unsigned flags))                                \
  STREAM(cuEventRecord, 2000, cuEventRecord, 7000, _ptsz, (CUevent event, CUstream stream), (event,          \
         stream))                                                                                            \
  STREAM(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, 11010, _ptsz, (CUevent event, CUstream       \
         stream, unsigned flags), (event, stream, flags))                                                    \
  PLAIN(cuEventQuery, 2000, cuEventQuery, (CUevent event))                                                   \
  PLAIN(cuEventSynchronize, 2000, cuEventSynchronize, (CUevent event))                                       \
  PLAIN(cuEventDestroy, 2000, cuEventDestroy, (CUevent event))                                               \
  PLAIN(cuEventDestroy, 4000, cuEventDestroy_v2, (CUevent event))                                            \
  PLAIN(cuEventElapsedTime, 2000, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))     \
  PLAIN(cuEventElapsedTime, 12080, cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent       \
        end))
/* clang-format on */

#endif
