/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of cuda_types.h that only graphs and stream capture need.
 */
#ifndef FAKEGPU_CUDA_TYPES_GRAPH_H
#define FAKEGPU_CUDA_TYPES_GRAPH_H

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuserObject_st *CUuserObject;
typedef void (*CUhostFn)(void *data);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *data);
typedef unsigned CUgraphNodeType;
typedef unsigned CUgraphExecUpdateResult;
typedef unsigned CUgraphInstantiateResult;
typedef unsigned CUgraphMem_attribute;
typedef unsigned CUstreamCaptureMode;

enum {
  NODE_KERNEL,
  NODE_MEMCPY,
  NODE_MEMSET,
  NODE_HOST,
  NODE_GRAPH,
  NODE_EMPTY,
  NODE_WAIT_EVENT,
  NODE_EVENT_RECORD,
  NODE_SIGNAL,
  NODE_WAIT,
  NODE_MEM_ALLOC = 10,
  NODE_MEM_FREE = 11,
  NODE_BATCH,
  NODE_CONDITIONAL
};
typedef unsigned long long CUgraphConditionalHandle;

typedef struct {
  CUfunction function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  void **params;
  void **extra;
  CUkernel kernel; /* from _v2 on: where there is no function */
  CUcontext context;
} CUDA_KERNEL_NODE_PARAMS_v2;

/* The first version ends before `kernel`. */
typedef struct {
  CUfunction function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  void **params;
  void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;

typedef struct {
  CUdeviceptr target;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
} CUDA_MEMSET_NODE_PARAMS_v1;

typedef struct {
  CUhostFn function;
  void *data;
} CUDA_HOST_NODE_PARAMS_v1;

typedef struct {
  CUmemPoolProps_v1 properties;
  const CUmemAccessDesc_v1 *accesses;
  size_t access_count;
  size_t bytes;
  CUdeviceptr address;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
  int flags, reserved;
  CUcontext context;
  CUDA_MEMCPY3D_v2 copy;
} CUDA_MEMCPY_NODE_PARAMS;

/* One operation on a word of memory. */
typedef union {
  unsigned kind;
  struct {
    unsigned kind;
    CUdeviceptr address;
    uint64_t value; /* or its lower half */
    unsigned flags;
    CUdeviceptr alias;
  } word;
  struct {
    unsigned kind, flags, operation, type;
    CUdeviceptr address;
    uint64_t value;
    CUdeviceptr alias;
  } reduction;
  uint64_t padding[6];
} CUstreamBatchMemOpParams;

typedef struct {
  CUcontext context;
  unsigned count;
  CUstreamBatchMemOpParams *operations;
  unsigned flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

/* For signals and waits alike; the second version goes on with a context. */
typedef struct {
  const CUexternalSemaphore *semaphores;
  const void *params;
  unsigned count;
} CUDA_EXT_SEM_NODE_PARAMS_v1;

typedef struct {
  CUgraphConditionalHandle handle;
  unsigned type, size;
  CUgraph *graphs; /* the driver's, told to the caller */
  CUcontext context;
} CUDA_CONDITIONAL_NODE_PARAMS;

/* An end of a copy: memory in rows and layers, or an array. */
typedef struct {
  unsigned type;
  union {
    struct {
      CUdeviceptr address;
      size_t row, layer;
      CUmemLocation_v1 place;
    } memory;
    struct {
      CUarray array;
      size_t x, y, z;
    } array;
  };
} CUmemcpy3DOperand_v1;

typedef struct {
  CUmemcpy3DOperand_v1 source, target;
  size_t width, height, depth;
  unsigned order, flags;
} CUDA_MEMCPY3D_BATCH_OP_v1;

typedef struct {
  CUgraphNodeType type;
  int reserved[3];
  union {
    long long padding[29];
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMCPY_NODE_PARAMS copy;
    CUDA_MEMSET_NODE_PARAMS_v1 fill;
    CUDA_HOST_NODE_PARAMS_v1 host;
    CUgraph graph;
    CUevent event;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr freed;
    CUDA_EXT_SEM_NODE_PARAMS_v1 semaphores;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
    CUDA_CONDITIONAL_NODE_PARAMS conditional;
  };
  long long reserved2;
} CUgraphNodeParams;

typedef struct {
  unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;

typedef struct {
  uint64_t flags;
  CUstream upload_stream;
  CUgraphNode error_node;
  CUgraphInstantiateResult result;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct {
  CUgraphExecUpdateResult result;
  CUgraphNode error_node, error_from_node;
} CUgraphExecUpdateResultInfo;

#endif
