/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: tensor maps, core dumps, logs, further queries.
 */
#ifndef FAKEGPU_CUDA_TABLE_FURTHER_H
#define FAKEGPU_CUDA_TABLE_FURTHER_H

/* clang-format off */
#define CUDA_FURTHER(PLAIN, STREAM)                                                                          \
  PLAIN(cuTensorMapEncodeTiled, 12000, cuTensorMapEncodeTiled, (CUtensorMap *map, unsigned type, unsigned    \
      rank, void *address, const uint64_t *sides, const uint64_t *strides, const unsigned *box, const        \
      unsigned *steps, unsigned interleave, unsigned swizzle, unsigned promotion, unsigned fill))            \
  PLAIN(cuTensorMapEncodeIm2col, 12000, cuTensorMapEncodeIm2col, (CUtensorMap *map, unsigned type,           \
      unsigned rank, void *address, const uint64_t *sides, const uint64_t *strides, const int *lower,        \
      const int *upper, unsigned channels, unsigned pixels, const unsigned *steps, unsigned interleave,      \
      unsigned swizzle, unsigned promotion, unsigned fill))                                                  \
  PLAIN(cuTensorMapEncodeIm2colWide, 12080, cuTensorMapEncodeIm2colWide, (CUtensorMap *map, unsigned type,   \
      unsigned rank, void *address, const uint64_t *sides, const uint64_t *strides, int lower, int upper,    \
      unsigned channels, unsigned pixels, const unsigned *steps, unsigned interleave, unsigned mode,         \
      unsigned swizzle, unsigned promotion, unsigned fill))                                                  \
  PLAIN(cuTensorMapReplaceAddress, 12000, cuTensorMapReplaceAddress, (CUtensorMap *map, void *address))      \
  PLAIN(cuCoredumpGetAttribute, 12010, cuCoredumpGetAttribute, (unsigned attribute, void *value, size_t      \
      *size))                                                                                                \
  PLAIN(cuCoredumpGetAttributeGlobal, 12010, cuCoredumpGetAttributeGlobal, (unsigned attribute, void         \
      *value, size_t *size))                                                                                 \
  PLAIN(cuCoredumpSetAttribute, 12010, cuCoredumpSetAttribute, (unsigned attribute, void *value, size_t      \
      *size))                                                                                                \
  PLAIN(cuCoredumpSetAttributeGlobal, 12010, cuCoredumpSetAttributeGlobal, (unsigned attribute, void         \
      *value, size_t *size))                                                                                 \
  PLAIN(cuLogsRegisterCallback, 12090, cuLogsRegisterCallback, (void *function, void *data, void             \
      **handle))                                                                                             \
  PLAIN(cuLogsUnregisterCallback, 12090, cuLogsUnregisterCallback, (void *handle))                           \
  PLAIN(cuLogsCurrent, 12090, cuLogsCurrent, (unsigned *iterator, unsigned flags))                           \
  PLAIN(cuLogsDumpToFile, 12090, cuLogsDumpToFile, (unsigned *iterator, const char *path, unsigned flags))   \
  PLAIN(cuLogsDumpToMemory, 12090, cuLogsDumpToMemory, (unsigned *iterator, char *buffer, size_t *size,      \
      unsigned flags))                                                                                       \
  PLAIN(cuDeviceGetHostAtomicCapabilities, 13000, cuDeviceGetHostAtomicCapabilities, (unsigned               \
      *capabilities, const unsigned *operations, unsigned count, CUdevice device))                           \
  PLAIN(cuDeviceGetP2PAtomicCapabilities, 13000, cuDeviceGetP2PAtomicCapabilities, (unsigned                 \
      *capabilities, const unsigned *operations, unsigned count, CUdevice device, CUdevice peer))            \
  PLAIN(cuArrayGetPlane, 11020, cuArrayGetPlane, (CUarray *plane, CUarray array, unsigned index))
/* clang-format on */

#endif
