/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver API as the programs use it: the library by its soname, everything else through cuGetProcAddress,
 * with the versions that CUDA 12's runtime asks for. Nothing here knows that the driver may be a fake.
 */
#ifndef FAKEGPU_CUDA_CLIENT_H
#define FAKEGPU_CUDA_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUmemoryPool;

#define CLIENT_FUNCTIONS(FUNCTION)                                                                      \
  FUNCTION(cuInit, 2000, (unsigned flags))                                                              \
  FUNCTION(cuGetErrorName, 6000, (CUresult error, const char **text))                                   \
  FUNCTION(cuDeviceGet, 2000, (CUdevice * device, int ordinal))                                         \
  FUNCTION(cuDeviceGetCount, 2000, (int *count))                                                        \
  FUNCTION(cuDeviceGetName, 2000, (char *name, int length, CUdevice device))                            \
  FUNCTION(cuDeviceTotalMem, 3020, (size_t *bytes, CUdevice device))                                    \
  FUNCTION(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                      \
  FUNCTION(cuDevicePrimaryCtxRelease, 11000, (CUdevice device))                                         \
  FUNCTION(cuCtxSetCurrent, 4000, (CUcontext context))                                                  \
  FUNCTION(cuMemGetInfo, 3020, (size_t *free, size_t *total))                                           \
  FUNCTION(cuMemAlloc, 3020, (CUdeviceptr * address, size_t bytes))                                     \
  FUNCTION(cuMemAllocPitch, 3020,                                                                       \
           (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element_bytes)) \
  FUNCTION(cuMemAllocManaged, 6000, (CUdeviceptr * address, size_t bytes, unsigned flags))              \
  FUNCTION(cuMemAllocAsync, 11020, (CUdeviceptr * address, size_t bytes, CUstream stream))              \
  FUNCTION(cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool * pool, CUdevice device))                    \
  FUNCTION(cuMemAllocFromPoolAsync, 11020,                                                              \
           (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream))                   \
  FUNCTION(cuMemFree, 3020, (CUdeviceptr address))                                                      \
  FUNCTION(cuMemFreeAsync, 11020, (CUdeviceptr address, CUstream stream))                               \
  FUNCTION(cuModuleLoadData, 2000, (CUmodule * module, const void *image))                              \
  FUNCTION(cuModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char *name))       \
  FUNCTION(cuStreamCreate, 2000, (CUstream * stream, unsigned flags))                                   \
  FUNCTION(cuStreamSynchronize, 2000, (CUstream stream))                                                \
  FUNCTION(cuEventCreate, 2000, (CUevent * event, unsigned flags))                                      \
  FUNCTION(cuEventRecord, 2000, (CUevent event, CUstream stream))                                       \
  FUNCTION(cuEventSynchronize, 2000, (CUevent event))                                                   \
  FUNCTION(cuEventElapsedTime, 2000, (float *milliseconds, CUevent start, CUevent end))                 \
  FUNCTION(cuLaunchKernel, 4000,                                                                        \
           (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
            unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,  \
            void **extra))

#define CLIENT_MEMBER(name, version, parameters) CUresult(*name) parameters;
struct cuda {
  CLIENT_FUNCTIONS(CLIENT_MEMBER)
};

/* Loads the driver, initialises it and makes the device's primary context current; on failure says why on
 * stderr and leaves the program with status 3. */
void cuda_open(struct cuda *cuda, int ordinal);
const char *cuda_error_name(const struct cuda *cuda, CUresult error);        /* never NULL */
void cuda_check(const struct cuda *cuda, CUresult result, const char *call); /* status 3 unless it is 0 */
double seconds_now(void);

#endif
