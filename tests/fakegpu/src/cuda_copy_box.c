/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of rectangles and boxes between host, device and arrays, fills of rectangles, and copies between
 * devices. A box is rows of bytes, `pitch` apart, in slices, `slice` apart.
 */
#include "driver.h"

#include <string.h>

enum { MEMORY_HOST = 1, MEMORY_DEVICE, MEMORY_ARRAY, MEMORY_UNIFIED };

/* One end of a copy, as the descriptions of all sizes say it. */
struct end {
  size_t x, y, z;
  unsigned type;
  const void *host;
  CUdeviceptr device;
  CUarray array;
  size_t pitch, height;
};

struct box {
  size_t width, height, depth; /* width in bytes */
};

/* Where the first byte of the box lies at one end; NULL: not all of the box is there. Under driver_lock. */
static char *place(const struct end *end, struct box box, size_t *pitch, size_t *slice) {
  if (end->type == MEMORY_ARRAY) {
    CUarray array = end->array;
    if (array_resolve(array) != CUDA_SUCCESS || array->block == NULL || !address_open(array->block))
      return NULL;
    if (end->x + box.width > array->row || end->y + box.height > array->rows ||
        end->z + box.depth > array->slices)
      return NULL;
    *pitch = array->pitch;
    *slice = array->slice;
    CUdeviceptr start =
        array->block->base + array->offset + end->z * array->slice + end->y * array->pitch + end->x;
    return (char *)(uintptr_t)start;  // NOLINT(performance-no-int-to-ptr)
  }
  *pitch = end->pitch;
  *slice = end->pitch * (end->height == 0 ? end->y + box.height : end->height);
  if (box.height > 1 && *pitch < end->x + box.width) return NULL;
  size_t skipped = end->z * *slice + end->y * *pitch + end->x;
  size_t bytes = (box.depth - 1) * *slice + (box.height - 1) * *pitch + box.width;
  bool device = end->type == MEMORY_DEVICE;
  CUdeviceptr base = end->type == MEMORY_HOST ? (CUdeviceptr)(uintptr_t)end->host : end->device;
  return base == 0 ? NULL : memory_reach(base + skipped, bytes, device);
}

static bool on_card(const struct end *end, uint32_t card) {
  if (end->type == MEMORY_ARRAY) return end->array->block->card == card;
  return end->type != MEMORY_HOST && memory_on_card(end->device, card);
}

static CUDA_MEMCPY3D_v2 described(const struct end *to, const struct end *from, struct box box) {
  return (CUDA_MEMCPY3D_v2){.source_x = from->x,
                            .source_y = from->y,
                            .source_z = from->z,
                            .source_type = from->type,
                            .source_host = from->host,
                            .source_device = from->device,
                            .source_array = from->array,
                            .source_pitch = from->pitch,
                            .source_height = from->height,
                            .target_x = to->x,
                            .target_y = to->y,
                            .target_z = to->z,
                            .target_type = to->type,
                            .target_host = (void *)(uintptr_t)to->host,  // NOLINT(performance-no-int-to-ptr)
                            .target_device = to->device,
                            .target_array = to->array,
                            .target_pitch = to->pitch,
                            .target_height = to->height,
                            .width = box.width,
                            .height = box.height,
                            .depth = box.depth};
}

