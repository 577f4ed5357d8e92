/* SPDX-License-Identifier: Apache-2.0 */
#include "grants.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "atomics.h"
#include "blocks.h"
#include "container.h"
#include "context_kind.h"
#include "handles.h"
#include "hooks.h"
#include "limits.h"
#include "log.h"
#include "overhead.h"
#include "pools.h"
#include "samples.h"
#include "tiles.h"

#define DEVICES 128

static struct grant grants[GRANTS];
static struct card cards[GRANTS];
static uint32_t grant_count, card_count;
_Atomic int grants_found;
static struct lock loading;

static struct card *device_card[DEVICES];
static int device_count;
atomic_bool grants_mapped;
static struct lock mapping;

/* The last context that each thread worked in; contexts_epoch tells when to forget it. */
static _Atomic uint32_t contexts_epoch = 1;
static __thread struct {
  CUcontext context;
  struct card *card;
  CUdevice device;
  uint32_t epoch;
} thread_context;

/* --- the directory ------------------------------------------------------------------------------------ */

/* "GPU-" or "MIG-" and 32 hexadecimal digits with dashes between. */
static bool parse_uuid(const char *text, unsigned char uuid[16], bool *instance) {
  unsigned int digits = 0;
  *instance = strncmp(text, "MIG-", 4) == 0;
  if (!*instance && strncmp(text, "GPU-", 4) != 0) return false;
  memset(uuid, 0, 16);
  for (const char *at = text + 4; *at != '\0'; at++) {
    unsigned int value;
    if (*at == '-') continue;
    if (*at >= '0' && *at <= '9')
      value = (unsigned int)(*at - '0');
    else if (*at >= 'a' && *at <= 'f')
      value = (unsigned int)(*at - 'a') + 10;
    else if (*at >= 'A' && *at <= 'F')
      value = (unsigned int)(*at - 'A') + 10;
    else
      return false;
    if (digits == 32) return false;
    uuid[digits / 2] = (unsigned char)((unsigned int)uuid[digits / 2] << 4 | value);
    digits++;
  }
  return digits == 32;
}

static const char *map_limits(const char *path, const struct tessera_limits **limits) {
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return strerror(errno);
  const char *problem = NULL;
  void *mapped = MAP_FAILED;
  if (fstat(file, &status) != 0 || (uint64_t)status.st_size < TESSERA_LIMITS_SIZE_0) problem = "too short";
  if (problem == NULL) {
    mapped = mmap(NULL, sizeof **limits, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) problem = strerror(errno);
  }
  close(file);
  if (problem == NULL && !limits_valid(mapped, (uint64_t)status.st_size)) {
    munmap(mapped, sizeof **limits);
    problem = "not a limits file that this library understands";
  }
  if (problem == NULL) *limits = mapped;
  return problem;
}

static bool load_grant(const char *name) {
  char path[REGION_PATH];
  struct grant *grant = &grants[grant_count];
  if (grant_count == GRANTS) {
    log_error("more than %d grants in " TESSERA_GRANTS_DIRECTORY, GRANTS);
    return false;
  }
  if (snprintf(path, sizeof path, TESSERA_GRANTS_DIRECTORY "/%s/limits", name) >= (int)sizeof path)
    return false;
  const char *problem = map_limits(path, &grant->limits);
  if (problem == NULL) {
    char uuid[TESSERA_UUID_SIZE + 1] = {0};
    memcpy(uuid, grant->limits->uuid, TESSERA_UUID_SIZE);
    if (!parse_uuid(uuid, grant->uuid, &grant->instance)) problem = "its uuid is not one";
  }
  if (problem == NULL) {
    snprintf(path, sizeof path, TESSERA_GRANTS_DIRECTORY "/%s/usage", name);
    int error = region_open(&grant->region, path);
    if (error != 0)
      problem = error == EINVAL ? "not a usage file that this library understands"
                : error == EPROTO
                    ? "counted in another release's way: this one starts when the pod is made anew"
                    : strerror(error);
  }
  if (problem != NULL) {
    log_error("%s: %s", path, problem);
    return false;
  }
  grant_count++;
  return true;
}

