/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the CUDA driver's ABI that the library speaks: types by their width, handles as opaque
 * pointers, the few numbers that are looked at. Own declarations, so that no toolkit is needed to build. */
#ifndef TESSERA_CUDA_TYPES_H
#define TESSERA_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;
typedef struct CUctx_st *CUcontext;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPool_st *CUmemoryPool;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef uint64_t CUmemHandle; /* CUmemGenericAllocationHandle */

typedef struct {
  unsigned char bytes[16];
} CUuuid;

/* CUmemLocation */
struct cuda_location {
  int type, id;
};

/* CUmemAllocationProp; the rest is passed through unread. */
struct cuda_allocation {
  int type, handle_types;
  struct cuda_location location;
};

/* CUmemPoolProps */
struct cuda_pool_properties {
  int type, handle_types;
  struct cuda_location location;
  void *security;
  size_t most;
  unsigned char rest[56];
};

/* CUDA_MEM_ALLOC_NODE_PARAMS */
struct cuda_alloc_node {
  struct cuda_pool_properties pool;
  const void *accesses;
  size_t access_count;
  size_t bytes;
  CUdeviceptr address;
};

/* CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR and what they were when sizes had 32 bits */
struct cuda_array {
  size_t width, height;
  int format;
  unsigned int channels;
};
struct cuda_array_v1 {
  unsigned int width, height;
  int format;
  unsigned int channels;
};
struct cuda_array3d {
  size_t width, height, depth;
  int format;
  unsigned int channels, flags;
};
struct cuda_array3d_v1 {
  unsigned int width, height, depth;
  int format;
  unsigned int channels, flags;
};

/* CUDA_ARRAY_MEMORY_REQUIREMENTS */
struct cuda_array_requirements {
  size_t bytes, alignment;
  unsigned int reserved[4];
};

/* CUarrayMapInfo */
struct cuda_array_map {
  int resource_type;
  void *resource;
  int subresource_type;
  union {
    struct {
      unsigned int level, layer, start[3], size[3];
    } tile; /* a part of a level */
    struct {
      unsigned int layer;
      uint64_t start, size;
    } tail; /* of all levels that are smaller than a tile */
  } part;
  int operation, handle_type;
  CUmemHandle handle;
  uint64_t offset;
  unsigned int devices, flags, reserved[2];
};

/* CUDA_MEMCPY2D, CUDA_MEMCPY3D and what they were when sizes had 32 bits */
struct cuda_copy2d {
  size_t source_x, source_y;
  int source_type;
  const void *source_host;
  CUdeviceptr source;
  CUarray source_array;
  size_t source_pitch, target_x, target_y;
  int target_type;
  void *target_host;
  CUdeviceptr target;
  CUarray target_array;
  size_t target_pitch, width, height;
};
struct cuda_copy2d_v1 {
  unsigned int source_x, source_y;
  int source_type;
  const void *source_host;
  CUdeviceptr_v1 source;
  CUarray source_array;
  unsigned int source_pitch, target_x, target_y;
  int target_type;
  void *target_host;
  CUdeviceptr_v1 target;
  CUarray target_array;
  unsigned int target_pitch, width, height;
};
struct cuda_copy3d {
  size_t source_x, source_y, source_z, source_level;
  int source_type;
  const void *source_host;
  CUdeviceptr source;
  CUarray source_array;
  void *source_reserved;
  size_t source_pitch, source_height, target_x, target_y, target_z, target_level;
  int target_type;
  void *target_host;
  CUdeviceptr target;
  CUarray target_array;
  void *target_reserved;
  size_t target_pitch, target_height, width, height, depth;
};
struct cuda_copy3d_v1 {
  unsigned int source_x, source_y, source_z, source_level;
  int source_type;
  const void *source_host;
  CUdeviceptr_v1 source;
  CUarray source_array;
  void *source_reserved;
  unsigned int source_pitch, source_height, target_x, target_y, target_z, target_level;
  int target_type;
  void *target_host;
  CUdeviceptr_v1 target;
  CUarray target_array;
  void *target_reserved;
  unsigned int target_pitch, target_height, width, height, depth;
};

/* CUmemcpy3DOperand, CUDA_MEMCPY3D_BATCH_OP */
struct cuda_copy_end {
  int type;
  CUdeviceptr address; /* or an array */
  size_t rest[3];
};
struct cuda_copy3d_batched {
  struct cuda_copy_end source, target;
  size_t width, height, depth;
  int order;
  unsigned int flags;
};

/* CUlaunchConfig; the attributes are passed through unread. */
struct cuda_launch_config {
  unsigned int grid_x, grid_y, grid_z;
  unsigned int block_x, block_y, block_z;
  unsigned int shared_bytes;
  CUstream stream;
  void *attributes;
  unsigned int attribute_count;
};

/* CUDA_LAUNCH_PARAMS */
struct cuda_launch_params {
  CUfunction function;
  unsigned int grid_x, grid_y, grid_z;
  unsigned int block_x, block_y, block_z;
  unsigned int shared_bytes;
  CUstream stream;
  void **parameters;
};

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_SYSTEM_NOT_READY = 802
};

enum {
  CU_MEM_ATTACH_GLOBAL = 1,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_OPERATION_TYPE_MAP = 1,
  CU_MEM_OPERATION_TYPE_UNMAP = 2,
  CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL = 1,
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
  CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
  CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
  CU_MEMORYTYPE_DEVICE = 2,
  CU_MEMORYTYPE_ARRAY = 3,
  CU_MEMORYTYPE_UNIFIED = 4,
  CU_MEMCPY_OPERAND_TYPE_ARRAY = 2,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_GRAPH_NODE_TYPE_GRAPH = 4,
  CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
  CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
  CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1,
  CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2,
  CUDA_ARRAY3D_SPARSE = 0x40,
  CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80
};

/* The two default streams and NULL are those of the current context; any other knows its own. */
static inline _Bool is_default_stream(CUstream stream) { return (uintptr_t)stream <= 2; }

enum {
  CU_EVENT_DEFAULT = 0,
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_GET_PROC_ADDRESS_DEFAULT = 0,
  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2
};

#endif
