/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays. The real layout is tiled and secret; here rows are padded to 64 bytes and,
 * from two dimensions on, to groups of eight, a tile's shape (a guess), and the whole to the granularity.
 * What CUDA calls sparse or deferred has no memory of its own (cuda_sparse.c).
 */
#include "driver.h"

#define ROW_BYTES 64u
#define ROWS 8u
#define MOST_CELLS 131072u

enum {
  ARRAY_LAYERED = 1,
  ARRAY_CUBEMAP = 4,
  ARRAY_SPARSE = 0x40,
  ARRAY_DEFERRED = 0x80,
  ARRAY_FLAGS = 0x3ff
};

static struct object *spare, *spare_mipmaps;

/* Bytes of one channel; 0: a format that is not served (planar, packed and compressed ones). */
static unsigned channel_bytes(CUarray_format format) {
  switch (format) {
    case 0x01:
    case 0x08:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4;
    default:
      return 0;
  }
}

static bool array_alive(CUarray array) {
  return array != NULL && array->object.magic == MAGIC_ARRAY && context_alive(array->context) &&
         array->context->id == array->context_id;
}

CUresult array_resolve(CUarray array) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return array_alive(array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static uint64_t at_least_one(uint64_t number) { return number == 0 ? 1 : number; }
static uint64_t padded(uint64_t number, uint64_t step) { return (number + step - 1) / step * step; }

static bool good(const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor) {
  if (descriptor->width == 0 || (descriptor->flags & ~(unsigned)ARRAY_FLAGS) != 0) return false;
  if (channel_bytes(descriptor->format) == 0) return false;
  if (descriptor->channels != 1 && descriptor->channels != 2 && descriptor->channels != 4) return false;
  bool layered = (descriptor->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)) != 0;
  if (descriptor->depth != 0 && descriptor->height == 0 && !layered) return false;
  if ((descriptor->flags & ARRAY_CUBEMAP) != 0 && descriptor->width != descriptor->height) return false;
  return descriptor->width <= MOST_CELLS && descriptor->height <= MOST_CELLS &&
         descriptor->depth <= MOST_CELLS;
}

/* Fills in the layout of one array, and returns its bytes. */
static uint64_t lay_out(CUarray array) {
  const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor = &array->descriptor;
  array->row = descriptor->width * channel_bytes(descriptor->format) * descriptor->channels;
  array->pitch = padded(array->row, ROW_BYTES);
  array->rows = at_least_one(descriptor->height);
  array->slices = at_least_one(descriptor->depth);
  array->slice = array->pitch * (array->rows == 1 ? 1 : padded(array->rows, ROWS));
  return array->slice * array->slices;
}

/* The smaller array of a level: layers are not halved. */
static CUDA_ARRAY3D_DESCRIPTOR_v2 level_of(const CUDA_ARRAY3D_DESCRIPTOR_v2 *whole, unsigned level) {
  CUDA_ARRAY3D_DESCRIPTOR_v2 descriptor = *whole;
  descriptor.width = at_least_one(whole->width >> level);
  if (whole->height != 0) descriptor.height = at_least_one(whole->height >> level);
  if (whole->depth != 0 && (whole->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)) == 0)
    descriptor.depth = at_least_one(whole->depth >> level);
  return descriptor;
}

static bool has_memory(unsigned flags) { return (flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) == 0; }

static CUresult take(CUcontext context, uint64_t bytes, unsigned flags, struct block **block) {
  *block = NULL;
  if (!has_memory(flags)) return CUDA_SUCCESS;
  CUresult result = block_allocate(context, bytes, BLOCK_DEVICE, block);
  if (result == CUDA_SUCCESS) (*block)->kind = BLOCK_ARRAY;
  return result;
}

static CUarray new_array(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor) {
  CUarray array = object_new(&spare, sizeof *array, MAGIC_ARRAY);
  if (array == NULL) return NULL;
  array->context = context_owner(context);
  array->context_id = array->context->id;
  array->descriptor = *descriptor;
  return array;
}

CUresult cuArray3DCreate_v2(CUarray *made, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (made == NULL || descriptor == NULL || !good(descriptor)) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUarray array = new_array(context, descriptor);
  result = array == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                         : take(context, lay_out(array), descriptor->flags, &array->block);
  if (result == CUDA_SUCCESS)
    *made = array;
  else if (array != NULL)
    object_drop(&spare, array);
  driver_unlock();
  return result;
}

