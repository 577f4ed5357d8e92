/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: texture and surface objects and references.
 */
#ifndef FAKEGPU_CUDA_TABLE_TEXTURES_H
#define FAKEGPU_CUDA_TABLE_TEXTURES_H

/* clang-format off */
#define CUDA_TEXTURES(PLAIN, STREAM)                                                                         \
  PLAIN(cuTexObjectCreate, 5000, cuTexObjectCreate, (CUtexObject *object, const CUDA_RESOURCE_DESC_v1        \
      *resource, const CUDA_TEXTURE_DESC_v1 *texture, const CUDA_RESOURCE_VIEW_DESC_v1 *view))               \
  PLAIN(cuTexObjectDestroy, 5000, cuTexObjectDestroy, (CUtexObject object))                                  \
  PLAIN(cuTexObjectGetResourceDesc, 5000, cuTexObjectGetResourceDesc, (CUDA_RESOURCE_DESC_v1 *resource,      \
      CUtexObject object))                                                                                   \
  PLAIN(cuTexObjectGetTextureDesc, 5000, cuTexObjectGetTextureDesc, (CUDA_TEXTURE_DESC_v1 *texture,          \
      CUtexObject object))                                                                                   \
  PLAIN(cuTexObjectGetResourceViewDesc, 5000, cuTexObjectGetResourceViewDesc, (CUDA_RESOURCE_VIEW_DESC_v1    \
      *view, CUtexObject object))                                                                            \
  PLAIN(cuSurfObjectCreate, 5000, cuSurfObjectCreate, (CUsurfObject *object, const CUDA_RESOURCE_DESC_v1     \
      *resource))                                                                                            \
  PLAIN(cuSurfObjectDestroy, 5000, cuSurfObjectDestroy, (CUsurfObject object))                               \
  PLAIN(cuSurfObjectGetResourceDesc, 5000, cuSurfObjectGetResourceDesc, (CUDA_RESOURCE_DESC_v1 *resource,    \
      CUsurfObject object))                                                                                  \
  PLAIN(cuModuleGetTexRef, 2000, cuModuleGetTexRef, (CUtexref *reference, CUmodule module, const char        \
      *name))                                                                                                \
  PLAIN(cuModuleGetSurfRef, 3000, cuModuleGetSurfRef, (CUsurfref *reference, CUmodule module, const char     \
      *name))                                                                                                \
  PLAIN(cuParamSetTexRef, 2000, cuParamSetTexRef, (CUfunction function, int unit, CUtexref reference))       \
  PLAIN(cuSurfRefSetArray, 3000, cuSurfRefSetArray, (CUsurfref reference, CUarray array, unsigned flags))    \
  PLAIN(cuSurfRefGetArray, 3000, cuSurfRefGetArray, (CUarray *array, CUsurfref reference))                   \
  PLAIN(cuTexRefCreate, 2000, cuTexRefCreate, (CUtexref *reference))                                         \
  PLAIN(cuTexRefDestroy, 2000, cuTexRefDestroy, (CUtexref reference))                                        \
  PLAIN(cuTexRefSetArray, 2000, cuTexRefSetArray, (CUtexref reference, CUarray array, unsigned flags))       \
  PLAIN(cuTexRefGetArray, 2000, cuTexRefGetArray, (CUarray *array, CUtexref reference))                      \
  PLAIN(cuTexRefSetMipmappedArray, 5000, cuTexRefSetMipmappedArray, (CUtexref reference, CUmipmappedArray    \
      mipmap, unsigned flags))                                                                               \
  PLAIN(cuTexRefGetMipmappedArray, 5000, cuTexRefGetMipmappedArray, (CUmipmappedArray *mipmap, CUtexref      \
      reference))                                                                                            \
  PLAIN(cuTexRefSetAddress, 3020, cuTexRefSetAddress_v2, (size_t *offset, CUtexref reference, CUdeviceptr    \
      address, size_t bytes))                                                                                \
  PLAIN(cuTexRefSetAddress, 2000, cuTexRefSetAddress, (unsigned *offset, CUtexref reference,                 \
      CUdeviceptr_v1 address, unsigned bytes))                                                               \
  PLAIN(cuTexRefSetAddress2D, 4010, cuTexRefSetAddress2D_v3, (CUtexref reference, const                      \
      CUDA_ARRAY_DESCRIPTOR_v2 *descriptor, CUdeviceptr address, size_t pitch))                              \
  PLAIN(cuTexRefSetAddress2D, 3020, cuTexRefSetAddress2D_v2, (CUtexref reference, const                      \
      CUDA_ARRAY_DESCRIPTOR_v2 *descriptor, CUdeviceptr address, size_t pitch))                              \
  PLAIN(cuTexRefSetAddress2D, 2020, cuTexRefSetAddress2D, (CUtexref reference, const                         \
      CUDA_ARRAY_DESCRIPTOR_v1 *descriptor, CUdeviceptr_v1 address, unsigned pitch))                         \
  PLAIN(cuTexRefGetAddress, 3020, cuTexRefGetAddress_v2, (CUdeviceptr *address, CUtexref reference))         \
  PLAIN(cuTexRefGetAddress, 2000, cuTexRefGetAddress, (CUdeviceptr_v1 *address, CUtexref reference))         \
  PLAIN(cuTexRefSetFormat, 2000, cuTexRefSetFormat, (CUtexref reference, CUarray_format format, int          \
      channels))                                                                                             \
  PLAIN(cuTexRefGetFormat, 2000, cuTexRefGetFormat, (CUarray_format *format, int *channels, CUtexref         \
      reference))                                                                                            \
  PLAIN(cuTexRefSetAddressMode, 2000, cuTexRefSetAddressMode, (CUtexref reference, int dimension, unsigned   \
      mode))                                                                                                 \
  PLAIN(cuTexRefGetAddressMode, 2000, cuTexRefGetAddressMode, (unsigned *mode, CUtexref reference, int       \
      dimension))                                                                                            \
  PLAIN(cuTexRefSetFilterMode, 2000, cuTexRefSetFilterMode, (CUtexref reference, unsigned mode))             \
  PLAIN(cuTexRefGetFilterMode, 2000, cuTexRefGetFilterMode, (unsigned *mode, CUtexref reference))            \
  PLAIN(cuTexRefSetMipmapFilterMode, 5000, cuTexRefSetMipmapFilterMode, (CUtexref reference, unsigned        \
      mode))                                                                                                 \
  PLAIN(cuTexRefGetMipmapFilterMode, 5000, cuTexRefGetMipmapFilterMode, (unsigned *mode, CUtexref            \
      reference))                                                                                            \
  PLAIN(cuTexRefSetMipmapLevelBias, 5000, cuTexRefSetMipmapLevelBias, (CUtexref reference, float bias))      \
  PLAIN(cuTexRefGetMipmapLevelBias, 5000, cuTexRefGetMipmapLevelBias, (float *bias, CUtexref reference))     \
  PLAIN(cuTexRefSetMipmapLevelClamp, 5000, cuTexRefSetMipmapLevelClamp, (CUtexref reference, float least,    \
      float most))                                                                                           \
  PLAIN(cuTexRefGetMipmapLevelClamp, 5000, cuTexRefGetMipmapLevelClamp, (float *least, float *most,          \
      CUtexref reference))                                                                                   \
  PLAIN(cuTexRefSetMaxAnisotropy, 5000, cuTexRefSetMaxAnisotropy, (CUtexref reference, unsigned most))       \
  PLAIN(cuTexRefGetMaxAnisotropy, 5000, cuTexRefGetMaxAnisotropy, (int *most, CUtexref reference))           \
  PLAIN(cuTexRefSetBorderColor, 8000, cuTexRefSetBorderColor, (CUtexref reference, float *color))            \
  PLAIN(cuTexRefGetBorderColor, 8000, cuTexRefGetBorderColor, (float *color, CUtexref reference))            \
  PLAIN(cuTexRefSetFlags, 2000, cuTexRefSetFlags, (CUtexref reference, unsigned flags))                      \
  PLAIN(cuTexRefGetFlags, 2000, cuTexRefGetFlags, (unsigned *flags, CUtexref reference))
/* clang-format on */

#endif
