/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be asked of a context and set on it.
 */
#include "driver.h"

CUresult cuCtxGetDevice(CUdevice *device) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
  if (context == NULL) return cuCtxGetDevice(device);
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context_alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS) result = capture_forbids_context(context);
  if (result == CUDA_SUCCESS) timeline_wait(context->card, context->newest);
  return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
  if (context == NULL) return cuCtxSynchronize();
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context_alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  CUresult result = capture_forbids_context(context);
  if (result == CUDA_SUCCESS) timeline_wait(context->card, context->newest);
  return result;
}

CUresult cuCtxGetFlags(unsigned *flags) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  CUresult result = driver_ready();
  if (result == CUDA_SUCCESS && context == NULL) result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!context_alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
  CUresult result = driver_ready();
  if (result == CUDA_SUCCESS && context == NULL) result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!context_alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (limit >= LIMITS) return CUDA_ERROR_INVALID_VALUE;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

/* Heap and stack limits take no memory of the card here; the real driver reserves it at the next launch. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (limit >= LIMITS) return CUDA_ERROR_INVALID_VALUE;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  *config = context->cache;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS) context->cache = config;
  return result;
}

/* All compute cards since Ampere: 0 to -5. Priorities change nothing here: kernels run in launch order. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (least != NULL) *least = 0;
  if (greatest != NULL) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) {
  CUcontext context = NULL;
  return context_current(&context);
}
