/* SPDX-License-Identifier: Apache-2.0
 *
 * Per pool one lock, held over the driver's call: between the reservation and the look at what the driver has
 * reserved no other allocation may come. The driver serialises them as well. Lock order: pool, blocks,
 * region.
 *
 * A real driver reserves in large pieces (tens of MiB); the size of a piece is learnt from what a pool grows
 * by, and reserved from then on. */
#include "pools.h"

#include <string.h>

#include "atomics.h"
#include "card_memory.h"
#include "hooks.h"
#include "memory.h"
#include "usage.h"

#define POOLS 1024u
#define DEVICES 128

struct pool {
  struct lock lock;
  _Atomic(CUmemoryPool) handle; /* NULL: of a device's graphs, or nobody's any more */
  struct card *card;            /* NULL: not limited */
  CUdevice graphs_of;           /* a device; -1: a pool with a handle */
  _Atomic bool destroyed;
  _Atomic uint64_t used;    /* bytes of its live blocks */
  _Atomic uint64_t charged; /* to the card */
  uint64_t piece;           /* what it has reserved is a multiple of this */
};

static struct pool pools[POOLS];
static _Atomic uint32_t pool_count;
static struct lock adding;

/* Which pool each device takes from: 1 + its number, above it the round in which that was found out. Whoever
   changes a device's pool begins another round, so what somebody finds out meanwhile is forgotten with it. */
#define ROUND_SHIFT 16
_Static_assert(POOLS < 1u << ROUND_SHIFT, "a pool's number fits below the round");
static _Atomic uint64_t current[DEVICES];
static _Atomic uint64_t round_now = 1;

/* --- finding ------------------------------------------------------------------------------------------ */

static struct pool *known(CUmemoryPool handle, CUdevice graphs_of) {
  uint32_t count = atomic_load_explicit(&pool_count, memory_order_acquire);
  for (uint32_t i = 0; i < count; i++)
    if (atomic_load_explicit(&pools[i].handle, memory_order_acquire) == handle &&
        pools[i].graphs_of == graphs_of && !pools[i].destroyed)
      return &pools[i];
  return NULL;
}

/* Takes the lock of a pool of which nothing is left, neither blocks nor a charge. */
static bool take_over(struct pool *pool) {
  if (!pool->destroyed || !lock_try(&pool->lock)) return false;
  if (pool->destroyed && atomic_load_explicit(&pool->used, memory_order_relaxed) == 0 &&
      atomic_load_explicit(&pool->charged, memory_order_relaxed) == 0)
    return true;
  lock_leave(&pool->lock);
  return false;
}

/* For a new one, with its lock; NULL: there are `most`. */
static struct pool *place(uint32_t most) {
  uint32_t count = atomic_load_explicit(&pool_count, memory_order_relaxed);
  for (uint32_t i = 0; i < count; i++)
    if (take_over(&pools[i])) return &pools[i];
  if (count >= most) return NULL;
  lock_take(&pools[count].lock);
  return &pools[count];
}

static struct pool *added(CUmemoryPool handle, CUdevice graphs_of, struct card *card, uint32_t most) {
  lock_take(&adding);
  struct pool *pool = known(handle, graphs_of);
  if (pool == NULL && (pool = place(most)) != NULL) {
    pool->card = card;
    pool->graphs_of = graphs_of;
    pool->piece = GRANULE;
    atomic_store_explicit(&pool->handle, handle, memory_order_release);
    pool->destroyed = false;
    if (pool == &pools[atomic_load_explicit(&pool_count, memory_order_relaxed)])
      atomic_fetch_add_explicit(&pool_count, 1, memory_order_release);
    lock_leave(&pool->lock);
  }
  lock_leave(&adding);
  return pool;
}

static struct pool *limited(struct pool *pool) { return pool != NULL && pool->card != NULL ? pool : NULL; }

static uint64_t this_round(void) { return atomic_load_explicit(&round_now, memory_order_acquire); }

