/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of cuda_types.h that only multicast objects, sparse arrays and green contexts need.
 */
#ifndef FAKEGPU_CUDA_TYPES_PARTS_H
#define FAKEGPU_CUDA_TYPES_PARTS_H

#include <assert.h>

typedef struct {
  unsigned device_count;
  size_t bytes;
  unsigned long long handle_types, flags;
} CUmulticastObjectProp_v1;

typedef struct {
  unsigned tile_width, tile_height, tile_depth;
  unsigned tail_first_level;
  unsigned long long tail_bytes;
  unsigned flags, reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES_v1;

typedef struct {
  unsigned level, layer, x, y, z, width, height, depth;
} CUsparseLevel;

typedef struct {
  unsigned layer;
  unsigned long long offset, bytes;
} CUsparseTail;

typedef struct {
  unsigned resource_type;
  union {
    CUmipmappedArray mipmap;
    CUarray array;
  };
  unsigned part_type;
  union {
    CUsparseLevel level;
    CUsparseTail tail;
  };
  unsigned operation, handle_type;
  CUmemGenericAllocationHandle handle;
  unsigned long long offset;
  unsigned devices, flags, reserved[2];
} CUarrayMapInfo_v1;
static_assert(sizeof(CUarrayMapInfo_v1) == 96, "as in cuda.h");

typedef struct {
  unsigned sm_count, smallest_part, alignment, flags, locality;
} CUdevSmResource;

typedef struct CUdevResource_st {
  unsigned type;
  unsigned char card[92]; /* internal; here the unit that it is of */
  union {
    CUdevSmResource sm;
    unsigned char widest[40];
  };
  struct CUdevResource_st *next;
} CUdevResource;
static_assert(sizeof(CUdevResource) == 144, "as in cuda.h");

typedef struct CUdevResourceDesc_st *CUdevResourceDesc;

typedef struct {
  unsigned sm_count, coscheduled, preferred_coscheduled, flags, locality, reserved[11];
} CU_DEV_SM_RESOURCE_GROUP_PARAMS;

#endif
