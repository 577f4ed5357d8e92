/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays. Their layout is the driver's secret, so the driver is asked: an array whose
 * memory is to be mapped later takes none, and tells what it would need. Where the driver can't (before CUDA
 * 11.6, or for this kind of array), rows padded to 512 bytes and groups of 128, to 64 KiB in all, are
 * charged: more than any layout known. Sparse and deferred arrays have no memory of their own. */
#include "handles.h"
#include "hooks.h"
#include "memory.h"
#include "tiles.h"

#define WITHOUT_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

static uint64_t at_least_one(uint64_t number) { return number == 0 ? 1 : number; }

static uint64_t padded(uint64_t number, uint64_t step) {
  return number > UINT64_MAX - step ? UINT64_MAX : (number + step - 1) / step * step;
}

static uint64_t times(uint64_t left, uint64_t right) {
  uint64_t product;
  return __builtin_mul_overflow(left, right, &product) ? UINT64_MAX : product;
}

/* CUarray_format: integers of 8, 16, 32 bits, half and float; whatever else there is takes 16 bytes at most
 */
static uint64_t channel_bytes(int format) {
  if (format == 0x01 || format == 0x08) return 1;
  if (format == 0x02 || format == 0x09 || format == 0x10) return 2;
  return format == 0x03 || format == 0x0a || format == 0x20 ? 4 : 16;
}

static uint64_t generous(const struct cuda_array3d *array, unsigned int levels) {
  uint64_t row = times(times(array->width, channel_bytes(array->format)), at_least_one(array->channels));
  uint64_t rows = array->height == 0 ? 1 : padded(array->height, 128);
  uint64_t bytes = padded(times(times(padded(row, 512), rows), at_least_one(array->depth)), 65536);
  return levels > 1 ? times(bytes, 2) : bytes; /* the smaller levels are less than the first */
}

static bool ask_array(const struct cuda_array3d *deferred, CUdevice device, uint64_t *bytes) {
  struct cuda_array_requirements needed = {0};
  CUarray probe = NULL;
  if (!driver_has(CALL_cuArrayGetMemoryRequirements)) return false;
  if (REAL(cuArray3DCreate_v2)(&probe, deferred) != CUDA_SUCCESS) return false;
  CUresult result = DRIVER(cuArrayGetMemoryRequirements)(&needed, probe, device);
  REAL(cuArrayDestroy)(probe);
  *bytes = needed.bytes;
  return result == CUDA_SUCCESS && needed.bytes != 0;
}

static bool ask_mipmap(const struct cuda_array3d *deferred, unsigned int levels, CUdevice device,
                       uint64_t *bytes) {
  struct cuda_array_requirements needed = {0};
  CUmipmappedArray probe = NULL;
  if (!driver_has(CALL_cuMipmappedArrayGetMemoryRequirements)) return false;
  if (REAL(cuMipmappedArrayCreate)(&probe, deferred, levels) != CUDA_SUCCESS) return false;
  CUresult result = DRIVER(cuMipmappedArrayGetMemoryRequirements)(&needed, probe, device);
  REAL(cuMipmappedArrayDestroy)(probe);
  *bytes = needed.bytes;
  return result == CUDA_SUCCESS && needed.bytes != 0;
}

/* `levels` 0: an array. */
static uint64_t bytes_of(const struct cuda_array3d *array, unsigned int levels) {
  struct cuda_array3d deferred = *array;
  uint64_t bytes = 0;
  deferred.flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
  CUdevice device = device_of_thread();
  inside_driver = true;
  bool told =
      levels == 0 ? ask_array(&deferred, device, &bytes) : ask_mipmap(&deferred, levels, device, &bytes);
  inside_driver = false;
  return told ? bytes : generous(array, levels);
}

/* false: refused. Nothing is charged for what the driver will refuse or what has no memory. */
static bool reserve(struct charge *charge, const void *made, const struct cuda_array3d *array,
                    unsigned int levels) {
  *charge = (struct charge){0};
  if (made == NULL || array->width == 0 || (array->flags & WITHOUT_MEMORY) != 0) return true;
  if (card_of_thread() == NULL) return true;
  return memory_reserve(charge, bytes_of(array, levels));
}

#define CREATE(symbol, parameters, descriptor, levels, arguments, kind, destroy)       \
  CUresult symbol parameters {                                                         \
    struct charge charge;                                                              \
    if (passes_on() || array == NULL) return REAL(symbol) arguments;                   \
    struct cuda_array3d full = descriptor;                                             \
    if (!reserve(&charge, made, &full, levels)) return CUDA_ERROR_OUT_OF_MEMORY;       \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                               \
    if (result != CUDA_SUCCESS) {                                                      \
      memory_cancel(&charge);                                                          \
      return result;                                                                   \
    }                                                                                  \
    if (memory_commit(&charge, kind, (uint64_t)(uintptr_t)*made)) return CUDA_SUCCESS; \
    IN_DRIVER(REAL(destroy)(*made));                                                   \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                   \
  }
#define FLAT ((struct cuda_array3d){array->width, array->height, 0, array->format, array->channels, 0})
#define DEEP                                                                                        \
  ((struct cuda_array3d){array->width, array->height, array->depth, array->format, array->channels, \
                         array->flags})
CREATE(cuArrayCreate, (CUarray * made, const struct cuda_array_v1 *array), FLAT, 0, (made, array),
       BLOCK_ARRAY, cuArrayDestroy)
CREATE(cuArrayCreate_v2, (CUarray * made, const struct cuda_array *array), FLAT, 0, (made, array),
       BLOCK_ARRAY, cuArrayDestroy)
CREATE(cuArray3DCreate, (CUarray * made, const struct cuda_array3d_v1 *array), DEEP, 0, (made, array),
       BLOCK_ARRAY, cuArrayDestroy)
CREATE(cuArray3DCreate_v2, (CUarray * made, const struct cuda_array3d *array), DEEP, 0, (made, array),
       BLOCK_ARRAY, cuArrayDestroy)
CREATE(cuMipmappedArrayCreate,
       (CUmipmappedArray * made, const struct cuda_array3d *array, unsigned int levels), DEEP, levels,
       (made, array, levels), BLOCK_MIPMAP, cuMipmappedArrayDestroy)

/* A sparse array has no memory of its own, but perhaps some that was mapped into it. */
static void array_gone(const void *array) {
  if (!tiles_any()) return;
  handles_lock();
  tiles_gone(array);
  handles_unlock();
}

#define DESTROY(symbol, type, kind)                                      \
  CUresult symbol(type array) {                                          \
    struct block block;                                                  \
    if (passes_on()) return REAL(symbol)(array);                         \
    bool known = memory_take(kind, (uint64_t)(uintptr_t)array, &block);  \
    CUresult result = IN_DRIVER(REAL(symbol)(array));                    \
    if (!known && result == CUDA_SUCCESS) array_gone(array);             \
    if (known) memory_released(&block, result);                          \
    return result;                                                       \
  }
DESTROY(cuArrayDestroy, CUarray, BLOCK_ARRAY)
DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray, BLOCK_MIPMAP)