CUresult cuArrayCreate_v2(CUarray *made, const CUDA_ARRAY_DESCRIPTOR_v2 *descriptor) {
  if (descriptor == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR_v2 full = {.width = descriptor->width,
                                     .height = descriptor->height,
                                     .format = descriptor->format,
                                     .channels = descriptor->channels};
  return cuArray3DCreate_v2(made, &full);
}

CUresult cuArrayDestroy(CUarray array) {
  CUresult result = array_resolve(array);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  if (array->mipmap != NULL) {
    result = CUDA_ERROR_INVALID_HANDLE; /* it belongs to the mipmapped array */
  } else {
    if (array->block != NULL) block_free(array->block);
    sparse_forget(array);
    object_drop(&spare, array);
  }
  driver_unlock();
  return result;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor, CUarray array) {
  CUresult result = array_resolve(array);
  if (result != CUDA_SUCCESS) return result;
  if (descriptor == NULL) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR_v2 *descriptor, CUarray array) {
  CUresult result = array_resolve(array);
  if (result != CUDA_SUCCESS) return result;
  if (descriptor == NULL || array->descriptor.depth > 1) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = (CUDA_ARRAY_DESCRIPTOR_v2){.width = array->descriptor.width,
                                           .height = array->descriptor.height,
                                           .format = array->descriptor.format,
                                           .channels = array->descriptor.channels};
  return CUDA_SUCCESS;
}

/* Only asked of arrays without memory of their own. */
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 *needed, CUarray array,
                                      CUdevice device) {
  CUresult result = array_resolve(array);
  if (result != CUDA_SUCCESS) return result;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (needed == NULL || has_memory(array->descriptor.flags)) return CUDA_ERROR_INVALID_VALUE;
  *needed = (CUDA_ARRAY_MEMORY_REQUIREMENTS_v1){.size = array->slice * array->slices, .alignment = 65536};
  return CUDA_SUCCESS;
}

static bool mipmap_alive(CUmipmappedArray mipmap) {
  return mipmap != NULL && mipmap->object.magic == MAGIC_MIPMAP && context_alive(mipmap->context) &&
         mipmap->context->id == mipmap->context_id;
}

/* The number of levels that the largest side can be halved to, the whole one included. */
static unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor) {
  uint64_t side = descriptor->width > descriptor->height ? descriptor->width : descriptor->height;
  bool layered = (descriptor->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)) != 0;
  if (!layered && descriptor->depth > side) side = descriptor->depth;
  return 64u - (unsigned)__builtin_clzll(side);
}

/* The arrays of all levels, and the bytes that they take together. Under driver_lock. */
static uint64_t make_levels(CUmipmappedArray mipmap, const CUDA_ARRAY3D_DESCRIPTOR_v2 *whole,
                            unsigned count) {
  uint64_t bytes = 0;
  for (unsigned level = 0; level < count; level++) {
    CUDA_ARRAY3D_DESCRIPTOR_v2 descriptor = level_of(whole, level);
    CUarray array = new_array(mipmap->context, &descriptor);
    if (array == NULL) return 0;
    array->mipmap = mipmap;
    array->offset = bytes;
    bytes += lay_out(array);
    mipmap->levels[mipmap->count++] = array;
  }
  return bytes;
}

static void drop_mipmap(CUmipmappedArray mipmap) {
  for (unsigned level = 0; level < mipmap->count; level++) object_drop(&spare, mipmap->levels[level]);
  if (mipmap->block != NULL) block_free(mipmap->block);
  sparse_forget(mipmap);
  object_drop(&spare_mipmaps, mipmap);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *made, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor,
                                unsigned levels) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (made == NULL || descriptor == NULL || !good(descriptor) || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  if (levels > most_levels(descriptor)) levels = most_levels(descriptor);
  driver_lock();
  CUmipmappedArray mipmap = object_new(&spare_mipmaps, sizeof *mipmap, MAGIC_MIPMAP);
  result = CUDA_ERROR_OUT_OF_MEMORY;
  if (mipmap != NULL) {
    mipmap->context = context_owner(context);
    mipmap->context_id = mipmap->context->id;
    uint64_t bytes = make_levels(mipmap, descriptor, levels);
    if (bytes != 0) result = take(context, bytes, descriptor->flags, &mipmap->block);
    for (unsigned level = 0; level < mipmap->count; level++) mipmap->levels[level]->block = mipmap->block;
    if (result == CUDA_SUCCESS)
      *made = mipmap;
    else
      drop_mipmap(mipmap);
  }
  driver_unlock();
  return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned level) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!mipmap_alive(mipmap)) return CUDA_ERROR_INVALID_HANDLE;
  if (array == NULL || level >= mipmap->count) return CUDA_ERROR_INVALID_VALUE;
  *array = mipmap->levels[level];
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!mipmap_alive(mipmap)) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  drop_mipmap(mipmap);
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 *needed,
                                               CUmipmappedArray mipmap, CUdevice device) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!mipmap_alive(mipmap)) return CUDA_ERROR_INVALID_HANDLE;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (needed == NULL || has_memory(mipmap->levels[0]->descriptor.flags)) return CUDA_ERROR_INVALID_VALUE;
  const struct CUarray_st *last = mipmap->levels[mipmap->count - 1];
  *needed = (CUDA_ARRAY_MEMORY_REQUIREMENTS_v1){.size = last->offset + last->slice * last->slices,
                                                .alignment = 65536};
  return CUDA_SUCCESS;
}
