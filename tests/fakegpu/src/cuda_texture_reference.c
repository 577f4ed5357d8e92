/* SPDX-License-Identifier: Apache-2.0
 *
 * Texture references, deprecated since CUDA 11 (CUDA driver API manual, "Texture Reference Management"): what
 * is set is kept, to be asked for. Modules here have none, so those that a program makes are all there are;
 * of surface references, which only modules have, there are none.
 */
#include "driver.h"

#include <string.h>

#define MAGIC_REFERENCE 0x46525854u
enum { OVERRIDE_FORMAT = 1 };

struct CUtexref_st {
  struct object object;
  CUarray array;
  CUmipmappedArray mipmap;
  CUdeviceptr address;
  CUarray_format format;
  int channels;
  CUDA_TEXTURE_DESC_v1 texture;
};

static struct object *spare;

static CUresult check(CUtexref reference, const void *pointer) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  bool alive = reference != NULL && reference->object.magic == MAGIC_REFERENCE;
  return alive && pointer != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefCreate(CUtexref *reference) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (reference == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUtexref made = object_new(&spare, sizeof *made, MAGIC_REFERENCE);
  if (made != NULL) *reference = made;
  driver_unlock();
  return made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuTexRefDestroy(CUtexref reference) {
  CUresult result = check(reference, reference);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  object_drop(&spare, reference);
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuModuleGetTexRef(CUtexref *reference, CUmodule module, const char *name) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (reference == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  return module_image(module) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetSurfRef(CUsurfref *reference, CUmodule module, const char *name) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (reference == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  return module_image(module) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

CUresult cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned flags) {
  (void)reference, (void)array, (void)flags;
  return driver_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuSurfRefGetArray(CUarray *array, CUsurfref reference) {
  (void)reference, (void)array;
  return driver_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref reference) {
  enum { UNIT_DEFAULT = -1 };
  CUresult result = check(reference, reference);
  if (result != CUDA_SUCCESS) return result;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  return unit == UNIT_DEFAULT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefSetArray(CUtexref reference, CUarray array, unsigned flags) {
  CUresult result = check(reference, array);
  if (result != CUDA_SUCCESS) return result;
  if (flags != OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
  if (array_resolve(array) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
  reference->array = array;
  reference->mipmap = NULL;
  reference->address = 0;
  reference->format = array->descriptor.format;
  reference->channels = (int)array->descriptor.channels;
  return CUDA_SUCCESS;
}

CUresult cuTexRefSetMipmappedArray(CUtexref reference, CUmipmappedArray mipmap, unsigned flags) {
  CUarray level = NULL;
  CUresult result = check(reference, mipmap);
  if (result == CUDA_SUCCESS && flags != OVERRIDE_FORMAT) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = cuMipmappedArrayGetLevel(&level, mipmap, 0);
  if (result == CUDA_SUCCESS) result = cuTexRefSetArray(reference, level, flags);
  if (result != CUDA_SUCCESS) return result;
  reference->array = NULL;
  reference->mipmap = mipmap;
  return CUDA_SUCCESS;
}

/* The address is always aligned well enough: the offset is 0. */
CUresult cuTexRefSetAddress_v2(size_t *offset, CUtexref reference, CUdeviceptr address, size_t bytes) {
  CUresult result = check(reference, reference);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  const struct block *block = address_find(address);
  bool there = block != NULL && bytes <= block->bytes - (address - block->base);
  driver_unlock();
  if (!there) return CUDA_ERROR_INVALID_VALUE;
  if (offset != NULL) *offset = 0;
  reference->array = NULL;
  reference->mipmap = NULL;
  reference->address = address;
  return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress(unsigned *offset, CUtexref reference, CUdeviceptr_v1 address, unsigned bytes) {
  if (offset != NULL) *offset = 0;
  return cuTexRefSetAddress_v2(NULL, reference, address, bytes);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR_v2 *descriptor,
                                 CUdeviceptr address, size_t pitch) {
  CUresult result = check(reference, descriptor);
  if (result == CUDA_SUCCESS)
    result = cuTexRefSetAddress_v2(NULL, reference, address, pitch * descriptor->height);
  if (result != CUDA_SUCCESS) return result;
  reference->format = descriptor->format;
  reference->channels = (int)descriptor->channels;
  return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress2D_v2(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR_v2 *descriptor,
                                 CUdeviceptr address, size_t pitch) {
  return cuTexRefSetAddress2D_v3(reference, descriptor, address, pitch);
}

CUresult cuTexRefSetAddress2D(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR_v1 *narrow,
                              CUdeviceptr_v1 address, unsigned pitch) {
  if (narrow == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY_DESCRIPTOR_v2 wide = {narrow->width, narrow->height, narrow->format, narrow->channels};
  return cuTexRefSetAddress2D_v3(reference, &wide, address, pitch);
}

/* One value to ask for; the manual: an error where the reference is bound to something else. */
#define GETTER(symbol, type, name, there, value)                               \
  CUresult symbol(type *name, CUtexref reference) {                            \
    CUresult result = check(reference, name);                                  \
    if (result == CUDA_SUCCESS && !(there)) result = CUDA_ERROR_INVALID_VALUE; \
    if (result == CUDA_SUCCESS) *name = (value);                               \
    return result;                                                             \
  }
#define SETTER(symbol, type, member, most)                \
  CUresult symbol(CUtexref reference, type wanted) {      \
    CUresult result = check(reference, reference);        \
    if (result != CUDA_SUCCESS) return result;            \
    if (wanted > (most)) return CUDA_ERROR_INVALID_VALUE; \
    reference->texture.member = wanted;                   \
    return CUDA_SUCCESS;                                  \
  }
GETTER(cuTexRefGetAddress_v2, CUdeviceptr, address, reference->address != 0, reference->address)
GETTER(cuTexRefGetAddress, CUdeviceptr_v1, address, reference->address != 0 && reference->address >> 32 == 0,
       (CUdeviceptr_v1)reference->address)
GETTER(cuTexRefGetArray, CUarray, array, reference->array != NULL, reference->array)
GETTER(cuTexRefGetMipmappedArray, CUmipmappedArray, mipmap, reference->mipmap != NULL, reference->mipmap)
GETTER(cuTexRefGetFilterMode, unsigned, mode, true, reference->texture.filter)
GETTER(cuTexRefGetMipmapFilterMode, unsigned, mode, true, reference->texture.mipmap_filter)
GETTER(cuTexRefGetMipmapLevelBias, float, bias, true, reference->texture.bias)
GETTER(cuTexRefGetMaxAnisotropy, int, most, true, (int)reference->texture.anisotropy)
GETTER(cuTexRefGetFlags, unsigned, flags, true, reference->texture.flags)
SETTER(cuTexRefSetFilterMode, unsigned, filter, 1u)
SETTER(cuTexRefSetMipmapFilterMode, unsigned, mipmap_filter, 1u)
SETTER(cuTexRefSetMipmapLevelBias, float, bias, 1e30f)
SETTER(cuTexRefSetMaxAnisotropy, unsigned, anisotropy, 16u)
SETTER(cuTexRefSetFlags, unsigned, flags, 0x7fu)

CUresult cuTexRefSetFormat(CUtexref reference, CUarray_format format, int channels) {
  CUresult result = check(reference, reference);
  if (result != CUDA_SUCCESS) return result;
  if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  reference->format = format;
  reference->channels = channels;
  return CUDA_SUCCESS;
}

CUresult cuTexRefGetFormat(CUarray_format *format, int *channels, CUtexref reference) {
  CUresult result = check(reference, format);
  if (result == CUDA_SUCCESS && channels == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  *format = reference->format;
  *channels = reference->channels;
  return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddressMode(CUtexref reference, int dimension, unsigned mode) {
  CUresult result = check(reference, reference);
  if (result != CUDA_SUCCESS) return result;
  if (dimension < 0 || dimension > 2 || mode > 3) return CUDA_ERROR_INVALID_VALUE;
  reference->texture.address_modes[dimension] = mode;
  return CUDA_SUCCESS;
}

CUresult cuTexRefGetAddressMode(unsigned *mode, CUtexref reference, int dimension) {
  CUresult result = check(reference, mode);
  if (result == CUDA_SUCCESS && (dimension < 0 || dimension > 2)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *mode = reference->texture.address_modes[dimension];
  return result;
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref reference, float least, float most) {
  CUresult result = check(reference, reference);
  if (result != CUDA_SUCCESS) return result;
  reference->texture.least_level = least;
  reference->texture.most_level = most;
  return CUDA_SUCCESS;
}

CUresult cuTexRefGetMipmapLevelClamp(float *least, float *most, CUtexref reference) {
  CUresult result = check(reference, least);
  if (result == CUDA_SUCCESS && most == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  *least = reference->texture.least_level;
  *most = reference->texture.most_level;
  return CUDA_SUCCESS;
}

CUresult cuTexRefSetBorderColor(CUtexref reference, float *color) {
  CUresult result = check(reference, color);
  if (result == CUDA_SUCCESS) memcpy(reference->texture.border, color, sizeof reference->texture.border);
  return result;
}

CUresult cuTexRefGetBorderColor(float *color, CUtexref reference) {
  CUresult result = check(reference, color);
  if (result == CUDA_SUCCESS) memcpy(color, reference->texture.border, sizeof reference->texture.border);
  return result;
}
