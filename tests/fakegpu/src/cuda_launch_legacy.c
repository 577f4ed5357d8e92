/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches as before CUDA 4, where a function carries its shape and parameters; and one on several devices.
 */
#include "driver.h"

#include <string.h>

#define PARAMETER_BYTES 4096u

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  function->legacy_block[0] = (unsigned)x;
  function->legacy_block[1] = (unsigned)y;
  function->legacy_block[2] = (unsigned)z;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  function->legacy_shared_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, unsigned config) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  return config <= 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Of the parameters only the first eight bytes matter: they may be a kernel's time. */
CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned bytes) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (value == NULL || offset < 0 || (unsigned)offset > PARAMETER_BYTES || bytes > PARAMETER_BYTES)
    return CUDA_ERROR_INVALID_VALUE;
  size_t room = sizeof function->legacy_parameters, start = (size_t)offset;
  if (start < room)
    memcpy(function->legacy_parameters + start, value, bytes < room - start ? bytes : room - start);
  return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned value) {
  return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
  return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuParamSetSize(CUfunction function, unsigned bytes) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  return bytes <= PARAMETER_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  void *params[] = {function->legacy_parameters};
  const unsigned *block = function->legacy_block;
  return cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, block[0] == 0 ? 1 : block[0],
                        block[1] == 0 ? 1 : block[1], block[2] == 0 ? 1 : block[2],
                        function->legacy_shared_bytes, stream, params, NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  return cuLaunchGridAsync(function, width, height, NULL);
}

CUresult cuLaunch(CUfunction function) { return cuLaunchGridAsync(function, 1, 1, NULL); }

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS_v1 *launches, unsigned count,
                                              unsigned flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (launches == NULL || count == 0 || count > (unsigned)device_count() || flags > 3)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (unsigned index = 0; index < count && result == CUDA_SUCCESS; index++) {
    const CUDA_LAUNCH_PARAMS_v1 *one = &launches[index];
    if (one->stream == NULL) return CUDA_ERROR_INVALID_VALUE; /* the manual: never the default stream */
    result =
        cuLaunchCooperativeKernel(one->function, one->grid_x, one->grid_y, one->grid_z, one->block_x,
                                  one->block_y, one->block_z, one->shared_bytes, one->stream, one->params);
  }
  return result;
}
