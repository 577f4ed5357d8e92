/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: registered host memory, old launches, linking, values and attributes of
 * streams, batches, peers, queries.
 */
#ifndef FAKEGPU_CUDA_TABLE_MORE_H
#define FAKEGPU_CUDA_TABLE_MORE_H

/* clang-format off */
#define CUDA_MORE(PLAIN, STREAM)                                                                             \
  PLAIN(cuMemHostRegister, 6050, cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned flags))        \
  PLAIN(cuMemHostRegister, 4000, cuMemHostRegister, (void *pointer, size_t bytes, unsigned flags))           \
  PLAIN(cuMemHostUnregister, 4000, cuMemHostUnregister, (void *pointer))                                     \
  PLAIN(cuFuncSetBlockShape, 2000, cuFuncSetBlockShape, (CUfunction function, int x, int y, int z))          \
  PLAIN(cuFuncSetSharedSize, 2000, cuFuncSetSharedSize, (CUfunction function, unsigned bytes))               \
  PLAIN(cuFuncSetSharedMemConfig, 4020, cuFuncSetSharedMemConfig, (CUfunction function, unsigned config))    \
  PLAIN(cuParamSetv, 2000, cuParamSetv, (CUfunction function, int offset, void *value, unsigned bytes))      \
  PLAIN(cuParamSeti, 2000, cuParamSeti, (CUfunction function, int offset, unsigned value))                   \
  PLAIN(cuParamSetf, 2000, cuParamSetf, (CUfunction function, int offset, float value))                      \
  PLAIN(cuParamSetSize, 2000, cuParamSetSize, (CUfunction function, unsigned bytes))                         \
  PLAIN(cuLaunchGridAsync, 2000, cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream    \
      stream))                                                                                               \
  PLAIN(cuLaunchGrid, 2000, cuLaunchGrid, (CUfunction function, int width, int height))                      \
  PLAIN(cuLaunch, 2000, cuLaunch, (CUfunction function))                                                     \
  PLAIN(cuLaunchCooperativeKernelMultiDevice, 9000, cuLaunchCooperativeKernelMultiDevice,                    \
      (CUDA_LAUNCH_PARAMS_v1 *launches, unsigned count, unsigned flags))                                     \
  PLAIN(cuLinkCreate, 6050, cuLinkCreate_v2, (unsigned option_count, CUjit_option *options, void             \
      **values, CUlinkState *made))                                                                          \
  PLAIN(cuLinkCreate, 5050, cuLinkCreate, (unsigned option_count, CUjit_option *options, void **values,      \
      CUlinkState *made))                                                                                    \
  PLAIN(cuLinkAddData, 6050, cuLinkAddData_v2, (CUlinkState link, CUjitInputType type, void *data, size_t    \
      bytes, const char *name, unsigned option_count, CUjit_option *options, void **values))                 \
  PLAIN(cuLinkAddData, 5050, cuLinkAddData, (CUlinkState link, CUjitInputType type, void *data, size_t       \
      bytes, const char *name, unsigned option_count, CUjit_option *options, void **values))                 \
  PLAIN(cuLinkAddFile, 6050, cuLinkAddFile_v2, (CUlinkState link, CUjitInputType type, const char *path,     \
      unsigned option_count, CUjit_option *options, void **values))                                          \
  PLAIN(cuLinkAddFile, 5050, cuLinkAddFile, (CUlinkState link, CUjitInputType type, const char *path,        \
      unsigned option_count, CUjit_option *options, void **values))                                          \
  PLAIN(cuLinkComplete, 5050, cuLinkComplete, (CUlinkState link, void **code, size_t *bytes))                \
  PLAIN(cuLinkDestroy, 5050, cuLinkDestroy, (CUlinkState link))                                              \
  STREAM(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2, 11070, _ptsz, (CUstream stream,               \
         CUdeviceptr address, uint32_t value, unsigned flags), (stream, address, value, flags))              \
  STREAM(cuStreamWriteValue32, 8000, cuStreamWriteValue32, 8000, _ptsz, (CUstream stream, CUdeviceptr        \
         address, uint32_t value, unsigned flags), (stream, address, value, flags))                          \
  STREAM(cuStreamWriteValue64, 11070, cuStreamWriteValue64_v2, 11070, _ptsz, (CUstream stream,               \
         CUdeviceptr address, uint64_t value, unsigned flags), (stream, address, value, flags))              \
  STREAM(cuStreamWriteValue64, 9000, cuStreamWriteValue64, 9000, _ptsz, (CUstream stream, CUdeviceptr        \
         address, uint64_t value, unsigned flags), (stream, address, value, flags))                          \
  STREAM(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2, 11070, _ptsz, (CUstream stream, CUdeviceptr     \
         address, uint32_t value, unsigned flags), (stream, address, value, flags))                          \
  STREAM(cuStreamWaitValue32, 8000, cuStreamWaitValue32, 8000, _ptsz, (CUstream stream, CUdeviceptr          \
         address, uint32_t value, unsigned flags), (stream, address, value, flags))                          \
  STREAM(cuStreamWaitValue64, 11070, cuStreamWaitValue64_v2, 11070, _ptsz, (CUstream stream, CUdeviceptr     \
         address, uint64_t value, unsigned flags), (stream, address, value, flags))                          \
  STREAM(cuStreamWaitValue64, 9000, cuStreamWaitValue64, 9000, _ptsz, (CUstream stream, CUdeviceptr          \
         address, uint64_t value, unsigned flags), (stream, address, value, flags))                          \
  STREAM(cuStreamAttachMemAsync, 6000, cuStreamAttachMemAsync, 7000, _ptsz, (CUstream handle, CUdeviceptr    \
         address, size_t bytes, unsigned flags), (handle, address, bytes, flags))                            \
  STREAM(cuStreamSetAttribute, 11000, cuStreamSetAttribute, 11000, _ptsz, (CUstream handle, unsigned         \
         attribute, const CUlaunchAttributeValue *value), (handle, attribute, value))                        \
  STREAM(cuStreamGetAttribute, 11000, cuStreamGetAttribute, 11000, _ptsz, (CUstream handle, unsigned         \
         attribute, CUlaunchAttributeValue *value), (handle, attribute, value))                              \
  STREAM(cuStreamCopyAttributes, 11000, cuStreamCopyAttributes, 11000, _ptsz, (CUstream target, CUstream     \
         source), (target, source))                                                                          \
  STREAM(cuMemcpyBatchAsync, 13000, cuMemcpyBatchAsync_v2, 13000, _ptsz, (CUdeviceptr *targets,              \
         CUdeviceptr *sources, size_t *sizes, size_t count, const void *attributes, size_t                   \
         *attribute_places, size_t attribute_count, CUstream stream), (targets, sources, sizes, count,       \
         attributes, attribute_places, attribute_count, stream))                                             \
  STREAM(cuMemcpyBatchAsync, 12080, cuMemcpyBatchAsync, 12080, _ptsz, (CUdeviceptr *targets, CUdeviceptr     \
         *sources, size_t *sizes, size_t count, const void *attributes, size_t *attribute_places, size_t     \
         attribute_count, size_t *failed, CUstream stream), (targets, sources, sizes, count, attributes,     \
         attribute_places, attribute_count, failed, stream))                                                 \
  STREAM(cuMemPrefetchBatchAsync, 13000, cuMemPrefetchBatchAsync, 13000, _ptsz, (CUdeviceptr *addresses,     \
         size_t *sizes, size_t count, CUmemLocation_v1 *places, size_t *place_starts, size_t place_count,    \
         uint64_t flags, CUstream stream), (addresses, sizes, count, places, place_starts, place_count,      \
         flags, stream))                                                                                     \
  STREAM(cuMemDiscardBatchAsync, 13000, cuMemDiscardBatchAsync, 13000, _ptsz, (CUdeviceptr *addresses,       \
         size_t *sizes, size_t count, uint64_t flags, CUstream stream), (addresses, sizes, count, flags,     \
         stream))                                                                                            \
  STREAM(cuMemDiscardAndPrefetchBatchAsync, 13000, cuMemDiscardAndPrefetchBatchAsync, 13000, _ptsz,          \
         (CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation_v1 *places, size_t              \
         *place_starts, size_t place_count, uint64_t flags, CUstream stream), (addresses, sizes, count,      \
         places, place_starts, place_count, flags, stream))                                                  \
  PLAIN(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                \
  PLAIN(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess, (CUcontext peer))                              \
  PLAIN(cuDeviceGetP2PAttribute, 8000, cuDeviceGetP2PAttribute, (int *value, unsigned attribute, CUdevice    \
      device, CUdevice peer))                                                                                \
  PLAIN(cuCtxGetSharedMemConfig, 4020, cuCtxGetSharedMemConfig, (unsigned *config))                          \
  PLAIN(cuCtxSetSharedMemConfig, 4020, cuCtxSetSharedMemConfig, (unsigned config))                           \
  PLAIN(cuDeviceGetExecAffinitySupport, 11040, cuDeviceGetExecAffinitySupport, (int *supported, unsigned     \
      type, CUdevice device))                                                                                \
  PLAIN(cuCtxGetExecAffinity, 11040, cuCtxGetExecAffinity, (CUexecAffinityParam *affinity, unsigned          \
      type))                                                                                                 \
  PLAIN(cuFlushGPUDirectRDMAWrites, 11030, cuFlushGPUDirectRDMAWrites, (unsigned target, unsigned scope))    \
  PLAIN(cuDeviceGetTexture1DLinearMaxWidth, 11010, cuDeviceGetTexture1DLinearMaxWidth, (size_t *width,       \
      CUarray_format format, unsigned channels, CUdevice device))                                            \
  PLAIN(cuDeviceGetLuid, 10000, cuDeviceGetLuid, (char *luid, unsigned *mask, CUdevice device))              \
  PLAIN(cuProfilerStart, 4000, cuProfilerStart, (void))                                                      \
  PLAIN(cuProfilerStop, 4000, cuProfilerStop, (void))                                                        \
  PLAIN(cuProfilerInitialize, 4000, cuProfilerInitialize, (const char *configuration, const char *output,    \
      unsigned mode))                                                                                        \
  PLAIN(cuModuleGetFunctionCount, 12040, cuModuleGetFunctionCount, (unsigned *count, CUmodule module))       \
  PLAIN(cuModuleEnumerateFunctions, 12040, cuModuleEnumerateFunctions, (CUfunction *functions, unsigned      \
      count, CUmodule module))                                                                               \
  PLAIN(cuLibraryEnumerateKernels, 12040, cuLibraryEnumerateKernels, (CUkernel *kernels, unsigned count,     \
      CUlibrary library))                                                                                    \
  PLAIN(cuLibraryGetManaged, 12000, cuLibraryGetManaged, (CUdeviceptr *address, size_t *bytes, CUlibrary     \
      library, const char *name))                                                                            \
  PLAIN(cuLibraryGetUnifiedFunction, 12000, cuLibraryGetUnifiedFunction, (void **function, CUlibrary         \
      library, const char *name))                                                                            \
  PLAIN(cuKernelGetLibrary, 12050, cuKernelGetLibrary, (CUlibrary *library, CUkernel kernel))                \
  PLAIN(cuKernelSetCacheConfig, 12000, cuKernelSetCacheConfig, (CUkernel kernel, CUfunc_cache config,        \
      CUdevice device))                                                                                      \
  PLAIN(cuFuncIsLoaded, 12040, cuFuncIsLoaded, (unsigned *state, CUfunction function))                       \
  PLAIN(cuFuncLoad, 12040, cuFuncLoad, (CUfunction function))                                                \
  PLAIN(cuFuncGetParamCount, 13020, cuFuncGetParamCount, (CUfunction function, size_t *count))               \
  PLAIN(cuKernelGetParamCount, 13020, cuKernelGetParamCount, (CUkernel kernel, size_t *count))               \
  PLAIN(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo, (CUfunction function, size_t place, size_t            \
      *offset, size_t *bytes))                                                                               \
  PLAIN(cuKernelGetParamInfo, 12040, cuKernelGetParamInfo, (CUkernel kernel, size_t place, size_t            \
      *offset, size_t *bytes))                                                                               \
  PLAIN(cuMemRangeGetAttributes, 8000, cuMemRangeGetAttributes, (void **data, size_t *sizes, unsigned        \
      *attributes, size_t attribute_count, CUdeviceptr address, size_t bytes))                               \
  PLAIN(cuMemRangeGetAttribute, 8000, cuMemRangeGetAttribute, (void *data, size_t size, unsigned             \
      attribute, CUdeviceptr address, size_t bytes))                                                         \
  PLAIN(cuPointerSetAttribute, 6000, cuPointerSetAttribute, (const void *value, CUpointer_attribute          \
      attribute, CUdeviceptr address))                                                                       \
  PLAIN(cuMemGetDefaultMemPool, 13000, cuMemGetDefaultMemPool, (CUmemoryPool *pool, CUmemLocation_v1         \
      *location, unsigned type))                                                                             \
  PLAIN(cuMemGetMemPool, 13000, cuMemGetMemPool, (CUmemoryPool *pool, CUmemLocation_v1 *location,            \
      unsigned type))                                                                                        \
  PLAIN(cuMemSetMemPool, 13000, cuMemSetMemPool, (CUmemLocation_v1 *location, unsigned type, CUmemoryPool    \
      pool))                                                                                                 \
  PLAIN(cuOccupancyMaxPotentialClusterSize, 11070, cuOccupancyMaxPotentialClusterSize, (int *size,           \
      CUfunction function, const CUlaunchConfig *config))                                                    \
  PLAIN(cuOccupancyMaxActiveClusters, 11070, cuOccupancyMaxActiveClusters, (int *count, CUfunction           \
      function, const CUlaunchConfig *config))
/* clang-format on */

#endif
