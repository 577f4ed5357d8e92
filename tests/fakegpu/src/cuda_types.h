/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of CUDA's driver interface that the fake serves, declared by ourselves (there is no SDK here):
 * values and layouts are those of the public headers.
 */
#ifndef FAKEGPU_CUDA_TYPES_H
#define FAKEGPU_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef unsigned CUdeviceptr_v1; /* before CUDA 3.2 */
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUfunc_st *CUfunction;
typedef struct CUfunc_st *CUkernel; /* a CUkernel is accepted wherever a CUfunction is */
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUexternalMemory_st *CUexternalMemory;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUexternalSemaphore_st *CUexternalSemaphore;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef size_t (*CUoccupancyB2DSize)(int block_size);

typedef struct {
  char bytes[16];
} CUuuid;

#define CUDA_ERRORS(ERROR)                                                                                   \
  ERROR(CUDA_SUCCESS, 0, "no error")                                                                         \
  ERROR(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                                     \
  ERROR(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                        \
  ERROR(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                               \
  ERROR(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down")                                                 \
  ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, 46, "CUDA-capable device(s) is/are busy or unavailable")              \
  ERROR(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                                     \
  ERROR(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                            \
  ERROR(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                                     \
  ERROR(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                                           \
  ERROR(CUDA_ERROR_MAP_FAILED, 205, "mapping of buffer object failed")                                       \
  ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image is available for execution on the device")       \
  ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "uncorrectable ECC error encountered")                            \
  ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, 215, "limit is not supported on this architecture")                    \
  ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217, "peer access is not supported between these two devices")   \
  ERROR(CUDA_ERROR_INVALID_PTX, 218, "a PTX JIT compilation failed")                                         \
  ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, 224, "exec affinity is not supported")                         \
  ERROR(CUDA_ERROR_INVALID_SOURCE, 300, "device kernel image is invalid")                                    \
  ERROR(CUDA_ERROR_FILE_NOT_FOUND, 301, "file not found")                                                    \
  ERROR(CUDA_ERROR_OPERATING_SYSTEM, 304, "OS call failed or operation not supported on this OS")            \
  ERROR(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                           \
  ERROR(CUDA_ERROR_ILLEGAL_STATE, 401, "the operation cannot be performed in the present state")             \
  ERROR(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                                 \
  ERROR(CUDA_ERROR_NOT_READY, 600, "device not ready")                                                       \
  ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                         \
  ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "too many resources requested for launch")                  \
  ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is already enabled")                       \
  ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705, "peer access has not been enabled")                         \
  ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708, "cannot set while device is active in this process")         \
  ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")                                        \
  ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712,                                                      \
        "part or all of the requested memory range is already mapped")                                       \
  ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713,                                                          \
        "pointer does not correspond to a registered memory region")                                         \
  ERROR(CUDA_ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")                                         \
  ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720, "too many blocks in cooperative launch")               \
  ERROR(CUDA_ERROR_NOT_PERMITTED, 800, "operation not permitted")                                            \
  ERROR(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")                                            \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing")      \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901,                                                          \
        "operation failed due to a previous error during capture")                                           \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902,                                                                \
        "operation would result in a merge of separate capture sequences")                                   \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903, "capture was not ended in the same stream as it began")    \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904, "capturing stream has unjoined work")                       \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905, "dependency created on uncaptured work in another stream") \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906,                                                             \
        "operation would make the legacy stream depend on a capturing blocking stream")                      \
  ERROR(CUDA_ERROR_CAPTURED_EVENT, 907,                                                                      \
        "operation not permitted on an event last recorded in a capturing stream")                           \
  ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908,                                                         \
        "attempt to terminate a thread-local capture sequence from another thread")                          \
  ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910, "the graph update was not performed")                     \
  ERROR(CUDA_ERROR_UNKNOWN, 999, "unknown error")

#define FAKEGPU_ENUMERATOR(name, value, text) name = (value),
typedef enum { CUDA_ERRORS(FAKEGPU_ENUMERATOR) CUDA_ERROR_WIDEST = 0x7fffffff } CUresult;

/* Enumerations of which only few values matter here: plain integers of the same width. */
typedef unsigned CUdevice_attribute;
typedef unsigned CUpointer_attribute;
typedef unsigned CUfunction_attribute;
typedef unsigned CUmemPool_attribute;
typedef unsigned CUlimit;
typedef unsigned CUfunc_cache;
typedef unsigned CUmem_advise;
typedef unsigned CUjit_option;
typedef unsigned CUlibraryOption;
typedef unsigned CUmoduleLoadingMode;
typedef unsigned CUstreamCaptureStatus;
typedef unsigned CUdriverProcAddressQueryResult;
typedef unsigned CUmemAccess_flags;
typedef unsigned CUarray_format;
typedef unsigned CUjitInputType;
typedef unsigned CUmemAllocationHandleType;
typedef unsigned CUmemAllocationGranularity_flags;

