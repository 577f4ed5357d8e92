/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules (of a context), libraries (of no context) and the kernels in them. A library has one module per
 * context that uses it; loading is lazy, as it is by default in the real driver.
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct global {
  struct global *next;
  struct block *block;
  char name[];
};

struct CUmod_st {
  struct object object;
  CUmodule next; /* all modules */
  CUcontext context;
  uint64_t context_id;
  CUlibrary library; /* NULL: it owns its image */
  struct image *image;
  struct global *globals;
  CUfunction functions;
};

struct CUlib_st {
  struct object object;
  struct image *image;
  CUfunction kernels;
};

static struct object *spare_modules, *spare_libraries, *spare_functions;
static CUmodule modules;

bool function_valid(CUfunction function) {
  return function != NULL && function->object.magic == MAGIC_FUNCTION;
}

static bool module_alive(CUmodule module) { return module != NULL && module->object.magic == MAGIC_MODULE; }
static bool library_alive(CUlibrary library) {
  return library != NULL && library->object.magic == MAGIC_LIBRARY;
}

const struct image *module_image(CUmodule module) { return module_alive(module) ? module->image : NULL; }
const struct image *library_image(CUlibrary library) {
  return library_alive(library) ? library->image : NULL;
}

static void functions_drop(CUfunction *list) {
  while (*list != NULL) {
    CUfunction function = *list;
    *list = function->next;
    object_drop(&spare_functions, function);
  }
}

static CUmodule module_new(CUcontext context, struct image *image, CUlibrary library) {
  state_lock();
  bool fits = memory_take(context->card, member_state()->driver.module_bytes);
  state_unlock();
  CUmodule module = fits ? object_new(&spare_modules, sizeof *module, MAGIC_MODULE) : NULL;
  if (module == NULL) return NULL; /* without host memory nothing goes on anyway */
  clock_sleep(member_state()->driver.module_ns);
  module->context = context_owner(context);
  module->context_id = module->context->id;
  module->image = image;
  module->library = library;
  module->next = modules;
  modules = module;
  return module;
}

/* Unlinks it and frees all that it holds. Under driver_lock. */
static void module_drop(CUmodule module) {
  for (CUmodule *link = &modules; *link != NULL; link = &(*link)->next)
    if (*link == module) {
      *link = module->next;
      break;
    }
  while (module->globals != NULL) {
    struct global *global = module->globals;
    module->globals = global->next;
    block_free(global->block);
    free(global);
  }
  functions_drop(&module->functions);
  if (module->library == NULL) image_free(module->image);
  state_lock();
  memory_give(module->context->card, member_state()->driver.module_bytes);
  state_unlock();
  object_drop(&spare_modules, module);
}

void modules_drop(CUcontext context) {
  for (CUmodule module = modules, next = NULL; module != NULL; module = next) {
    next = module->next;
    if (module->context == context) module_drop(module);
  }
}

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (module == NULL || code == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct image *image = image_read(code);
  if (image == NULL) return CUDA_ERROR_INVALID_IMAGE;
  driver_lock();
  *module = module_new(context, image, NULL);
  driver_unlock();
  if (*module != NULL) return CUDA_SUCCESS;
  image_free(image);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned option_count, CUjit_option *options,
                            void **option_values) {
  if (option_count != 0 && (options == NULL || option_values == NULL)) return CUDA_ERROR_INVALID_VALUE;
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  return cuModuleLoadData(module, image);
}

/* A file's contents with a NUL behind them; NULL: can't be read. */
static char *file_contents(const char *path) {
  FILE *file = fopen(path, "rbe");
  if (file == NULL) return NULL;
  char *bytes = NULL;
  if (fseek(file, 0, SEEK_END) == 0) {
    long size = ftell(file);
    bytes = size >= 0 && fseek(file, 0, SEEK_SET) == 0 ? calloc(1, (size_t)size + 1) : NULL;
    if (bytes != NULL && fread(bytes, 1, (size_t)size, file) != (size_t)size) {
      free(bytes);
      bytes = NULL;
    }
  }
  fclose(file);
  return bytes;
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
  if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
  char *bytes = file_contents(path);
  if (bytes == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
  CUresult result = cuModuleLoadData(module, bytes);
  free(bytes);
  return result;
}

CUresult cuModuleUnload(CUmodule module) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  if (!module_alive(module) || module->library != NULL)
    result = CUDA_ERROR_INVALID_HANDLE;
  else
    module_drop(module);
  driver_unlock();
  return result;
}