static CUresult copy(const struct end *to, const struct end *from, struct box box, CUstream handle,
                     bool synchronous) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (box.width == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  if (to->type - 1u >= MEMORY_UNIFIED || from->type - 1u >= MEMORY_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  if (capture_any()) {
    bool captured = false;
    CUgraphNodeParams node = {.type = NODE_MEMCPY};
    node.copy.copy = described(to, from, box);
    result = capture_work(context, stream, &node, false, &captured);
    if (result != CUDA_SUCCESS || captured) return result;
  }
  size_t to_pitch = 0, to_slice = 0, from_pitch = 0, from_slice = 0;
  driver_lock();
  char *target = place(to, box, &to_pitch, &to_slice);
  const char *source = place(from, box, &from_pitch, &from_slice);
  bool there = target != NULL && source != NULL;
  bool within = there && on_card(to, context->card) && on_card(from, context->card);
  driver_unlock();
  if (!there) return CUDA_ERROR_INVALID_VALUE;
  if (within) result = copy_run(context, stream, (uint64_t)box.width * box.height * box.depth);
  if (result != CUDA_SUCCESS) return result;
  if (synchronous) timeline_wait(context->card, stream_newest(context, stream));
  for (size_t z = 0; z < box.depth; z++)
    for (size_t y = 0; y < box.height; y++)
      memmove(target + z * to_slice + y * to_pitch, source + z * from_slice + y * from_pitch, box.width);
  return CUDA_SUCCESS;
}

static CUresult copy_flat(const CUDA_MEMCPY2D_v2 *c, CUstream stream, bool synchronous) {
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct end to = {c->target_x,     c->target_y,     0, c->target_type, c->target_host, c->target_device,
                   c->target_array, c->target_pitch, 0};
  struct end from = {c->source_x,     c->source_y,     0, c->source_type, c->source_host, c->source_device,
                     c->source_array, c->source_pitch, 0};
  return copy(&to, &from, (struct box){c->width, c->height, 1}, stream, synchronous);
}

/* The description between devices has the same layout: contexts stand where this one keeps reserved words. */
static CUresult copy_box(const CUDA_MEMCPY3D_v2 *c, CUstream stream, bool synchronous) {
  if (c == NULL || c->source_level != 0 || c->target_level != 0) return CUDA_ERROR_INVALID_VALUE;
  struct end to = {c->target_x,      c->target_y,     c->target_z,     c->target_type,  c->target_host,
                   c->target_device, c->target_array, c->target_pitch, c->target_height};
  struct end from = {c->source_x,      c->source_y,     c->source_z,     c->source_type,  c->source_host,
                     c->source_device, c->source_array, c->source_pitch, c->source_height};
  return copy(&to, &from, (struct box){c->width, c->height, c->depth}, stream, synchronous);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D_v2 *c) { return copy_flat(c, NULL, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D_v2 *c) { return copy_flat(c, NULL, true); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D_v2 *c, CUstream stream) {
  return copy_flat(c, stream, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D_v2 *c) { return copy_box(c, NULL, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D_v2 *c, CUstream stream) { return copy_box(c, stream, false); }
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_v2 *c) { return copy_box(c, NULL, true); }
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_v2 *c, CUstream stream) {
  return copy_box(c, stream, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                           CUcontext source_context, size_t bytes, CUstream stream) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context_alive(target_context) || !context_alive(source_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return cuMemcpyDtoDAsync_v2(target, source, bytes, stream);
}

CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                      CUcontext source_context, size_t bytes) {
  return cuMemcpyPeerAsync(target, target_context, source, source_context, bytes, NULL);
}

/* Arrays as one row of bytes: all their rows without the padding, one after another. */
static struct end row_of(CUarray array, size_t offset) {
  size_t row = array_resolve(array) == CUDA_SUCCESS ? array->row : 1;
  return (struct end){.x = offset % row, .y = offset / row, .type = MEMORY_ARRAY, .array = array};
}

static struct end flat(unsigned type, const void *host, CUdeviceptr device) {
  return (struct end){.type = type, .host = host, .device = device};
}

static void skip(struct end *end, size_t bytes, size_t row) {
  if (end->type != MEMORY_ARRAY) {
    end->x += bytes;
    return;
  }
  end->x = (end->x + bytes) % row;
  if (end->x == 0) end->y++;
}

static size_t room(const struct end *end, size_t bytes) {
  if (end->type != MEMORY_ARRAY || array_resolve(end->array) != CUDA_SUCCESS) return bytes;
  size_t left = end->array->row - end->x;
  return left < bytes ? left : bytes;
}

static CUresult copy_row(struct end to, struct end from, size_t bytes, CUstream stream, bool synchronous) {
  CUresult result = CUDA_SUCCESS;
  while (bytes > 0 && result == CUDA_SUCCESS) {
    size_t step = room(&to, room(&from, bytes));
    result = copy(&to, &from, (struct box){step, 1, 1}, stream, synchronous);
    if (result != CUDA_SUCCESS) break;
    if (to.type == MEMORY_ARRAY || from.type == MEMORY_ARRAY) {
      skip(&to, step, to.type == MEMORY_ARRAY ? to.array->row : 1);
      skip(&from, step, from.type == MEMORY_ARRAY ? from.array->row : 1);
    }
    bytes -= step;
  }
  return result;
}

CUresult cuMemcpyDtoA_v2(CUarray target, size_t offset, CUdeviceptr source, size_t bytes) {
  return copy_row(row_of(target, offset), flat(MEMORY_DEVICE, NULL, source), bytes, NULL, true);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr target, CUarray source, size_t offset, size_t bytes) {
  return copy_row(flat(MEMORY_DEVICE, NULL, target), row_of(source, offset), bytes, NULL, true);
}
CUresult cuMemcpyHtoA_v2(CUarray target, size_t offset, const void *source, size_t bytes) {
  return copy_row(row_of(target, offset), flat(MEMORY_HOST, source, 0), bytes, NULL, true);
}
CUresult cuMemcpyAtoH_v2(void *target, CUarray source, size_t offset, size_t bytes) {
  return copy_row(flat(MEMORY_HOST, target, 0), row_of(source, offset), bytes, NULL, true);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray target, size_t offset, const void *source, size_t bytes,
                              CUstream stream) {
  return copy_row(row_of(target, offset), flat(MEMORY_HOST, source, 0), bytes, stream, false);
}
CUresult cuMemcpyAtoHAsync_v2(void *target, CUarray source, size_t offset, size_t bytes, CUstream stream) {
  return copy_row(flat(MEMORY_HOST, target, 0), row_of(source, offset), bytes, stream, false);
}
CUresult cuMemcpyAtoA_v2(CUarray target, size_t target_offset, CUarray source, size_t source_offset,
                         size_t bytes) {
  return copy_row(row_of(target, target_offset), row_of(source, source_offset), bytes, NULL, true);
}

static CUresult fill(CUdeviceptr target, size_t pitch, const void *value, size_t cell, struct box box,
                     CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (box.width == 0 || box.height == 0) return CUDA_SUCCESS;
  if (target % cell != 0 || (box.height > 1 && (pitch % cell != 0 || pitch < box.width * cell)))
    return CUDA_ERROR_INVALID_VALUE;
  bool captured = false;
  CUgraphNodeParams node = {.type = NODE_MEMSET};
  node.fill = (CUDA_MEMSET_NODE_PARAMS_v1){.target = target,
                                           .pitch = pitch,
                                           .element_bytes = (unsigned)cell,
                                           .width = box.width,
                                           .height = box.height};
  memcpy(&node.fill.value, value, cell);
  result = capture_work(context, stream, &node, false, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  driver_lock();
  char *first = target == 0 ? NULL : memory_reach(target, (box.height - 1) * pitch + box.width * cell, true);
  driver_unlock();
  if (first == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = copy_run(context, stream, (uint64_t)box.width * box.height * cell);
  if (result != CUDA_SUCCESS) return result;
  for (size_t y = 0; y < box.height; y++)
    for (size_t x = 0; x < box.width; x++) memcpy(first + y * pitch + x * cell, value, cell);
  return CUDA_SUCCESS;
}

#define FILL(bits, type)                                                                        \
  CUresult cuMemsetD2D##bits##Async(CUdeviceptr target, size_t pitch, type value, size_t width, \
                                    size_t height, CUstream stream) {                           \
    return fill(target, pitch, &value, sizeof value, (struct box){width, height, 1}, stream);   \
  }                                                                                             \
  CUresult cuMemsetD2D##bits##_v2(CUdeviceptr target, size_t pitch, type value, size_t width,   \
                                  size_t height) {                                              \
    return fill(target, pitch, &value, sizeof value, (struct box){width, height, 1}, NULL);     \
  }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)
