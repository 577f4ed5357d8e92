/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libcuda: the objects behind the handles and what its files ask of each other.
 *
 * All objects of the process are guarded by one mutex (driver_lock); the state's lock is only ever taken
 * inside it. Waiting for device time happens outside both. Destroyed objects are kept for reuse, so that a
 * stale handle is recognised by its magic instead of being read after free.
 */
#ifndef FAKEGPU_DRIVER_H
#define FAKEGPU_DRIVER_H

#include "cuda_table.h"
#include "cuda_types.h"
#include "state.h"
#include "timeline.h"

#define EXPORTED __attribute__((visibility("default")))
#define DECLARE_PLAIN(name, version, symbol, parameters) EXPORTED CUresult symbol parameters;
#define DECLARE_STREAM(name, version, symbol, per_thread_version, suffix, parameters, arguments) \
  EXPORTED CUresult symbol parameters;                                                           \
  EXPORTED CUresult symbol##suffix parameters;
CUDA_FUNCTIONS(DECLARE_PLAIN, DECLARE_STREAM)
#define DECLARE_REST_PLAIN(name, version, symbol) EXPORTED CUresult symbol(void);
#define DECLARE_REST_STREAM(name, version, symbol, per_thread_version, suffix) \
  EXPORTED CUresult symbol(void);                                              \
  EXPORTED CUresult symbol##suffix(void);
CUDA_REST(DECLARE_REST_PLAIN, DECLARE_REST_STREAM)

#define MAGIC_CONTEXT 0x43545843u
#define MAGIC_STREAM 0x4d525453u
#define MAGIC_EVENT 0x544e5645u
#define MAGIC_MODULE 0x444f4d43u
#define MAGIC_LIBRARY 0x4342494cu
#define MAGIC_FUNCTION 0x434e5546u
#define MAGIC_POOL 0x4c4f4f50u
#define MAGIC_HANDLE 0x4c444e48u
#define MAGIC_ARRAY 0x59525241u
#define MAGIC_MIPMAP 0x4d50494du
#define MAGIC_GRAPH 0x48505247u
#define MAGIC_NODE 0x45444f4eu
#define MAGIC_EXEC 0x43455845u
#define MAGIC_USER_OBJECT 0x4a424f55u
#define MAGIC_LINK 0x4b4e494cu
#define MAGIC_GREEN 0x4e455247u
#define MAGIC_EXTERNAL_MEMORY 0x4d545845u
#define MAGIC_EXTERNAL_SEMAPHORE 0x53545845u
#define LIMITS 10
#define VIRTUAL_GRANULARITY (2ull << 20)

/* Every object begins like this; next chains the free ones and, while alive, those of one kind. */
struct object {
  uint32_t magic; /* 0: destroyed */
  uint32_t reserved;
  struct object *next;
};

struct CUctx_st {
  struct object object;
  CUdevice device; /* CUDA ordinal; card is its index in the inventory */
  uint32_t card;
  unsigned flags;
  unsigned api_version;
  unsigned references; /* of a primary context; cuCtxAttach's of others */
  bool primary;
  uint64_t id;
  uint64_t newest;          /* sequence number of the newest kernel in the context */
  uint64_t newest_blocking; /* the same over all streams that the legacy stream waits for */
  size_t limits[LIMITS];
  CUfunc_cache cache;
  uint64_t peers;       /* bit set of devices */
  uint64_t charged;     /* what it takes of its card */
  CUgreenCtx green;     /* whose context it is; NULL: it has the whole card */
  unsigned sm_count;    /* of a green one */
};

struct CUstream_st {
  struct object object;
  CUcontext context;
  uint64_t context_id;
  unsigned flags;
  int priority;
  uint64_t id;
  uint64_t newest; /* sequence number of the newest kernel that it holds or waits for */
};

struct CUevent_st {
  struct object object;
  CUcontext context;
  unsigned flags;
  bool recorded;
  bool watched; /* in the list of events whose time is not known yet */
  uint64_t sequence;
  uint64_t recorded_ns;
  uint64_t done_ns; /* 0: not known yet */
  CUevent next_watched;
  void *shared; /* with other processes; NULL: it is not */
  uint64_t share_id;
  int file;
};

struct CUfunc_st {
  struct object object;
  CUfunction next;
  CUmodule module;   /* NULL: a kernel of a library */
  CUlibrary library; /* NULL: a function of a module */
  int dynamic_shared_bytes;
  int carveout;
  unsigned legacy_block[3], legacy_shared_bytes; /* cuFuncSetBlockShape and the like */
  char legacy_parameters[8];
  char name[256];
};

enum block_kind {
  BLOCK_FREE,
  BLOCK_DEVICE,
  BLOCK_ASYNC,
  BLOCK_MANAGED,
  BLOCK_HOST,
  BLOCK_MAPPED,
  BLOCK_ARRAY,
  BLOCK_GRAPH,
  BLOCK_RESERVED,
  BLOCK_IPC,
  BLOCK_FOREIGN,
  BLOCK_REGISTERED
};