static struct pool *ask_current(CUdevice device) {
  CUmemoryPool handle = NULL;
  struct card *card = card_of_device(device);
  uint64_t round = this_round();
  if (card == NULL || DRIVER(cuDeviceGetMemPool)(&handle, device) != CUDA_SUCCESS || handle == NULL)
    return NULL;
  struct pool *pool = known(handle, -1);
  pool = limited(pool != NULL ? pool : added(handle, -1, card, POOLS));
  if (pool != NULL)
    atomic_store_explicit(&current[device], round << ROUND_SHIFT | (uint64_t)(pool - pools + 1),
                          memory_order_release);
  return pool;
}

/* The pool that a device takes from. NULL: not limited. */
static struct pool *current_of(CUdevice device) {
  if (device < 0 || device >= DEVICES) return NULL;
  uint64_t found = atomic_load_explicit(&current[device], memory_order_acquire);
  if (found >> ROUND_SHIFT != this_round()) return ask_current(device);
  return &pools[(found & ((1u << ROUND_SHIFT) - 1)) - 1];
}

struct pool *pools_hold_current(CUdevice device) {
  for (;;) {
    uint64_t round = this_round();
    struct pool *pool = current_of(device);
    if (pool == NULL) return NULL;
    lock_take(&pool->lock);
    if (this_round() == round) return pool;
    lock_leave(&pool->lock);
  }
}

void pools_changed_current(struct pool *held) {
  atomic_fetch_add_explicit(&round_now, 1, memory_order_acq_rel);
  if (held != NULL) lock_leave(&held->lock);
}

/* A default pool is asked for in several ways; here it is looked for among the devices'. */
struct pool *pools_by_handle(CUmemoryPool handle) {
  CUmemoryPool found;
  uint64_t bytes;
  if (!grants_hold() || handle == NULL) return NULL;
  CUcontext context;
  struct card *card = card_current(&context);
  struct pool *pool = known(handle, -1);
  if (pool != NULL) return limited(pool);
  if (DRIVER(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) != CUDA_SUCCESS)
    return NULL; /* it is none: the driver says so */
  int count = 0;
  DRIVER(cuDeviceGetCount)(&count);
  for (CUdevice device = 0; device < count; device++)
    if (DRIVER(cuDeviceGetDefaultMemPool)(&found, device) == CUDA_SUCCESS && found == handle)
      card = card_of_device(device);
  return limited(added(handle, -1, card, POOLS));
}

struct pool *pools_of_graphs(CUdevice device) {
  struct card *card = card_of_device(device);
  if (card == NULL) return NULL;
  struct pool *pool = known(NULL, device);
  return limited(pool != NULL ? pool : added(NULL, device, card, POOLS));
}

/* What programs make leaves room for what devices have: a pool of their own, one for graphs. */
bool pools_learn(CUmemoryPool handle, const struct cuda_location *location, bool made) {
  uint32_t most = made ? POOLS - 2 * DEVICES : POOLS;
  if (grants_load() != GRANTS_READY || handle == NULL) return true;
  struct card *card = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? card_of_device(location->id) : NULL;
  return known(handle, -1) != NULL || added(handle, -1, card, most) != NULL;
}

/* --- charging, with the pool's lock ------------------------------------------------------------------- */

static uint64_t charged(const struct pool *pool) {
  return atomic_load_explicit(&pool->charged, memory_order_relaxed);
}

static void add_charge(struct pool *pool, uint64_t bytes) {
  atomic_store_explicit(&pool->charged, charged(pool) + bytes, memory_order_relaxed);
}

static bool reserve(struct pool *pool, uint64_t bytes) {
  if (bytes != 0 && !card_reserve(pool->card, REGION_MEMORY, bytes)) return false;
  add_charge(pool, bytes);
  return true;
}

static void release(struct pool *pool, uint64_t bytes) {
  card_release(pool->card, REGION_MEMORY, bytes);
  add_charge(pool, -bytes);
}

