/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps (CUDA driver API manual, "Tensor Map Object Management"): a tensor's shape is checked by the
 * manual's rules and written down. What the 128 bytes of a real one hold is secret; here they are the address,
 * the kind, and the shape. No kernel reads them.
 */
#include "driver.h"

#include <string.h>

#define ATTRIBUTE_TENSOR_MAPS 127u
#define MOST_RANK 5u
#define MOST_SIDE (1ull << 31)
#define MOST_STRIDE (1ull << 40)
#define MOST_BOX 256u
#define MOST_STEP 8u
#define MOST_PIXELS 1024u
enum { INTERLEAVE_NONE, INTERLEAVE_16, INTERLEAVE_32, INTERLEAVES };
enum { SWIZZLE_NONE, SWIZZLE_32, SWIZZLE_64, SWIZZLE_128, SWIZZLES = 7 };
enum { PROMOTIONS = 4, FILLS = 2, FIRST_FLOAT = 6, PACKED_8 = 13, PACKED_16, PACKED_6_BITS, TYPES };

/* Bits of an element, by type. */
static const unsigned char bits[TYPES] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};

struct tensor {
  unsigned type, rank;
  void *address;
  const uint64_t *sides, *strides;
  const unsigned *steps;
  unsigned interleave, swizzle, promotion, fill;
};

static bool packed(unsigned type) { return type == PACKED_16 || type == PACKED_6_BITS; }

static bool aligned(const struct tensor *tensor, uint64_t number) {
  return number % (tensor->interleave == INTERLEAVE_32 || packed(tensor->type) ? 32u : 16u) == 0;
}

static bool good_sides(const struct tensor *tensor) {
  for (unsigned index = 0; index < tensor->rank; index++) {
    if (tensor->sides[index] == 0 || tensor->sides[index] > MOST_SIDE) return false;
    if (tensor->steps[index] == 0 || tensor->steps[index] > MOST_STEP) return false;
    if (index + 1 < tensor->rank &&
        (!aligned(tensor, tensor->strides[index]) || tensor->strides[index] >= MOST_STRIDE))
      return false;
  }
  if (packed(tensor->type)) return tensor->sides[0] % 128u == 0;
  return tensor->type != PACKED_8 || tensor->sides[0] % 2u == 0;
}

static bool good_kinds(const struct tensor *tensor, unsigned least_rank) {
  if (tensor->type >= TYPES || tensor->interleave >= INTERLEAVES || tensor->swizzle >= SWIZZLES ||
      tensor->promotion >= PROMOTIONS || tensor->fill >= FILLS)
    return false;
  if (tensor->interleave != INTERLEAVE_NONE && least_rank < 3) least_rank = 3;
  if (tensor->rank < least_rank || tensor->rank > MOST_RANK) return false;
  if (tensor->interleave == INTERLEAVE_32 && tensor->swizzle != SWIZZLE_32) return false;
  if (tensor->type == PACKED_6_BITS && tensor->interleave != INTERLEAVE_NONE) return false;
  return tensor->fill == 0 || (tensor->type >= FIRST_FLOAT && tensor->type < PACKED_8);
}

/* The inner side of what is loaded at once, against the span of the pattern that it is laid out in. */
static bool fits_swizzle(const struct tensor *tensor, unsigned elements) {
  unsigned bytes = elements * bits[tensor->type] / 8u;
  if (tensor->interleave != INTERLEAVE_NONE) return true;
  if (bytes % 16u != 0) return false;
  if (tensor->swizzle == SWIZZLE_NONE) return true;
  return bytes <= (tensor->swizzle == SWIZZLE_32 ? 32u : tensor->swizzle == SWIZZLE_64 ? 64u : 128u);
}

