/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of cuda_types.h that only textures, surfaces and tensor maps need.
 */
#ifndef FAKEGPU_CUDA_TYPES_TEXTURES_H
#define FAKEGPU_CUDA_TYPES_TEXTURES_H

typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef struct CUtexref_st *CUtexref;
typedef struct {
  _Alignas(64) uint64_t words[16]; /* of 128 bytes since CUDA 13 */
} CUtensorMap;
typedef struct CUsurfref_st *CUsurfref;

enum { RESOURCE_ARRAY, RESOURCE_MIPMAP, RESOURCE_LINEAR, RESOURCE_PITCHED };

typedef struct {
  unsigned type;
  union {
    CUarray array;
    CUmipmappedArray mipmap;
    struct {
      CUdeviceptr address;
      CUarray_format format;
      unsigned channels;
      size_t bytes;
    } linear;
    struct {
      CUdeviceptr address;
      CUarray_format format;
      unsigned channels;
      size_t width, height, pitch;
    } pitched;
    int reserved[32];
  };
  unsigned flags;
} CUDA_RESOURCE_DESC_v1;

typedef struct {
  unsigned address_modes[3], filter, flags, anisotropy, mipmap_filter;
  float bias, least_level, most_level, border[4];
  int reserved[12];
} CUDA_TEXTURE_DESC_v1;

typedef struct {
  unsigned format;
  size_t width, height, depth;
  unsigned first_level, last_level, first_layer, last_layer, reserved[16];
} CUDA_RESOURCE_VIEW_DESC_v1;

#endif