static void add_to_card(struct grant *grant) {
  struct card *card = NULL;
  for (uint32_t i = 0; i < card_count && card == NULL; i++)
    if (memcmp(cards[i].grants[0]->uuid, grant->uuid, sizeof grant->uuid) == 0) card = &cards[i];
  if (card == NULL) card = &cards[card_count++];
  card->grants[card->count++] = grant;
}

/* What pthread_atfork is made of; from libc itself, so that no libpthread is needed with an older libc. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);

static void after_fork(void) {
  int found = atomic_load_explicit(&grants_found, memory_order_relaxed);
  loading.word = 0;
  if (found == GRANTS_NONE) return;
  for (uint32_t i = 0; i < grant_count; i++) region_after_fork(&grants[i].region);
  for (uint32_t i = 0; i < card_count; i++) cards[i].spreading.word = 0;
  if (found == GRANTS_UNKNOWN) { /* a thread was just reading the directory: the child reads it anew */
    memset(grants, 0, sizeof grants);
    memset(cards, 0, sizeof cards);
    grant_count = card_count = 0;
  }
  mapping.word = 0;
  blocks_reset();
  context_kind_reset();
  handles_reset();
  hooks_reset();
  overhead_reset();
  pools_reset();
  samples_reset();
  tiles_reset();
}

static void find_cap(struct grant *grant, const struct container *container) {
  grant->cap = NULL;
  for (uint32_t i = 0; i < grant->limits->cap_count && i < TESSERA_CAPS; i++)
    if (strncmp(grant->limits->caps[i].container, container->name, TESSERA_CONTAINER_SIZE) == 0)
      grant->cap = &grant->limits->caps[i];
  grant->nameless = container->name[0] == '\0';
  if (grant_is_capped(grant)) grant->region.container = container->tag;
}

/* Only where there are caps is it asked which container this is. */
static void find_caps(void) {
  struct container container;
  bool known = false;
  for (uint32_t i = 0; i < grant_count; i++) {
    if (grants[i].limits->cap_count == 0) continue;
    if (!known && !container_find(&container))
      log_warning("the container's name can't be told from /proc/self/mountinfo: the tightest cap holds");
    known = true;
    find_cap(&grants[i], &container);
  }
}

static void say_what_holds(const struct grant *grant) {
  const struct tessera_limits *limits = grant->limits;
  log_info("%.*s: at most %" PRIu64 " MiB of memory, %u %% of compute, %s", TESSERA_UUID_SIZE, limits->uuid,
           load_relaxed(&limits->memory_bytes) >> 20, limits->guaranteed_cores,
           grant_is_capped(grant) ? "and less by a cap of this container" : "no cap of this container");
}

/* A shim is only mounted where there are grants: without them it is in the wrong place, or they are gone. */
#ifdef TESSERA_SHIM
#define WITHOUT_GRANTS GRANTS_BROKEN
#else
#define WITHOUT_GRANTS GRANTS_NONE
#endif

static enum grants_state load_directory(void) {
  DIR *directory = opendir(TESSERA_GRANTS_DIRECTORY);
  if (directory == NULL) {
    if (errno == ENOENT || errno == ENOTDIR) return WITHOUT_GRANTS;
    log_error(TESSERA_GRANTS_DIRECTORY ": %s", strerror(errno));
    return GRANTS_BROKEN;
  }
  bool valid = true;
  for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
    if (entry->d_name[0] != '.' && !load_grant(entry->d_name)) valid = false;
  closedir(directory);
  if (!valid) return GRANTS_BROKEN;
  if (grant_count == 0) return WITHOUT_GRANTS;
  for (uint32_t i = 0; i < grant_count; i++) add_to_card(&grants[i]);
  find_caps();
  for (uint32_t i = 0; i < grant_count; i++) say_what_holds(&grants[i]);
  return GRANTS_READY;
}