static CUresult check(const CUtensorMap *map, const struct tensor *tensor, unsigned least_rank) {
  CUcontext context = NULL;
  int can = 0;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS) result = cuDeviceGetAttribute(&can, ATTRIBUTE_TENSOR_MAPS, context->device);
  if (result != CUDA_SUCCESS) return result;
  if (can == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (map == NULL || (uintptr_t)map % _Alignof(CUtensorMap) != 0 || tensor->address == NULL || tensor->sides == NULL || tensor->steps == NULL ||
      (tensor->strides == NULL && tensor->rank > 1))
    return CUDA_ERROR_INVALID_VALUE;
  if (!good_kinds(tensor, least_rank) || !aligned(tensor, (uint64_t)(uintptr_t)tensor->address) ||
      !good_sides(tensor))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult encode(CUtensorMap *map, const struct tensor *tensor) {
  memset(map, 0, sizeof *map);
  map->words[0] = (uint64_t)(uintptr_t)tensor->address;
  map->words[1] = tensor->type | tensor->rank << 8 | tensor->interleave << 16 | tensor->swizzle << 24;
  memcpy(&map->words[2], tensor->sides, tensor->rank * sizeof tensor->sides[0]);
  if (tensor->rank > 1)
    memcpy(&map->words[2 + MOST_RANK], tensor->strides, (tensor->rank - 1) * sizeof tensor->strides[0]);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, unsigned type, unsigned rank, void *address,
                                const uint64_t *sides, const uint64_t *strides, const unsigned *box,
                                const unsigned *steps, unsigned interleave, unsigned swizzle,
                                unsigned promotion, unsigned fill) {
  struct tensor tensor = {type, rank, address, sides, strides, steps, interleave, swizzle, promotion, fill};
  CUresult result = check(map, &tensor, 1);
  if (result != CUDA_SUCCESS) return result;
  if (box == NULL || !fits_swizzle(&tensor, box[0])) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned index = 0; index < rank; index++)
    if (box[index] == 0 || box[index] > MOST_BOX) return CUDA_ERROR_INVALID_VALUE;
  if (packed(type) && box[0] != 128u) return CUDA_ERROR_INVALID_VALUE;
  return encode(map, &tensor);
}

static CUresult encode_pixels(CUtensorMap *map, const struct tensor *tensor, unsigned channels,
                              unsigned pixels) {
  CUresult result = check(map, tensor, 3);
  if (result != CUDA_SUCCESS) return result;
  if (channels == 0 || channels > MOST_BOX || pixels == 0 || pixels > MOST_PIXELS ||
      !fits_swizzle(tensor, channels))
    return CUDA_ERROR_INVALID_VALUE;
  return encode(map, tensor);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, unsigned type, unsigned rank, void *address,
                                 const uint64_t *sides, const uint64_t *strides, const int *lower,
                                 const int *upper, unsigned channels, unsigned pixels, const unsigned *steps,
                                 unsigned interleave, unsigned swizzle, unsigned promotion, unsigned fill) {
  struct tensor tensor = {type, rank, address, sides, strides, steps, interleave, swizzle, promotion, fill};
  if (driver_ready() == CUDA_SUCCESS && (lower == NULL || upper == NULL)) return CUDA_ERROR_INVALID_VALUE;
  return encode_pixels(map, &tensor, channels, pixels);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *map, unsigned type, unsigned rank, void *address,
                                     const uint64_t *sides, const uint64_t *strides, int lower, int upper,
                                     unsigned channels, unsigned pixels, const unsigned *steps,
                                     unsigned interleave, unsigned mode, unsigned swizzle, unsigned promotion,
                                     unsigned fill) {
  struct tensor tensor = {type, rank, address, sides, strides, steps, interleave, swizzle, promotion, fill};
  (void)lower;
  (void)upper;
  if (driver_ready() == CUDA_SUCCESS && mode > 1) return CUDA_ERROR_INVALID_VALUE;
  return encode_pixels(map, &tensor, channels, pixels);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (map == NULL || (uintptr_t)map % _Alignof(CUtensorMap) != 0 || address == NULL ||
      (uintptr_t)address % 16u != 0)
    return CUDA_ERROR_INVALID_VALUE;
  map->words[0] = (uint64_t)(uintptr_t)address;
  return CUDA_SUCCESS;
}
