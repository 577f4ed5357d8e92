/* SPDX-License-Identifier: Apache-2.0
 *
 * What else can be asked of modules, libraries and their kernels.
 */
#include "driver.h"

CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  const struct image *image = module_image(module);
  if (image == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = image_kernel_count(image);
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  const struct image *image = module_image(module);
  if (image == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (unsigned index = 0; index < count && index < image_kernel_count(image) && result == CUDA_SUCCESS;
       index++)
    result = cuModuleGetFunction(&functions[index], module, image_kernel_name(image, index));
  return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  const struct image *image = library_image(library);
  if (image == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (kernels == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (unsigned index = 0; index < count && index < image_kernel_count(image) && result == CUDA_SUCCESS;
       index++)
    result = cuLibraryGetKernel(&kernels[index], library, image_kernel_name(image, index));
  return result;
}

/* No code here has managed variables or unified functions. */
CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
  (void)address, (void)bytes;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (library_image(library) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return name == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library, const char *name) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (library_image(library) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return function == NULL || name == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(kernel) || kernel->library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (library == NULL) return CUDA_ERROR_INVALID_VALUE;
  *library = kernel->library;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncSetCacheConfig(kernel, config);
}

CUresult cuFuncIsLoaded(unsigned *state, CUfunction function) {
  enum { LOADED = 1 };
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
  *state = LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return function_valid(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The code is not read that closely: a kernel seems to have no parameters. */
CUresult cuFuncGetParamCount(CUfunction function, size_t *count) {
  CUresult result = cuFuncLoad(function);
  if (result != CUDA_SUCCESS) return result;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = 0;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count) { return cuFuncGetParamCount(kernel, count); }

CUresult cuFuncGetParamInfo(CUfunction function, size_t place, size_t *offset, size_t *bytes) {
  (void)place, (void)offset, (void)bytes;
  CUresult result = cuFuncLoad(function);
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t place, size_t *offset, size_t *bytes) {
  return cuFuncGetParamInfo(kernel, place, offset, bytes);
}