enum {
  CU_GET_PROC_ADDRESS_DEFAULT,
  CU_GET_PROC_ADDRESS_LEGACY_STREAM,
  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
};
enum { CU_PROC_FOUND, CU_PROC_NOT_FOUND, CU_PROC_VERSION_NOT_SUFFICIENT };
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2, CU_EVENT_INTERPROCESS = 4 };
enum { CU_CTX_FLAGS_MASK = 0xff };

#define CU_STREAM_LEGACY ((CUstream)(uintptr_t)1)
#define CU_STREAM_PER_THREAD ((CUstream)(uintptr_t)2)

/* The `extra` way of passing kernel parameters. */
#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)(uintptr_t)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)(uintptr_t)2)

typedef struct {
  unsigned type;
  int id;
} CUmemLocation_v1;

typedef struct {
  CUmemLocation_v1 location;
  CUmemAccess_flags flags;
} CUmemAccessDesc_v1;

typedef struct {
  unsigned type;
  unsigned handle_types;
  CUmemLocation_v1 location;
  void *windows_only;
  unsigned char compression, rdma;
  unsigned short usage;
  unsigned char reserved[4];
} CUmemAllocationProp_v1;

typedef struct {
  unsigned allocation_type;
  unsigned handle_types;
  CUmemLocation_v1 location;
  void *security_attributes;
  size_t max_bytes;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps_v1;

typedef struct {
  char bytes[64];
} CUipcMemHandle, CUipcEventHandle, CUmemPoolPtrExportData;

typedef struct {
  unsigned type;
  union {
    int file;
    void *others[2];
  } handle;
  unsigned long long size;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1;

typedef struct {
  unsigned long long offset, size;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1;

typedef struct {
  unsigned type;
  union {
    int file;
    void *others[2];
  } handle;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1;

typedef struct {
  size_t width, height;
  CUarray_format format;
  unsigned channels;
} CUDA_ARRAY_DESCRIPTOR_v2;

typedef struct {
  size_t width, height, depth;
  CUarray_format format;
  unsigned channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR_v2;

typedef struct {
  size_t size, alignment;
  unsigned reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS_v1;

/* Rows are bytes wide: x and width count bytes. */
typedef struct {
  size_t source_x, source_y;
  unsigned source_type;
  const void *source_host;
  CUdeviceptr source_device;
  CUarray source_array;
  size_t source_pitch;
  size_t target_x, target_y;
  unsigned target_type;
  void *target_host;
  CUdeviceptr target_device;
  CUarray target_array;
  size_t target_pitch;
  size_t width, height;
} CUDA_MEMCPY2D_v2;

typedef struct {
  size_t source_x, source_y, source_z, source_level;
  unsigned source_type;
  const void *source_host;
  CUdeviceptr source_device;
  CUarray source_array;
  void *source_context; /* between devices; else NULL */
  size_t source_pitch, source_height;
  size_t target_x, target_y, target_z, target_level;
  unsigned target_type;
  void *target_host;
  CUdeviceptr target_device;
  CUarray target_array;
  void *target_context;
  size_t target_pitch, target_height;
  size_t width, height, depth;
} CUDA_MEMCPY3D_v2;

typedef struct {
  unsigned source_x, source_y, source_type;
  const void *source_host;
  CUdeviceptr_v1 source_device;
  CUarray source_array;
  unsigned source_pitch;
  unsigned target_x, target_y, target_type;
  void *target_host;
  CUdeviceptr_v1 target_device;
  CUarray target_array;
  unsigned target_pitch;
  unsigned width, height;
} CUDA_MEMCPY2D_v1;

typedef struct {
  unsigned source_x, source_y, source_z, source_level, source_type;
  const void *source_host;
  CUdeviceptr_v1 source_device;
  CUarray source_array;
  void *reserved0;
  unsigned source_pitch, source_height;
  unsigned target_x, target_y, target_z, target_level, target_type;
  void *target_host;
  CUdeviceptr_v1 target_device;
  CUarray target_array;
  void *reserved1;
  unsigned target_pitch, target_height;
  unsigned width, height, depth;
} CUDA_MEMCPY3D_v1;

typedef struct {
  unsigned width, height;
  CUarray_format format;
  unsigned channels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
  unsigned width, height, depth;
  CUarray_format format;
  unsigned channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
  int threads_per_block, block[3], grid[3];
  int shared_bytes_per_block, constant_bytes, warp, pitch, registers_per_block, clock_khz, texture_alignment;
} CUdevprop_v1;

typedef struct {
  CUfunction function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  void **params;
} CUDA_LAUNCH_PARAMS_v1;

typedef struct {
  unsigned type;
  unsigned sm_count;
} CUexecAffinityParam;

typedef struct {
  CUexecAffinityParam *affinities;
  int affinity_count;
  void *graphics;
} CUctxCreateParams;

typedef union {
  char pad[64];
  int cooperative;
  int priority;
} CUlaunchAttributeValue;

enum { CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2 };

typedef struct {
  unsigned id;
  char pad[4];
  CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute *attributes;
  unsigned attribute_count;
} CUlaunchConfig;

#include "cuda_types_graph.h"
#include "cuda_types_parts.h"
#include "cuda_types_textures.h"

#endif