enum grants_state grants_load(void) {
  static atomic_bool watched;
  int state = atomic_load_explicit(&grants_found, memory_order_acquire);
  if (state != GRANTS_UNKNOWN) return (enum grants_state)state;
  bool is_shims = shim_stands_in(); /* two that count in one process would close each other's record locks */
  /* Before a lock is held that a child could wait for; twice does no harm. */
  if (!atomic_load_explicit(&watched, memory_order_relaxed)) __register_atfork(NULL, NULL, after_fork, NULL);
  atomic_store_explicit(&watched, true, memory_order_relaxed);
  lock_take(&loading);
  state = atomic_load_explicit(&grants_found, memory_order_relaxed);
  if (state == GRANTS_UNKNOWN) {
    state = is_shims ? GRANTS_NONE : (int)load_directory();
    atomic_store_explicit(&grants_found, state, memory_order_release);
  }
  lock_leave(&loading);
  return (enum grants_state)state;
}

/* --- devices ------------------------------------------------------------------------------------------ */

static struct card *card_with(const unsigned char uuid[16], bool instance) {
  for (uint32_t i = 0; i < card_count; i++)
    if (cards[i].grants[0]->instance == instance && memcmp(cards[i].grants[0]->uuid, uuid, 16) == 0)
      return &cards[i];
  return NULL;
}

/* cuDeviceGetUuid names the physical card, its _v2 a MIG instance where the device is one. */
static struct card *identify(CUdevice device) {
  CUuuid uuid;
  struct card *card = NULL;
  if (driver_has(CALL_cuDeviceGetUuid_v2) && DRIVER(cuDeviceGetUuid_v2)(&uuid, device) == CUDA_SUCCESS)
    card = card_with(uuid.bytes, true);
  if (card == NULL && DRIVER(cuDeviceGetUuid)(&uuid, device) == CUDA_SUCCESS)
    card = card_with(uuid.bytes, false);
  return card;
}

void grants_map_devices(void) {
  int count = 0;
  if (grants_load() != GRANTS_READY || atomic_load_explicit(&grants_mapped, memory_order_acquire)) return;
  if (DRIVER(cuDeviceGetCount)(&count) != CUDA_SUCCESS) return;
  lock_take(&mapping);
  if (!atomic_load_explicit(&grants_mapped, memory_order_relaxed)) {
    device_count = count < DEVICES ? count : DEVICES;
    for (int device = 0; device < device_count; device++) device_card[device] = identify(device);
    atomic_store_explicit(&grants_mapped, true, memory_order_release);
  }
  lock_leave(&mapping);
}

struct card *card_of_device(CUdevice device) {
  if (!grants_hold() || device < 0 || device >= device_count) return NULL;
  return device_card[device];
}

struct card *card_of_uuid(const char *text) {
  unsigned char uuid[16];
  bool instance;
  if (grants_load() != GRANTS_READY || !parse_uuid(text, uuid, &instance)) return NULL;
  return card_with(uuid, instance);
}