struct block {
  CUdeviceptr base;
  uint64_t bytes;   /* as asked for */
  uint64_t charged; /* to the card */
  CUcontext context;
  CUmemoryPool pool;
  uint64_t id;
  uint32_t card;
  unsigned flags;
  uint32_t next_free; /* cell + 1 */
  uint8_t kind;
  bool readable;    /* the host may touch its pages */
  int file;         /* descriptor + 1 of what its pages are kept in; 0: nothing */
  int32_t exporter; /* whose it is; and which of its exports */
  uint64_t export_id;
};

struct CUarray_st {
  struct object object;
  CUcontext context;
  uint64_t context_id;
  CUDA_ARRAY3D_DESCRIPTOR_v2 descriptor;
  CUmipmappedArray mipmap;                  /* whose level it is; NULL: it stands alone */
  struct block *block;                      /* NULL: has no memory of its own */
  uint64_t offset;                          /* in the block */
  uint64_t row, pitch, rows, slice, slices; /* bytes of a row, without and with padding; bytes of a slice */
};

#define MIPMAP_LEVELS 20
struct CUmipmappedArray_st {
  struct object object;
  CUcontext context;
  uint64_t context_id;
  struct block *block;
  unsigned count;
  CUarray levels[MIPMAP_LEVELS];
};

/* What cuMemCreate makes. */
typedef struct CUmemHandle_st *CUmemHandle;
struct CUmemHandle_st {
  struct object object;
  uint64_t bytes;
  CUmemAllocationProp_v1 properties;
  uint32_t card;       /* UINT32_MAX: the host's memory */
  unsigned references; /* that cuMemRelease may give back */
  unsigned mapped;
  int file;      /* holds what is written to it */
  bool imported; /* charged to somebody else */
  struct multicast *multicast; /* of what cuMulticastCreate makes; NULL: it is memory */
};

/* cuda_start.c */
struct device {
  CUcontext primary;
  CUmemoryPool default_pool, pool, graph_pool;
  uint32_t card;
  unsigned primary_flags;
};
CUresult driver_ready(void); /* CUDA_SUCCESS once cuInit succeeded in this very process */
void driver_lock(void);
void driver_unlock(void);
int device_count(void);
struct device *device_at(CUdevice device); /* NULL: no such device */
const struct card_config *device_config(CUdevice device);
void *object_new(struct object **spare, size_t size, uint32_t magic); /* zeroed; NULL: no memory */
void object_drop(struct object **spare, void *dropped);

/* cuda_context.c */
CUresult context_current(
    CUcontext *context); /* of this thread: not NULL and alive, else the driver's error */
bool context_alive(CUcontext context);
CUresult card_answers(uint32_t card); /* an error for one that is lost */

/* cuda_stream.c */
CUresult stream_resolve(CUstream handle, CUcontext *context,
                        CUstream *stream);                  /* NULL, legacy, per-thread or made */
uint64_t stream_newest(CUcontext context, CUstream stream); /* what a wait for the stream waits for */
void stream_append(CUcontext context, CUstream stream, uint64_t sequence);
CUresult stream_wait(CUstream handle);
bool per_thread_enter(void); /* stream 0 now means the per-thread stream; returns what it was */
void per_thread_leave(bool before);
void streams_drop(CUcontext context);

/* cuda_event.c */
bool event_alive(CUevent event);

/* cuda_ipc_event.c: of an event that has `shared` */
void event_share_record(CUevent event);
bool event_share_reached(CUevent event);
void event_share_wait(CUevent event);
void event_share_end(CUevent event);
void events_settle(uint32_t card); /* before the queue forgets: note the end of what is finished */
#define EVENTS_SETTLE_EVERY (FAKEGPU_PENDING / 2u)

/* addresses.c, under driver_lock */
#define CHUNK_PAGE 4096u
struct block *address_take(uint64_t bytes, bool whole_pages);
void pages_clear(CUdeviceptr base, uint64_t bytes); /* inaccessible and empty again */
uint64_t shared_bytes(uint64_t bytes);              /* of the pages that a block of whole pages fills */
struct block *address_find(CUdeviceptr address);    /* also inside the block */
void address_drop(struct block *block);
void address_each(void (*visit)(struct block *block, void *argument), void *argument);
bool address_open(struct block *block); /* let the host touch its pages */

/* addresses_low.c: the same below 4 GiB, for what the addresses.c functions are asked about as well */
struct block *low_take(uint64_t bytes);
struct block *low_find(CUdeviceptr address);
bool low_drop(struct block *block); /* false: it is none of them */
void low_each(void (*visit)(struct block *block, void *argument), void *argument);

/* cuda_context.c, under driver_lock: of a green context */
CUresult context_new(CUdevice device, uint64_t bytes, CUcontext *made);
void context_end(CUcontext context);
CUcontext context_owner(CUcontext context); /* whose memory what is made in it is: of a green one the primary */

