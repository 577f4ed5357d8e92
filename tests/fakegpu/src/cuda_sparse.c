/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that have no memory of their own: sparse ones, whose tiles are mapped one by one, and those whose
 * mapping is deferred, as a whole (CUDA driver API manual, cuMemMapArrayAsync). What is mapped keeps its
 * handle's memory alive until it is unmapped or the array is destroyed. They hold no data here: copies from
 * and to them are refused.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { PART_LEVEL = 0, PART_TAIL = 1 };
enum { OPERATION_MAP = 1, OPERATION_UNMAP = 2 };
enum { USAGE_TILE_POOL = 1 };
enum { ARRAY_LAYERED = 1, ARRAY_SPARSE = 0x40, ARRAY_DEFERRED = 0x80, SINGLE_TAIL = 1 };
#define TILE_BYTES 65536u

struct tile {
  struct tile *next;
  const void *resource;
  unsigned part_type;
  CUsparseLevel level;
  CUsparseTail tail;
  CUmemHandle handle;
};

static struct tile *tiles;

static void drop(struct tile **link) {
  struct tile *gone = *link;
  *link = gone->next;
  gone->handle->mapped--;
  handle_settle(gone->handle);
  free(gone);
}

void sparse_forget(const void *resource) {
  for (struct tile **link = &tiles; *link != NULL;)
    if ((*link)->resource == resource)
      drop(link);
    else
      link = &(*link)->next;
}

static struct tile described(const CUarrayMapInfo_v1 *info) {
  struct tile tile = {.part_type = info->part_type};
  tile.resource = info->resource_type == RESOURCE_ARRAY ? (const void *)info->array : info->mipmap;
  if (info->part_type == PART_LEVEL)
    tile.level = info->level;
  else
    tile.tail = info->tail;
  return tile;
}

static struct tile **find(const struct tile *wanted) {
  struct tile **link = &tiles;
  for (; *link != NULL; link = &(*link)->next) {
    const struct tile *tile = *link;
    if (tile->resource == wanted->resource && tile->part_type == wanted->part_type &&
        memcmp(&tile->level, &wanted->level, sizeof tile->level) == 0 &&
        tile->tail.layer == wanted->tail.layer && tile->tail.offset == wanted->tail.offset &&
        tile->tail.bytes == wanted->tail.bytes)
      break;
  }
  return link;
}

/* The first level of what is mapped; NULL: no such thing, or one with memory of its own. */
static CUarray sparse_array(const CUarrayMapInfo_v1 *info) {
  CUarray array = info->resource_type == RESOURCE_ARRAY ? info->array : NULL;
  if (info->resource_type == RESOURCE_MIPMAP &&
      cuMipmappedArrayGetLevel(&array, info->mipmap, 0) != CUDA_SUCCESS)
    return NULL;
  if (array == NULL || array_resolve(array) != CUDA_SUCCESS) return NULL;
  return (array->descriptor.flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) != 0 ? array : NULL;
}

/* Under driver_lock. */
static CUresult apply(const CUarrayMapInfo_v1 *info) {
  struct tile wanted = described(info);
  struct tile **link = find(&wanted);
  if (info->operation == OPERATION_UNMAP) {
    if (*link == NULL) return CUDA_ERROR_INVALID_VALUE;
    drop(link);
    return CUDA_SUCCESS;
  }
  CUmemHandle handle = handle_of(info->handle);
  if (handle == NULL || handle->multicast != NULL || (handle->properties.usage & USAGE_TILE_POOL) == 0 ||
      info->offset >= handle->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (*link != NULL) drop(link); /* it takes the place of what was mapped there */
  struct tile *made = malloc(sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = wanted;
  made->handle = handle;
  made->next = tiles;
  tiles = made;
  handle->mapped++;
  return CUDA_SUCCESS;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo_v1 *maps, unsigned count, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (maps == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned index = 0; index < count; index++) {
    const CUarrayMapInfo_v1 *info = &maps[index];
    if (sparse_array(info) == NULL || info->part_type > PART_TAIL || info->flags != 0 ||
        info->handle_type != 0 || (info->operation != OPERATION_MAP && info->operation != OPERATION_UNMAP))
      return CUDA_ERROR_INVALID_VALUE;
  }
  driver_lock();
  for (unsigned index = 0; index < count && result == CUDA_SUCCESS; index++) result = apply(&maps[index]);
  driver_unlock();
  return result;
}

static unsigned cell_bytes(const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor, const struct CUarray_st *array) {
  return (unsigned)(array->row / descriptor->width);
}

/* Tiles of 64 KiB, as square as they can be; their shape is a guess, as those of other interfaces. */
static void tile_shape(const struct CUarray_st *array, CUDA_ARRAY_SPARSE_PROPERTIES_v1 *properties) {
  const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor = &array->descriptor;
  unsigned cells = TILE_BYTES / cell_bytes(descriptor, array);
  bool solid = descriptor->depth > 1 && (descriptor->flags & ARRAY_LAYERED) == 0;
  unsigned side[3] = {1, 1, 1};
  for (unsigned axis = 0; cells > 1; axis = (axis + 1) % (solid ? 3 : 2), cells /= 2) side[axis] *= 2;
  properties->tile_width = side[0];
  properties->tile_height = side[1];
  properties->tile_depth = side[2];
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES_v1 *properties, CUarray array) {
  CUresult result = array_resolve(array);
  if (result != CUDA_SUCCESS) return result;
  if (properties == NULL || (array->descriptor.flags & ARRAY_SPARSE) == 0) return CUDA_ERROR_INVALID_VALUE;
  *properties = (CUDA_ARRAY_SPARSE_PROPERTIES_v1){.tail_first_level = 1};
  tile_shape(array, properties);
  return CUDA_SUCCESS;
}

/* The tail: the levels that are smaller than a tile, together. */
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES_v1 *properties,
                                             CUmipmappedArray mipmap) {
  CUarray level = NULL;
  CUresult result = cuMipmappedArrayGetLevel(&level, mipmap, 0);
  if (result == CUDA_SUCCESS) result = cuArrayGetSparseProperties(properties, level);
  if (result != CUDA_SUCCESS) return result;
  unsigned first = 0;
  uint64_t bytes = 0;
  for (unsigned index = 0; cuMipmappedArrayGetLevel(&level, mipmap, index) == CUDA_SUCCESS; index++) {
    const CUDA_ARRAY3D_DESCRIPTOR_v2 *size = &level->descriptor;
    bool small = size->width < properties->tile_width || size->height < properties->tile_height;
    if (small) bytes += level->slice * level->slices;
    if (!small) first = index + 1;
  }
  properties->tail_first_level = first;
  properties->tail_bytes = (bytes + TILE_BYTES - 1) / TILE_BYTES * TILE_BYTES;
  properties->flags = (level->descriptor.flags & ARRAY_LAYERED) == 0 ? SINGLE_TAIL : 0;
  return CUDA_SUCCESS;
}
