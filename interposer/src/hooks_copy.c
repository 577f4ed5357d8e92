/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies within a card and fills: the driver does them by kernels, so they are launches like others, each
 * spelling a function whose grid is the number of bytes. What goes to or from the host, or to another card, is
 * passed on. */
#include "hooks.h"
#include "launch_hook.h"

struct end {
  int type, device;
};

/* What the driver knows of an address; the host's own memory is of no type. */
static struct end end_of(CUdeviceptr address) {
  struct end end = {0, -1};
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *values[] = {&end.type, &end.device};
  if (DRIVER(cuPointerGetAttributes)(2, attributes, values, address) != CUDA_SUCCESS) end.type = 0;
  return end;
}

static bool within_a_card(CUdeviceptr target, CUdeviceptr source) {
  struct end to = end_of(target);
  if (to.type != CU_MEMORYTYPE_DEVICE) return false;
  struct end from = end_of(source);
  return from.type == CU_MEMORYTYPE_DEVICE && from.device == to.device;
}

static bool is_of_a_card(int type, CUdeviceptr address) {
  if (type == CU_MEMORYTYPE_UNIFIED) return end_of(address).type == CU_MEMORYTYPE_DEVICE;
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY;
}

static bool end_is_of_a_card(const struct cuda_copy_end *end) {
  return end->type == CU_MEMCPY_OPERAND_TYPE_ARRAY || end_of(end->address).type == CU_MEMORYTYPE_DEVICE;
}

/* Copies of one batch go the same way, as a rule. */
static bool batch_is_within_a_card(const CUdeviceptr *targets, const CUdeviceptr *sources, size_t count) {
  return targets != NULL && sources != NULL && count != 0 && within_a_card(targets[0], sources[0]);
}

static uint64_t sum(const size_t *sizes, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; sizes != NULL && i < count; i++) bytes += sizes[i];
  return bytes;
}

static uint64_t volume(const struct cuda_copy3d_batched *copies, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += product(copies[i].width, copies[i].height, copies[i].depth);
  return bytes;
}

/* `within` is asked only where launches are limited. */
#define COPY(symbol, parameters, within, bytes, stream, per_thread, arguments)        \
  CUresult symbol parameters {                                                        \
    if (inside_driver || throttle_is_free() || !throttle_is_due(stream) || !(within)) \
      return REAL(symbol) arguments;                                                  \
    const void *function = (const void *)symbol;                                      \
    uint64_t size = (bytes);                                                          \
    if (throttle_is_paid(function, size)) return IN_DRIVER(REAL(symbol) arguments);   \
    struct launch launch = throttle_begin(function, size, stream, per_thread);        \
    return throttle_end(&launch, IN_DRIVER(REAL(symbol) arguments));                  \
  }

/* --- fills ---------------------------------------------------------------------------------------------- */

#define FILL_LINE(symbol, address, size, type, stream, per_thread)                                         \
  LAUNCH(symbol, (address target, type value, size count), symbol, (uint64_t)count * sizeof value, stream, \
         per_thread, (target, value, count))
#define FILL_LINE_ASYNC(symbol, type, per_thread)                                         \
  LAUNCH(symbol, (CUdeviceptr target, type value, size_t count, CUstream stream), symbol, \
         (uint64_t)count * sizeof value, stream, per_thread, (target, value, count, stream))
#define FILL_BOX(symbol, address, size, type, per_thread)                                   \
  LAUNCH(symbol, (address target, size pitch, type value, size width, size height), symbol, \
         product(width, height, sizeof value), NULL, per_thread, (target, pitch, value, width, height))