/* cuda_multicast.c, under driver_lock */
struct multicast *multicast_new(unsigned device_count);
void multicast_free(struct multicast *multicast);

/* cuda_sparse.c, under driver_lock */
void sparse_forget(const void *resource); /* an array or a mipmapped one is destroyed */

/* cuda_handle.c, cuda_map.c, under driver_lock */
CUmemHandle handle_add(const struct CUmemHandle_st *made); /* NULL: no memory */
int handle_file(const char *name, uint64_t bytes);         /* -1: the host has no memory */
int handle_ordinal(uint32_t card);                         /* -1: not visible here */
CUmemHandle handle_of(CUmemGenericAllocationHandle number); /* NULL: no such handle */
void handle_settle(CUmemHandle handle); /* after one reference or mapping less: gone if it was the last */
struct block *mapping_find(CUdeviceptr address);
struct block *registered_find(CUdeviceptr address); /* cuda_host_register.c */

/* cuda_launch.c */
struct grid {
  unsigned x, y, z;
};
struct launch_shape {
  struct grid grid, block;
  unsigned shared_bytes;
  bool cooperative;
};
CUresult kernel_check(CUcontext context, CUfunction function, const struct launch_shape *shape);
uint64_t kernel_duration(CUfunction function, void **params, void **extra);
CUresult kernel_run(CUcontext context, CUstream stream, uint64_t duration_ns);

/* cuda_capture.c. Each call that puts work on a stream asks first: *captured says that it has become a node.
 */
bool capture_any(void);
CUresult capture_work(CUcontext context, CUstream stream, CUgraphNodeParams *params, bool cooperative,
                      bool *captured);
CUresult capture_exec(CUcontext context, CUstream stream, CUgraphExec exec, bool *captured);
CUresult capture_record(CUcontext context, CUstream stream, CUevent event, bool *captured);
CUresult capture_wait(CUcontext context, CUstream stream, CUevent event, bool *captured);
CUresult capture_forbids(CUstream stream, CUevent event); /* the error of who waits for one of them */
CUresult capture_forbids_context(CUcontext context);      /* of who waits for all of it */
CUresult capture_forbids_unsafe(CUcontext context);       /* of calls that the modes are about */
void capture_forget(CUstream stream, CUevent event);      /* under driver_lock: one of them is destroyed */

/* cuda_graph_work.c, cuda_graph_memory.c */
CUresult host_call(CUstream stream, CUhostFn function, void *data);
bool graph_memory_known(CUdeviceptr address); /* under driver_lock, both */
bool graph_memory_free(CUdeviceptr address);  /* false: it is none, or not live */

/* cuda_array.c */
CUresult array_resolve(CUarray array);

/* cuda_copy.c, under driver_lock */
void *memory_reach(CUdeviceptr address, uint64_t bytes, bool must_be_device);
bool memory_on_card(CUdeviceptr address, uint32_t card);
CUresult copy_run(CUcontext context, CUstream stream, uint64_t bytes); /* without it: within the card */

/* cuda_memory.c */
#define PITCH 512u                                                  /* bytes: rows begin at multiples of it */
CUresult memory_allocate_low(uint64_t bytes, CUdeviceptr *address); /* cuMemAlloc_v2, below 4 GiB */

/* cuda_memory.c, under driver_lock */
bool card_charge(uint32_t card,
                 uint64_t bytes); /* also gives back what pools keep; false: the card is full */
CUresult block_allocate(CUcontext context, uint64_t bytes, enum block_kind kind, struct block **allocated);
void block_free(struct block *block);
bool block_give_back(
    CUdeviceptr address); /* what cuMemFree and cuMemFreeAsync free; false: it is no such block */
void blocks_drop(CUcontext context);

/* cuda_pool.c; by no exported name, so that who stands in front of the driver sees the call that was made */
CUresult device_take_from(CUdevice ordinal, CUmemoryPool pool);

/* cuda_pool.c, under driver_lock */
CUmemoryPool pool_create(uint32_t card);
bool pool_is_imported(CUmemoryPool pool);
CUresult pool_charge(CUmemoryPool pool, uint64_t bytes);
void pool_release(CUmemoryPool pool, uint64_t bytes);
void pools_trim(uint32_t card);                        /* give back what this process's pools keep */
CUmemoryPool device_graph_pool(struct device *device); /* NULL: no memory */

/* image.c: what a module's code offers */
struct image;
struct image *image_read(const void *code);
void image_free(struct image *image);
bool image_has_kernel(const struct image *image, const char *name);
uint64_t image_global_bytes(const struct image *image, const char *name); /* 0: no such variable */
unsigned image_kernel_count(const struct image *image);
const char *image_kernel_name(const struct image *image, unsigned index);

/* cuda_module.c */
void modules_drop(CUcontext context);
bool function_valid(CUfunction function);
const struct image *module_image(CUmodule module); /* NULL: no module */
const struct image *library_image(CUlibrary library);

#endif