/* What the driver has reserved for the pool; where it can't say, what is in use. */
static uint64_t reserved(const struct pool *pool) {
  uint64_t bytes = 0;
  CUmemoryPool handle = atomic_load_explicit(&pool->handle, memory_order_relaxed);
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (pool->graphs_of >= 0)
    result =
        DRIVER(cuDeviceGetGraphMemAttribute)(pool->graphs_of, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
  else if (!pool->destroyed)
    result = DRIVER(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return result == CUDA_SUCCESS ? bytes : atomic_load_explicit(&pool->used, memory_order_relaxed);
}

/* What is held is charged, also where there is no room for it. */
static void settle_at(struct pool *pool, uint64_t now) {
  uint64_t before = charged(pool);
  if (now < before) release(pool, before - now);
  if (now > before && card_hold(pool->card, REGION_MEMORY, now - before)) add_charge(pool, now - before);
}

static void settle(struct pool *pool) { settle_at(pool, reserved(pool)); }

static uint64_t in_use(const struct pool *pool) {
  uint64_t bytes = 0;
  if (pool->graphs_of < 0) return atomic_load_explicit(&pool->used, memory_order_relaxed);
  DRIVER(cuDeviceGetGraphMemAttribute)(pool->graphs_of, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes);
  return bytes;
}

static uint64_t kept(const struct pool *pool) {
  uint64_t all = charged(pool), used = in_use(pool);
  return all > used ? all - used : 0;
}

static uint64_t in_pieces(const struct pool *pool, uint64_t bytes) {
  if (pool->piece == GRANULE) return bytes;
  return bytes > UINT64_MAX - pool->piece ? bytes : (bytes + pool->piece - 1) / pool->piece * pool->piece;
}

/* Whether nothing is reserved, since the pool keeps as much as is asked for, as it does for a program that
   allocates and frees in turns, and there would be room. What the driver takes all the same is charged then. */
static bool keeps_enough(const struct pool *pool, uint64_t bytes) {
  const struct grant *grant = pool->card->grants[0];
  uint64_t used = atomic_load_explicit(&pool->used, memory_order_relaxed), all = charged(pool);
  uint64_t limit = grant_limit(grant), held = usage_total(grant->region.usage);
  if (pool->graphs_of >= 0 || grant_cap(grant) != REGION_NO_CAP || all < used) return false;
  return all - used >= bytes && held <= limit && in_pieces(pool, bytes) <= limit - held;
}

/* As if nothing were kept for it: the driver need not take what is. Where that is too much, what is kept
   serves it; if all of it does, nothing more is reserved. */
static bool reserve_for(struct pool *pool, uint64_t bytes) {
  uint64_t most = in_pieces(pool, bytes);
  if (reserve(pool, most)) return true;
  settle(pool);
  return reserve(pool, most) || kept(pool) >= bytes;
}

bool pools_begin(struct pool_charge *charge, struct pool *pool, uint64_t bytes) {
  charge->pool = pool;
  charge->bytes = memory_rounded(bytes);
  charge->card = pool == NULL ? NULL : pool->card;
  if (pool == NULL) return true;
  lock_take(&pool->lock);
  if (keeps_enough(pool, charge->bytes)) {
    charge->expected = charged(pool) + in_pieces(pool, charge->bytes);
    return true;
  }
  bool fits = reserve_for(pool, charge->bytes);
  if (!fits) {
    lock_leave(&pool->lock);
    bool more = pools_give_way(pool->card);
    lock_take(&pool->lock);
    fits = more && reserve_for(pool, charge->bytes);
  }
  charge->expected = charged(pool);
  if (!fits) lock_leave(&pool->lock);
  return fits;
}

bool pools_begin_current(struct pool_charge *charge, CUstream stream, uint64_t bytes) {
  for (;;) {
    uint64_t round = this_round();
    struct pool *pool = grants_hold() ? current_of(device_of_stream(stream)) : NULL;
    bool fits = pools_begin(charge, pool, bytes);
    if (pool == NULL || this_round() == round) return fits;
    if (fits) pools_end(charge, CUDA_ERROR_NOT_READY, 0); /* the device takes from another one by now */
  }
}

/* The address is 0 for a graph, whose blocks are the driver's own affair. */
static bool note(const struct pool_charge *charge, uint64_t address) {
  struct block stale;
  struct pool *pool = charge->pool;
  if (address == 0) return true;
  struct block block = {.address = address,
                        .bytes = charge->bytes,
                        .context = context_last_seen(),
                        .kind = BLOCK_ADDRESS,
                        .pool = (uint32_t)(pool - pools) + 1};
  atomic_fetch_add_explicit(&pool->used, charge->bytes, memory_order_relaxed);
  if (!blocks_add(&block, &stale)) {
    atomic_fetch_sub_explicit(&pool->used, charge->bytes, memory_order_relaxed);
    return false;
  }
  if (stale.address != 0) memory_freed(&stale);
  return true;
}

/* Whatever it has reserved is a multiple of its piece, which is not known before it takes more than it was
   asked for. */
static void learn_piece(struct pool *pool, uint64_t now, bool more_than_asked) {
  if (pool->piece == GRANULE && !more_than_asked) return;
  uint64_t piece = pool->piece == GRANULE ? now : pool->piece, rest = now;
  while (rest != 0) {
    uint64_t next = piece % rest;
    piece = rest;
    rest = next;
  }
  pool->piece = piece > GRANULE ? piece : GRANULE;
}

bool pools_end(struct pool_charge *charge, CUresult result, uint64_t address) {
  struct pool *pool = charge->pool;
  if (pool == NULL) return true;
  bool good = true;
  uint64_t now = reserved(pool);
  if (result == CUDA_SUCCESS) {
    learn_piece(pool, now, now > charge->expected);
    good = (now <= charged(pool) || reserve(pool, now - charged(pool))) && note(charge, address);
  }
  settle_at(pool, now);
  lock_leave(&pool->lock);
  return good;
}

/* --- giving back -------------------------------------------------------------------------------------- */

static void settle_one(struct pool *pool) {
  lock_take(&pool->lock);
  if (pool->card != NULL) settle(pool);
  lock_leave(&pool->lock);
}

/* What a pool keeps is given back when somebody waits for the card; a destroyed one keeps nothing. */
void pools_freed(const struct block *block) {
  struct pool *pool = &pools[block->pool - 1];
  atomic_fetch_sub_explicit(&pool->used, block->bytes, memory_order_relaxed);
  if (pool->destroyed) settle_one(pool);
}

/* Where all that is charged is in use, the driver can't have given anything back. Of graphs' pools only the
   driver knows what is. */
static bool may_have_shrunk(struct pool *pool) {
  return charged(pool) > (pool->graphs_of < 0 ? atomic_load_explicit(&pool->used, memory_order_relaxed) : 0);
}

void pools_settle(const struct card *card) {
  uint32_t count = atomic_load_explicit(&pool_count, memory_order_acquire);
  for (uint32_t i = 0; i < count; i++)
    if ((card == NULL || pools[i].card == card) && may_have_shrunk(&pools[i])) settle_one(&pools[i]);
}

/* Graphs' pools give back nothing by waiting. */
void pools_settle_after_wait(void) {
  uint32_t count = atomic_load_explicit(&pool_count, memory_order_acquire);
  for (uint32_t i = 0; i < count; i++)
    if (pools[i].graphs_of < 0 && may_have_shrunk(&pools[i])) settle_one(&pools[i]);
}

struct pool *pools_hold_dying(CUmemoryPool handle) {
  struct pool *pool = known(handle, -1);
  if (pool == NULL) return NULL;
  lock_take(&pool->lock);
  pool->destroyed = true;
  return pool;
}

void pools_destroyed(struct pool *held, bool is_gone) {
  if (held != NULL) held->destroyed = is_gone;
  if (held != NULL && held->card != NULL) settle(held);
  pools_changed_current(held);
}

bool pools_give_way(const struct card *card) {
  uint32_t count = atomic_load_explicit(&pool_count, memory_order_acquire);
  bool more = false;
  for (uint32_t i = 0; i < count; i++) {
    struct pool *pool = &pools[i];
    if (pool->card != card || pool->destroyed) continue;
    lock_take(&pool->lock);
    uint64_t before = charged(pool);
    settle(pool);
    if (kept(pool) != 0) {
      if (pool->graphs_of >= 0)
        IN_DRIVER(REAL(cuDeviceGraphMemTrim)(pool->graphs_of));
      else
        IN_DRIVER(REAL(cuMemPoolTrimTo)(atomic_load_explicit(&pool->handle, memory_order_relaxed), 0));
      settle(pool);
    }
    more = more || charged(pool) < before;
    lock_leave(&pool->lock);
  }
  return more;
}

void pools_reset(void) {
  memset(pools, 0, sizeof pools);
  atomic_fetch_add_explicit(&round_now, 1, memory_order_relaxed);
  atomic_store_explicit(&pool_count, 0, memory_order_relaxed);
  adding.word = 0;
}