/* Looks which context is the thread's, and whose. false: it has none. Once devices are mapped. */
static inline bool look_at_thread(void) {
  CUcontext context = NULL;
  if (DRIVER(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || context == NULL) return false;
  uint32_t epoch = atomic_load_explicit(&contexts_epoch, memory_order_acquire);
  if (thread_context.context == context && thread_context.epoch == epoch) return true;
  CUdevice device;
  if (DRIVER(cuCtxGetDevice)(&device) != CUDA_SUCCESS) return false;
  thread_context.context = context;
  thread_context.epoch = epoch;
  thread_context.device = device;
  thread_context.card = card_of_device(device);
  return true;
}

struct card *card_current(CUcontext *context) {
  if (!grants_hold() || !look_at_thread()) return NULL;
  *context = thread_context.context;
  return thread_context.card;
}

CUcontext context_last_seen(void) { return thread_context.context; }

struct card *card_of_thread(void) {
  if (!grants_hold()) return NULL;
  if (device_count == 1) return device_card[0];
  return look_at_thread() ? thread_context.card : NULL;
}

CUdevice device_of_thread(void) { return grants_hold() && look_at_thread() ? thread_context.device : -1; }

CUdevice device_of_stream(CUstream stream) {
  CUcontext context = NULL, popped;
  CUdevice device = device_of_thread();
  if (device_count == 1 || is_default_stream(stream) || !driver_has(CALL_cuStreamGetCtx)) return device;
  if (DRIVER(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS) return device;
  if (device >= 0 && context == thread_context.context) return device;
  if (DRIVER(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return -1;
  device = device_of_thread();
  DRIVER(cuCtxPopCurrent_v2)(&popped);
  return device;
}

struct card *card_of_stream(CUstream stream) {
  if (!grants_hold()) return NULL;
  return device_count == 1 ? device_card[0] : card_of_device(device_of_stream(stream));
}

void grants_forget_contexts(void) { atomic_fetch_add_explicit(&contexts_epoch, 1, memory_order_acq_rel); }

bool grants_are_one(void) { return grant_count == 1; }

uint32_t grant_number(const struct grant *grant) { return (uint32_t)(grant - grants); }

struct card *card_at(uint32_t number) { return &cards[number]; }

uint32_t card_number(const struct card *card) { return (uint32_t)(card - cards); }

/* --- sums --------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t left, uint64_t right) { return left < right ? left : right; }

uint64_t grant_limit(const struct grant *grant) {
  return least(load_relaxed(&grant->limits->memory_bytes), ACCOUNT_MOST * TESSERA_GRANULE);
}

uint64_t grant_cap(const struct grant *grant) {
  uint64_t bytes = grant->nameless ? limits_tightest_cap(grant->limits).memory_bytes : 0;
  if (grant->cap != NULL) bytes = load_relaxed(&grant->cap->memory_bytes);
  return bytes == 0 ? REGION_NO_CAP : bytes;
}

static bool grant_spills(const struct grant *grant) {
  return (load_relaxed(&grant->limits->flags) & TESSERA_FLAG_SPILL) != 0;
}

static uint64_t left(uint64_t all, uint64_t used) { return all > used ? all - used : 0; }

static struct card_view grant_view(struct grant *grant) {
  uint64_t limit = grant_limit(grant), used = region_used(&grant->region);
  if (!grant_is_capped(grant)) return (struct card_view){limit, used, left(limit, used)};
  uint64_t cap = least(grant_cap(grant), limit), here = region_used_by_container(&grant->region);
  return (struct card_view){cap, here, least(left(limit, used), left(cap, here))};
}

uint64_t grant_room(struct grant *grant) { return grant_view(grant).available; }

/* One that spills is enough: it has room for what doesn't fit. */
bool card_spills(const struct card *card) {
  for (uint32_t i = 0; i < card->count; i++)
    if (grant_spills(card->grants[i])) return true;
  return false;
}

/* No more than the card has, unless the rest spills. */
static uint64_t shown_total(const struct card *card, uint64_t limits, bool spills) {
  uint64_t on_card = load_relaxed(&card->grants[0]->limits->card_memory_bytes);
  return on_card == 0 || spills ? limits : least(limits, on_card);
}

uint64_t card_total(const struct card *card) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < card->count; i++)
    sum += least(grant_limit(card->grants[i]), grant_cap(card->grants[i]));
  return shown_total(card, sum, card_spills(card));
}

struct card_view card_view(struct card *card, uint64_t free_on_card) {
  struct card_view view = grant_view(card->grants[0]);
  bool spills = card_spills(card);
  for (uint32_t i = 1; i < card->count; i++) {
    struct card_view more = grant_view(card->grants[i]);
    view.total += more.total;
    view.used += more.used;
    view.available += more.available;
  }
  view.total = shown_total(card, view.total, spills);
  view.used = least(view.used, view.total);
  view.available = least(view.available, view.total);
  if (!spills) view.available = least(view.available, free_on_card);
  return view;
}
