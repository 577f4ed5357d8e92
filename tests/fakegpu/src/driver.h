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

#define MAGIC_CONTEXT 0x43545843u
#define MAGIC_STREAM 0x4d525453u
#define MAGIC_EVENT 0x544e5645u
#define MAGIC_MODULE 0x444f4d43u
#define MAGIC_LIBRARY 0x4342494cu
#define MAGIC_FUNCTION 0x434e5546u
#define MAGIC_POOL 0x4c4f4f50u
#define LIMITS 10

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
};

struct CUfunc_st {
  struct object object;
  CUfunction next;
  CUmodule module;   /* NULL: a kernel of a library */
  CUlibrary library; /* NULL: a function of a module */
  int dynamic_shared_bytes;
  int carveout;
  char name[256];
};

enum block_kind { BLOCK_FREE, BLOCK_DEVICE, BLOCK_ASYNC, BLOCK_MANAGED, BLOCK_HOST };

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
  bool readable; /* the host may touch its pages */
};

/* cuda_start.c */
struct device {
  CUcontext primary;
  CUmemoryPool default_pool, pool;
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
void events_settle(uint32_t card); /* before the queue forgets: note the end of what is finished */

/* addresses.c, under driver_lock */
struct block *address_take(uint64_t bytes, bool whole_pages);
struct block *address_find(CUdeviceptr address); /* also inside the block */
void address_drop(struct block *block);
void address_each(void (*visit)(struct block *block, void *argument), void *argument);
bool address_open(struct block *block); /* let the host touch its pages */

/* cuda_memory.c, under driver_lock */
CUresult block_allocate(CUcontext context, uint64_t bytes, enum block_kind kind, struct block **allocated);
void block_free(struct block *block);
void blocks_drop(CUcontext context);

/* cuda_pool.c, under driver_lock */
CUmemoryPool pool_create(uint32_t card);
void pool_drop(CUmemoryPool pool);
CUresult pool_charge(CUmemoryPool pool, uint64_t bytes);
void pool_release(CUmemoryPool pool, uint64_t bytes);
void pools_trim(uint32_t card); /* give back what this process's pools keep */

/* image.c: what a module's code offers */
struct image;
struct image *image_read(const void *code);
void image_free(struct image *image);
bool image_has_kernel(const struct image *image, const char *name);
uint64_t image_global_bytes(const struct image *image, const char *name); /* 0: no such variable */
unsigned image_kernel_count(const struct image *image);

/* cuda_module.c */
void modules_drop(CUcontext context);
bool function_valid(CUfunction function);

#endif
