/* SPDX-License-Identifier: Apache-2.0
 *
 * The grants of this container and the cards they are for. A card is known by its UUID, never by an index, so
 * CUDA_VISIBLE_DEVICES and the order of devices change nothing. A device without a grant is passed through */
#ifndef TESSERA_GRANTS_H
#define TESSERA_GRANTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_types.h"
#include "region.h"
#include "tessera_abi.h"

#ifndef TESSERA_GRANTS_DIRECTORY
#define TESSERA_GRANTS_DIRECTORY "/run/tessera/grants"
#endif

#define GRANTS 64 /* of one container; several may be of one card: they add up */

struct grant {
  const struct tessera_limits *limits; /* mapped read-only */
  const struct tessera_cap *cap;       /* this container's own, smaller limits; NULL: it has none */
  struct region region;
  _Atomic uint32_t timings; /* this process's part of the region's */
  bool instance;            /* of a MIG instance */
  bool nameless;            /* there are caps, and the container isn't known: the least of them holds */
  unsigned char uuid[16];
};

struct card {
  unsigned int count;
  struct lock spreading; /* between this process's threads, where there are several grants (card_memory.c) */
  struct grant *grants[GRANTS];
};

static inline bool grant_is_capped(const struct grant *grant) {
  return grant->cap != NULL || grant->nameless;
}

enum grants_state {
  GRANTS_UNKNOWN,
  GRANTS_NONE,  /* no directory, or an empty one: nothing is limited */
  GRANTS_READY, /* every entry is valid */
  GRANTS_BROKEN /* an entry can't be honoured: CUDA must not start */
};

/* Reads the directory on the first call. */
enum grants_state grants_load(void);

/* Whether it is known by now that there are none, or that a shim keeps them. */
extern __attribute__((visibility("hidden"))) _Atomic int grants_found;
static inline bool grants_are_none(void) {
  return atomic_load_explicit(&grants_found, memory_order_relaxed) == GRANTS_NONE;
}

/* Finds out which CUDA device is which card. Does nothing until the driver is initialised. */
__attribute__((cold)) void grants_map_devices(void);

/* Whether anything is limited: the grants are valid, and it is known which device is which card. */
extern __attribute__((visibility("hidden"))) atomic_bool grants_mapped;
static inline bool grants_hold(void) {
  if (!atomic_load_explicit(&grants_mapped, memory_order_acquire)) grants_map_devices();
  return atomic_load_explicit(&grants_mapped, memory_order_acquire);
}

/* NULL: not limited. */
struct card *card_of_device(CUdevice device);
struct card *card_of_uuid(const char *text);

/* The card of the calling thread's context, and that context. NULL: not limited, or no context. */
struct card *card_current(CUcontext *context);

/* The same where the context itself does not matter; costs nothing on a machine with one device. */
struct card *card_of_thread(void);

/* The context that the calling thread's last look found, by any of these functions but card_of_thread. */
CUcontext context_last_seen(void);

/* A context has ended: its handle may come back for another card. */
void grants_forget_contexts(void);

/* Whether this container has one grant alone. */
bool grants_are_one(void);

uint32_t grant_number(const struct grant *grant);

/* By number, as blocks know it. */
struct card *card_at(uint32_t number);
uint32_t card_number(const struct card *card);

/* The device of the calling thread's context, or of an explicit stream; -1: there is none. */
CUdevice device_of_thread(void);
CUdevice device_of_stream(CUstream stream);

/* The card that work in the stream is done by; costs nothing on a machine with one device. NULL: not limited. */
struct card *card_of_stream(CUstream stream);

/* Of the grant, in bytes; REGION_NO_CAP where the container has no cap of its own. */
uint64_t grant_limit(const struct grant *grant);
uint64_t grant_cap(const struct grant *grant);

/* What is left of both. */
uint64_t grant_room(struct grant *grant);

/* Whether it goes on in managed memory where the card is full (spill.h): by one grant that does. */
bool card_spills(const struct card *card);

/* A card as views show it, over all its grants, as this container may use them. Nothing is more than the card
   has, unless the rest spills. */
struct card_view {
  uint64_t total, used, available;
};
struct card_view card_view(struct card *card, uint64_t free_on_card);
uint64_t card_total(const struct card *card);

#endif