#define FILL_BOX_ASYNC(symbol, type, per_thread)                                                       \
  LAUNCH(symbol,                                                                                       \
         (CUdeviceptr target, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
         symbol, product(width, height, sizeof value), stream, per_thread,                             \
         (target, pitch, value, width, height, stream))
#define FILLS(bits, type)                                                     \
  FILL_LINE(cuMemsetD##bits, CUdeviceptr_v1, unsigned int, type, NULL, false) \
  FILL_LINE(cuMemsetD##bits##_v2, CUdeviceptr, size_t, type, NULL, false)     \
  FILL_LINE(cuMemsetD##bits##_v2_ptds, CUdeviceptr, size_t, type, NULL, true) \
  FILL_LINE_ASYNC(cuMemsetD##bits##Async, type, false)                        \
  FILL_LINE_ASYNC(cuMemsetD##bits##Async_ptsz, type, true)                    \
  FILL_BOX(cuMemsetD2D##bits, CUdeviceptr_v1, unsigned int, type, false)      \
  FILL_BOX(cuMemsetD2D##bits##_v2, CUdeviceptr, size_t, type, false)          \
  FILL_BOX(cuMemsetD2D##bits##_v2_ptds, CUdeviceptr, size_t, type, true)      \
  FILL_BOX_ASYNC(cuMemsetD2D##bits##Async, type, false)                       \
  FILL_BOX_ASYNC(cuMemsetD2D##bits##Async_ptsz, type, true)
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

/* --- one after another ---------------------------------------------------------------------------------- */

#define LINE(symbol, address, size, per_thread)                                                          \
  COPY(symbol, (address target, address source, size bytes), within_a_card(target, source), bytes, NULL, \
       per_thread, (target, source, bytes))
#define LINE_ASYNC(symbol, address, size, per_thread)                                                        \
  COPY(symbol, (address target, address source, size bytes, CUstream stream), within_a_card(target, source), \
       bytes, stream, per_thread, (target, source, bytes, stream))
#define LINE_BY_ATTRIBUTES(symbol, per_thread)                                                            \
  COPY(symbol, (CUdeviceptr target, CUdeviceptr source, size_t bytes, void *attributes, CUstream stream), \
       within_a_card(target, source), bytes, stream, per_thread,                                          \
       (target, source, bytes, attributes, stream))
LINE(cuMemcpyDtoD, CUdeviceptr_v1, unsigned int, false)
LINE(cuMemcpyDtoD_v2, CUdeviceptr, size_t, false)
LINE(cuMemcpyDtoD_v2_ptds, CUdeviceptr, size_t, true)
LINE(cuMemcpy, CUdeviceptr, size_t, false)
LINE(cuMemcpy_ptds, CUdeviceptr, size_t, true)
LINE_ASYNC(cuMemcpyDtoDAsync, CUdeviceptr_v1, unsigned int, false)
LINE_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, size_t, false)
LINE_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, CUdeviceptr, size_t, true)
LINE_ASYNC(cuMemcpyAsync, CUdeviceptr, size_t, false)
LINE_ASYNC(cuMemcpyAsync_ptsz, CUdeviceptr, size_t, true)
LINE_BY_ATTRIBUTES(cuMemcpyWithAttributesAsync, false)
LINE_BY_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz, true)

#define BATCH                                                                                                \
  CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count, void *attributes, size_t *places, \
      size_t attribute_count
#define BATCH_V1(symbol, per_thread)                                                                      \
  COPY(symbol, (BATCH, size_t *failed, CUstream stream), batch_is_within_a_card(targets, sources, count), \
       sum(sizes, count), stream, per_thread,                                                             \
       (targets, sources, sizes, count, attributes, places, attribute_count, failed, stream))
#define BATCH_V2(symbol, per_thread)                                                                         \
  COPY(symbol, (BATCH, CUstream stream), batch_is_within_a_card(targets, sources, count), sum(sizes, count), \
       stream, per_thread, (targets, sources, sizes, count, attributes, places, attribute_count, stream))
BATCH_V1(cuMemcpyBatchAsync, false)
BATCH_V1(cuMemcpyBatchAsync_ptsz, true)
BATCH_V2(cuMemcpyBatchAsync_v2, false)
BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, true)

/* --- boxes ---------------------------------------------------------------------------------------------- */

#define BOX_IS_WITHIN                                                     \
  ((copy) != NULL && is_of_a_card((copy)->target_type, (copy)->target) && \
   is_of_a_card((copy)->source_type, (copy)->source))
#define BOX_2D(symbol, version, per_thread)                                                              \
  COPY(symbol, (const struct version *copy), BOX_IS_WITHIN, product(copy->width, copy->height, 1), NULL, \
       per_thread, (copy))
#define BOX_2D_ASYNC(symbol, version, per_thread)                            \
  COPY(symbol, (const struct version *copy, CUstream stream), BOX_IS_WITHIN, \
       product(copy->width, copy->height, 1), stream, per_thread, (copy, stream))
#define BOX_3D(symbol, version, per_thread)                                                                  \
  COPY(symbol, (const struct version *copy), BOX_IS_WITHIN, product(copy->width, copy->height, copy->depth), \
       NULL, per_thread, (copy))
#define BOX_3D_ASYNC(symbol, version, per_thread)                            \
  COPY(symbol, (const struct version *copy, CUstream stream), BOX_IS_WITHIN, \
       product(copy->width, copy->height, copy->depth), stream, per_thread, (copy, stream))
BOX_2D(cuMemcpy2D, cuda_copy2d_v1, false)
BOX_2D(cuMemcpy2D_v2, cuda_copy2d, false)
BOX_2D(cuMemcpy2D_v2_ptds, cuda_copy2d, true)
BOX_2D(cuMemcpy2DUnaligned, cuda_copy2d_v1, false)
BOX_2D(cuMemcpy2DUnaligned_v2, cuda_copy2d, false)
BOX_2D(cuMemcpy2DUnaligned_v2_ptds, cuda_copy2d, true)
BOX_2D_ASYNC(cuMemcpy2DAsync, cuda_copy2d_v1, false)
BOX_2D_ASYNC(cuMemcpy2DAsync_v2, cuda_copy2d, false)
BOX_2D_ASYNC(cuMemcpy2DAsync_v2_ptsz, cuda_copy2d, true)
BOX_3D(cuMemcpy3D, cuda_copy3d_v1, false)
BOX_3D(cuMemcpy3D_v2, cuda_copy3d, false)
BOX_3D(cuMemcpy3D_v2_ptds, cuda_copy3d, true)
BOX_3D_ASYNC(cuMemcpy3DAsync, cuda_copy3d_v1, false)
BOX_3D_ASYNC(cuMemcpy3DAsync_v2, cuda_copy3d, false)
BOX_3D_ASYNC(cuMemcpy3DAsync_v2_ptsz, cuda_copy3d, true)

#define BOXES_ARE_WITHIN               \
  ((copies) != NULL && (count) != 0 && \
   end_is_of_a_card(&(copies)->target) && end_is_of_a_card(&(copies)->source))
#define BOXES_V1(symbol, per_thread)                                                                \
  COPY(symbol,                                                                                      \
       (size_t count, struct cuda_copy3d_batched *copies, size_t *failed, unsigned long long flags, \
        CUstream stream),                                                                           \
       BOXES_ARE_WITHIN, volume(copies, count), stream, per_thread, (count, copies, failed, flags, stream))
#define BOXES_V2(symbol, per_thread)                                                                  \
  COPY(symbol,                                                                                        \
       (size_t count, struct cuda_copy3d_batched *copies, unsigned long long flags, CUstream stream), \
       BOXES_ARE_WITHIN, volume(copies, count), stream, per_thread, (count, copies, flags, stream))
#define BOX_BY_ATTRIBUTES(symbol, per_thread)                                                               \
  COPY(symbol, (struct cuda_copy3d_batched * copy, unsigned long long flags, CUstream stream),              \
       copy != NULL && end_is_of_a_card(&copy->target) && end_is_of_a_card(&copy->source), volume(copy, 1), \
       stream, per_thread, (copy, flags, stream))
BOXES_V1(cuMemcpy3DBatchAsync, false)
BOXES_V1(cuMemcpy3DBatchAsync_ptsz, true)
BOXES_V2(cuMemcpy3DBatchAsync_v2, false)
BOXES_V2(cuMemcpy3DBatchAsync_v2_ptsz, true)
BOX_BY_ATTRIBUTES(cuMemcpy3DWithAttributesAsync, false)
BOX_BY_ATTRIBUTES(cuMemcpy3DWithAttributesAsync_ptsz, true)

/* --- arrays --------------------------------------------------------------------------------------------- */

#define ARRAYS(symbol, size, per_thread)                                                               \
  LAUNCH(symbol, (CUarray target, size target_offset, CUarray source, size source_offset, size bytes), \
         symbol, bytes, NULL, per_thread, (target, target_offset, source, source_offset, bytes))
#define FROM_ARRAY(symbol, address, size, per_thread)                                                        \
  LAUNCH(symbol, (address target, CUarray source, size offset, size bytes), symbol, bytes, NULL, per_thread, \
         (target, source, offset, bytes))
#define TO_ARRAY(symbol, address, size, per_thread)                                                          \
  LAUNCH(symbol, (CUarray target, size offset, address source, size bytes), symbol, bytes, NULL, per_thread, \
         (target, offset, source, bytes))
ARRAYS(cuMemcpyAtoA, unsigned int, false)
ARRAYS(cuMemcpyAtoA_v2, size_t, false)
ARRAYS(cuMemcpyAtoA_v2_ptds, size_t, true)
FROM_ARRAY(cuMemcpyAtoD, CUdeviceptr_v1, unsigned int, false)
FROM_ARRAY(cuMemcpyAtoD_v2, CUdeviceptr, size_t, false)
FROM_ARRAY(cuMemcpyAtoD_v2_ptds, CUdeviceptr, size_t, true)
TO_ARRAY(cuMemcpyDtoA, CUdeviceptr_v1, unsigned int, false)
TO_ARRAY(cuMemcpyDtoA_v2, CUdeviceptr, size_t, false)
TO_ARRAY(cuMemcpyDtoA_v2_ptds, CUdeviceptr, size_t, true)
