/* SPDX-License-Identifier: Apache-2.0
 *
 * Access between devices, and odd questions about devices and contexts.
 */
#include "driver.h"

#include <string.h>

static bool joined(CUdevice device, CUdevice peer) {
  int can = 0;
  return cuDeviceCanAccessPeer(&can, device, peer) == CUDA_SUCCESS && can != 0;
}

/* Enabled per pair of contexts; every copy works without it too, through the host as with the real driver. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!context_alive(peer) || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!joined(context->device, peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if ((context->peers & 1ull << peer->device) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  context->peers |= 1ull << peer->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!context_alive(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if ((context->peers & 1ull << peer->device) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  context->peers &= ~(1ull << peer->device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, unsigned attribute, CUdevice device, CUdevice peer) {
  enum { PERFORMANCE_RANK = 1, ACCESS, ATOMICS, ARRAYS };
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (device_at(device) == NULL || device_at(peer) == NULL || device == peer)
    return CUDA_ERROR_INVALID_DEVICE;
  if (value == NULL || attribute < PERFORMANCE_RANK || attribute > ARRAYS + 1u)
    return CUDA_ERROR_INVALID_VALUE;
  *value = attribute != PERFORMANCE_RANK && joined(device, peer);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(unsigned *config) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  *config = 1; /* banks of four bytes, the only ones since Maxwell */
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(unsigned config) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  return config <= 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Only with MPS can a context be bound to some of the multiprocessors. */
CUresult cuDeviceGetExecAffinitySupport(int *supported, unsigned type, CUdevice device) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (supported == NULL || type != 0) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, unsigned type) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (affinity == NULL || type != 0) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuFlushGPUDirectRDMAWrites(unsigned target, unsigned scope) {
  CUcontext context = NULL;
  (void)target, (void)scope;
  return context_current(&context);
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels,
                                            CUdevice device) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (width == NULL || format == 0 || channels == 0 || channels > 4) return CUDA_ERROR_INVALID_VALUE;
  *width = 268435456; /* attribute 69 */
  return CUDA_SUCCESS;
}

/* Windows only. */
CUresult cuDeviceGetLuid(char *luid, unsigned *mask, CUdevice device) {
  (void)luid, (void)mask;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return device_at(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_SUPPORTED;
}

/* No profiler listens. */
CUresult cuProfilerStart(void) {
  CUcontext context = NULL;
  return context_current(&context);
}

CUresult cuProfilerStop(void) {
  CUcontext context = NULL;
  return context_current(&context);
}

CUresult cuProfilerInitialize(const char *configuration, const char *output, unsigned mode) {
  (void)configuration, (void)output, (void)mode;
  return CUDA_ERROR_NOT_SUPPORTED; /* deprecated: so every driver since CUDA 11 */
}