/* The function of that name in a list, made where the image offers it. Under driver_lock. */
static CUfunction function_in(CUfunction *list, const struct image *image, const char *name) {
  for (CUfunction function = *list; function != NULL; function = function->next)
    if (strcmp(function->name, name) == 0) return function;
  if (strlen(name) >= sizeof((CUfunction)0)->name || !image_has_kernel(image, name)) return NULL;
  CUfunction function = object_new(&spare_functions, sizeof *function, MAGIC_FUNCTION);
  if (function == NULL) return NULL;
  memcpy(function->name, name, strlen(name) + 1);
  function->next = *list;
  *list = function;
  return function;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (function == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!module_alive(module)) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  CUfunction found = function_in(&module->functions, module->image, name);
  if (found != NULL) {
    found->module = module;
    *function = found;
  }
  driver_unlock();
  return found == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

/* The variable's block, made on first use. Under driver_lock. */
static CUresult global_in(CUmodule module, const char *name, struct block **block) {
  for (struct global *global = module->globals; global != NULL; global = global->next)
    if (strcmp(global->name, name) == 0) {
      *block = global->block;
      return CUDA_SUCCESS;
    }
  uint64_t bytes = image_global_bytes(module->image, name);
  if (bytes == 0) return CUDA_ERROR_NOT_FOUND;
  struct global *global = calloc(1, sizeof *global + strlen(name) + 1);
  if (global == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = block_allocate(module->context, bytes, BLOCK_DEVICE, block);
  if (result != CUDA_SUCCESS) {
    free(global);
    return result;
  }
  memcpy(global->name, name, strlen(name) + 1);
  global->block = *block;
  global->next = module->globals;
  module->globals = global;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!module_alive(module)) return CUDA_ERROR_INVALID_HANDLE;
  struct block *block = NULL;
  driver_lock();
  result = global_in(module, name, &block);
  if (result == CUDA_SUCCESS) {
    if (address != NULL) *address = block->base;
    if (bytes != NULL) *bytes = block->bytes;
  }
  driver_unlock();
  return result;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  enum { LAZY = 2 };
  if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
  *mode = LAZY;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned jit_count, CUlibraryOption *options, void **option_values,
                           unsigned option_count) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (library == NULL || code == NULL || (jit_count != 0 && (jit_options == NULL || jit_values == NULL)) ||
      (option_count != 0 && (options == NULL || option_values == NULL)))
    return CUDA_ERROR_INVALID_VALUE;
  struct image *image = image_read(code);
  if (image == NULL) return CUDA_ERROR_INVALID_IMAGE;
  driver_lock();
  CUlibrary made = object_new(&spare_libraries, sizeof *made, MAGIC_LIBRARY);
  if (made != NULL) made->image = image;
  driver_unlock();
  if (made == NULL) {
    image_free(image);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *library = made;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
                               void **jit_values, unsigned jit_count, CUlibraryOption *options,
                               void **option_values, unsigned option_count) {
  if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
  char *bytes = file_contents(path);
  if (bytes == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
  CUresult result = cuLibraryLoadData(library, bytes, jit_options, jit_values, jit_count, options,
                                      option_values, option_count);
  free(bytes);
  return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  if (library_alive(library)) {
    for (CUmodule module = modules, next = NULL; module != NULL; module = next) {
      next = module->next;
      if (module->library == library) module_drop(module);
    }
    functions_drop(&library->kernels);
    image_free(library->image);
    object_drop(&spare_libraries, library);
  } else {
    result = CUDA_ERROR_INVALID_HANDLE;
  }
  driver_unlock();
  return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (kernel == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!library_alive(library)) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  CUkernel found = function_in(&library->kernels, library->image, name);
  if (found != NULL) {
    found->library = library;
    *kernel = found;
  }
  driver_unlock();
  return found == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!library_alive(library)) return CUDA_ERROR_INVALID_HANDLE;
  *count = image_kernel_count(library->image);
  return CUDA_SUCCESS;
}

/* The library's module in the current context, loaded on first use. */
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (module == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!library_alive(library)) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  CUmodule found = modules;
  while (found != NULL && (found->library != library || found->context != context)) found = found->next;
  if (found == NULL) found = module_new(context, library->image, library);
  driver_unlock();
  *module = found;
  return found == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
  CUmodule module = NULL;
  CUresult result = cuLibraryGetModule(&module, library);
  return result == CUDA_SUCCESS ? cuModuleGetGlobal_v2(address, bytes, module, name) : result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!function_valid(kernel) || kernel->library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module = NULL;
  CUresult result = cuLibraryGetModule(&module, kernel->library);
  return result == CUDA_SUCCESS ? cuModuleGetFunction(function, module, kernel->name) : result;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (module == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (function->module == NULL) return cuLibraryGetModule(module, function->library);
  *module = function->module;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel function) { return cuFuncGetName(name, function); }
