/* SPDX-License-Identifier: Apache-2.0
 *
 * Texture and surface objects (CUDA driver API manual, "Texture Object Management"): what they are made of is
 * checked and kept, to be asked for. They take nothing of the card (a guess: the real ones have places in a
 * table that belongs to the context). Kernels read nothing through them.
 */
#include "driver.h"

#include <stdlib.h>

enum { ARRAY_SURFACE = 2 };

struct view {
  struct view *next;
  bool surface;
  bool has_view;
  CUDA_RESOURCE_DESC_v1 resource;
  CUDA_TEXTURE_DESC_v1 texture;
  CUDA_RESOURCE_VIEW_DESC_v1 view;
};

static struct view *views; /* one more is put in front, under driver_lock */

/* Objects are addresses: one that never was a view must not be followed. */
static struct view *find(unsigned long long object, bool surface) {
  struct view *view = views;
  while (view != NULL && (unsigned long long)(uintptr_t)view != object) view = view->next;
  return view != NULL && view->surface == surface ? view : NULL;
}

static bool memory_there(CUdeviceptr address, uint64_t bytes) {
  const struct block *block = bytes == 0 ? NULL : address_find(address);
  return block != NULL && bytes <= block->bytes - (address - block->base);
}

static CUresult check(const CUDA_RESOURCE_DESC_v1 *resource, bool surface) {
  CUarray level = NULL;
  if (resource == NULL || resource->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (surface && resource->type != RESOURCE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  switch (resource->type) {
    case RESOURCE_ARRAY:
      if (array_resolve(resource->array) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
      return surface && (resource->array->descriptor.flags & ARRAY_SURFACE) == 0 ? CUDA_ERROR_INVALID_VALUE
                                                                               : CUDA_SUCCESS;
    case RESOURCE_MIPMAP:
      return cuMipmappedArrayGetLevel(&level, resource->mipmap, 0);
    case RESOURCE_LINEAR:
      return memory_there(resource->linear.address, resource->linear.bytes) ? CUDA_SUCCESS
                                                                            : CUDA_ERROR_INVALID_VALUE;
    case RESOURCE_PITCHED:
      return memory_there(resource->pitched.address, resource->pitched.pitch * resource->pitched.height)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

static CUresult create(unsigned long long *object, const struct view *wish) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  struct view *made = malloc(sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = *wish;
  driver_lock();
  result = check(&made->resource, made->surface);
  if (result == CUDA_SUCCESS) {
    made->next = views;
    views = made;
    *object = (unsigned long long)(uintptr_t)made;
  }
  driver_unlock();
  if (result != CUDA_SUCCESS) free(made);
  return result;
}

static CUresult destroy(unsigned long long object, bool surface) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  struct view *gone = find(object, surface);
  for (struct view **link = &views; gone != NULL && *link != NULL; link = &(*link)->next)
    if (*link == gone) {
      *link = gone->next;
      break;
    }
  driver_unlock();
  free(gone);
  return gone == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* A copy of what the object was made of; false: there is no such object. */
static bool look(unsigned long long object, bool surface, struct view *found) {
  if (driver_ready() != CUDA_SUCCESS) return false;
  driver_lock();
  const struct view *view = find(object, surface);
  if (view != NULL) *found = *view;
  driver_unlock();
  return view != NULL;
}

CUresult cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC_v1 *resource,
                           const CUDA_TEXTURE_DESC_v1 *texture, const CUDA_RESOURCE_VIEW_DESC_v1 *view) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (object == NULL || resource == NULL || texture == NULL) return CUDA_ERROR_INVALID_VALUE;
  /* The manual: a view is of an array. */
  if (view != NULL && resource->type > RESOURCE_MIPMAP) return CUDA_ERROR_INVALID_VALUE;
  struct view wish = {.resource = *resource, .texture = *texture, .has_view = view != NULL};
  if (view != NULL) wish.view = *view;
  return create(object, &wish);
}

CUresult cuTexObjectDestroy(CUtexObject object) { return destroy(object, false); }

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC_v1 *resource, CUtexObject object) {
  struct view found;
  if (resource == NULL || !look(object, false, &found)) return CUDA_ERROR_INVALID_VALUE;
  *resource = found.resource;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC_v1 *texture, CUtexObject object) {
  struct view found;
  if (texture == NULL || !look(object, false, &found)) return CUDA_ERROR_INVALID_VALUE;
  *texture = found.texture;
  return CUDA_SUCCESS;
}

/* The manual: an error where the object was made without one. */
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC_v1 *view, CUtexObject object) {
  struct view found;
  if (view == NULL || !look(object, false, &found) || !found.has_view) return CUDA_ERROR_INVALID_VALUE;
  *view = found.view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC_v1 *resource) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (object == NULL || resource == NULL) return CUDA_ERROR_INVALID_VALUE;
  return create(object, &(struct view){.surface = true, .resource = *resource});
}

CUresult cuSurfObjectDestroy(CUsurfObject object) { return destroy(object, true); }

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC_v1 *resource, CUsurfObject object) {
  struct view found;
  if (resource == NULL || !look(object, true, &found)) return CUDA_ERROR_INVALID_VALUE;
  *resource = found.resource;
  return CUDA_SUCCESS;
}
