/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries, which take memory of the card when they are loaded: at once, or when something of
 * theirs is first asked for. */
#include "hooks.h"
#include "overhead.h"

static uint64_t number_of(const void *handle) { return (uint64_t)(uintptr_t)handle; }

/* The card to charge, where the thread has a context. */
static struct card *card_here(CUcontext *context) {
  *context = NULL;
  return inside_driver ? NULL : card_current(context);
}

#define LOAD(symbol, parameters, handle, kind, arguments, unload)                                          \
  CUresult symbol parameters {                                                                             \
    struct overhead overhead;                                                                              \
    CUcontext context;                                                                                     \
    struct card *card = (handle) == NULL ? NULL : card_here(&context);                                     \
    if (card == NULL) return REAL(symbol) arguments;                                                       \
    if (!overhead_begin(&overhead, card, REGION_MODULES, 0)) return CUDA_ERROR_OUT_OF_MEMORY;              \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                                                   \
    if (overhead_end(&overhead, result, kind, result == CUDA_SUCCESS ? number_of(*(handle)) : 0, context)) \
      return result;                                                                                       \
    IN_DRIVER(REAL(unload)(*(handle)));                                                                    \
    *(handle) = NULL;                                                                                      \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                                       \
  }

LOAD(cuModuleLoad, (CUmodule * module, const char *path), module, BLOCK_MODULE, (module, path),
     cuModuleUnload)
LOAD(cuModuleLoadData, (CUmodule * module, const void *image), module, BLOCK_MODULE, (module, image),
     cuModuleUnload)
LOAD(cuModuleLoadDataEx,
     (CUmodule * module, const void *image, unsigned int count, void *options, void **values), module,
     BLOCK_MODULE, (module, image, count, options, values), cuModuleUnload)
LOAD(cuModuleLoadFatBinary, (CUmodule * module, const void *image), module, BLOCK_MODULE, (module, image),
     cuModuleUnload)
#define LIBRARY_OPTIONS                                                                              \
  void *jit_options, void **jit_values, unsigned int jit_count, void *options, void **option_values, \
      unsigned int option_count
#define LIBRARY_ARGUMENTS jit_options, jit_values, jit_count, options, option_values, option_count
LOAD(cuLibraryLoadData, (CUlibrary * library, const void *code, LIBRARY_OPTIONS), library, BLOCK_LIBRARY,
     (library, code, LIBRARY_ARGUMENTS), cuLibraryUnload)
LOAD(cuLibraryLoadFromFile, (CUlibrary * library, const char *path, LIBRARY_OPTIONS), library, BLOCK_LIBRARY,
     (library, path, LIBRARY_ARGUMENTS), cuLibraryUnload)

/* What is loaded on first use. It can't be unloaded by itself, so where it does not fit, it stays, charged
   without room for it: the next allocation is refused. */
#define FIRST_USE(symbol, parameters, kind, number, arguments)                                \
  CUresult symbol parameters {                                                                \
    struct overhead overhead;                                                                 \
    CUcontext context;                                                                        \
    struct card *card = card_here(&context);                                                  \
    if (card == NULL) return REAL(symbol) arguments;                                          \
    if (!overhead_begin(&overhead, card, REGION_MODULES, 0)) return CUDA_ERROR_OUT_OF_MEMORY; \
    overhead.stays = true;                                                                    \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                                      \
    if (overhead_end(&overhead, result, kind, number, context)) return result;                \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                          \
  }

static const void *library_of(CUkernel kernel) {
  CUlibrary library = NULL;
  if (driver_has(CALL_cuKernelGetLibrary) && DRIVER(cuKernelGetLibrary)(&library, kernel) == CUDA_SUCCESS)
    return library;
  return kernel;
}

static const void *module_of(CUfunction function) {
  CUmodule module = NULL;
  if (driver_has(CALL_cuFuncGetModule) && DRIVER(cuFuncGetModule)(&module, function) == CUDA_SUCCESS)
    return module;
  return function;
}

FIRST_USE(cuLibraryGetModule, (CUmodule * module, CUlibrary library), BLOCK_LIBRARY, number_of(library),
          (module, library))
FIRST_USE(cuLibraryGetGlobal, (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
          BLOCK_LIBRARY, number_of(library), (address, bytes, library, name))
FIRST_USE(cuLibraryGetManaged, (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
          BLOCK_LIBRARY, number_of(library), (address, bytes, library, name))
FIRST_USE(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), BLOCK_LIBRARY,
          number_of(library_of(kernel)), (function, kernel))
FIRST_USE(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name), BLOCK_MODULE,
          number_of(module), (function, module, name))
/* Heap, stack and print buffer of a context's kernels. */
FIRST_USE(cuCtxSetLimit, (int limit, size_t value), BLOCK_MODULE, number_of(context), (limit, value))
FIRST_USE(cuFuncLoad, (CUfunction function), BLOCK_MODULE, number_of(module_of(function)), (function))

CUresult cuModuleUnload(CUmodule module) {
  struct block block;
  if (inside_driver || !memory_take(BLOCK_MODULE, number_of(module), &block))
    return REAL(cuModuleUnload)(module);
  CUresult result = IN_DRIVER(REAL(cuModuleUnload)(module));
  memory_released(&block, result);
  return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
  struct block blocks[LIBRARY_CONTEXTS];
  if (inside_driver) return REAL(cuLibraryUnload)(library);
  uint32_t count = overhead_take_library(number_of(library), blocks);
  CUresult result = IN_DRIVER(REAL(cuLibraryUnload)(library));
  for (uint32_t i = 0; i < count; i++) memory_released(&blocks[i], result);
  return result;
}
