/* SPDX-License-Identifier: Apache-2.0 */
#include "throttle.h"

#include "atomics.h"
#include "clock.h"
#include "estimates.h"
#include "limits.h"
#include "pace.h"
#include "samples.h"

/* Nobody sleeps longer than this without looking at the limits and at what has ended. */
#define SLICE_NS 10000000u
/* A kernel that was never timed is launched again only when its first run has ended, or after this long (it
   may be waiting for the one that comes now). */
#define UNKNOWN_NS 20000000u
#define UNKNOWN_NAP_NS 200000u

/* Of a card with several grants, the one whose debt is repaid first; their shares add up. */
static struct grant *choose(const struct card *card) {
  struct grant *best = card->grants[0];
  for (uint32_t i = 1; i < card->count; i++) {
    struct grant *grant = card->grants[i];
    if (limits_cores(best->limits) == 0) break;
    if (limits_cores(grant->limits) == 0 ||
        load_relaxed(&grant->region.usage->time_ready_ns) < load_relaxed(&best->region.usage->time_ready_ns))
      best = grant;
  }
  return best;
}

/* Not a cancellation point, unlike libc's. */
static void sleep_until(uint64_t when) {
  struct timespec time = {.tv_sec = (time_t)(when / 1000000000u), .tv_nsec = (long)(when % 1000000000u)};
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static uint64_t earliest(uint64_t left, uint64_t right) { return left < right ? left : right; }

static void await_first_run(const struct estimate *estimate) {
  uint64_t now = clock_now(), deadline = now + UNKNOWN_NS;
  while (now < deadline && atomic_load_explicit(&estimate->pending, memory_order_relaxed) != 0) {
    uint64_t again = samples_settle();
    if (atomic_load_explicit(&estimate->ns, memory_order_relaxed) != 0) return;
    sleep_until(earliest(again, now + UNKNOWN_NAP_NS));
    now = clock_now();
  }
}

/* Waits until the budget allows the launch and takes its cost. Returns the rate in force then; 0: not limited
   any more. What has ended is settled first: it may move the moment, and an unsettled sample looks to the
   grant's other processes like a kernel on the card. */
static uint32_t wait_for_budget(struct grant *grant, uint32_t rate, uint64_t cost, uint64_t *waited) {
  /* The coarse clock is never ahead: if the time has come by it, it has come. */
  if (pace_admit(grant->region.usage, rate, clock_coarse(), cost) == 0) return rate;
  uint64_t begun = clock_now(), now = begun;
  for (;;) {
    uint64_t again = samples_settle(), ready = pace_admit(grant->region.usage, rate, now, cost);
    *waited = now - begun;
    if (ready == 0) return rate;
    sleep_until(earliest(earliest(ready, again), now + SLICE_NS));
    rate = limits_cores(grant->limits);
    if (rate == 0 || rate >= 100) return 0;
    now = clock_now();
  }
}

static void debit(struct launch *launch, struct grant *grant, uint32_t rate, struct estimate *estimate,
                  CUstream stream, bool per_thread) {
  struct tessera_process *slot = region_slot(&grant->region);
  uint64_t waited = 0;
  if (atomic_load_explicit(&estimate->ns, memory_order_relaxed) == 0) await_first_run(estimate);
  uint64_t cost = atomic_load_explicit(&estimate->ns, memory_order_relaxed);
  rate = wait_for_budget(grant, rate, cost, &waited);
  if (slot != NULL && waited != 0) add_relaxed(&slot->waited_ns, waited);
  if (rate == 0) return;
  launch->grant = grant;
  launch->rate = rate;
  launch->debited = cost;
  if (slot != NULL) add_relaxed(&slot->busy_ns, cost);
  uint32_t launches = estimate_launch(estimate);
  if (launches == 0) return;
  samples_settle();
  const struct sample_of of = {.grant = grant,
                               .estimate = estimate,
                               .debited = cost,
                               .launches = launches,
                               .stream = stream,
                               .per_thread = per_thread};
  launch->sample = sample_begin(&of);
}

struct launch throttle_begin(const void *function, uint64_t blocks, CUstream stream, bool per_thread) {
  struct launch launch = {.grant = NULL, .debited = 0, .rate = 0, .sample = -1};
  struct card *card = card_of_thread();
  if (card == NULL) return launch;
  struct grant *grant = choose(card);
  struct tessera_process *slot = region_slot(&grant->region);
  if (slot != NULL) {
    /* A count for people: threads may lose one, a locked instruction would cost more than all the rest here.
     */
    store_relaxed(&slot->launches, load_relaxed(&slot->launches) + 1);
    store_relaxed(&slot->last_launch_ns, clock_coarse());
  }
  uint32_t rate = limits_cores(grant->limits);
  if (rate == 0 || rate >= 100 || stream_captures(stream, per_thread)) return launch;
  debit(&launch, grant, rate, estimate_of(function, blocks), stream, per_thread);
  return launch;
}

CUresult throttle_end(const struct launch *launch, CUresult result) {
  if (launch->sample >= 0) sample_end(launch->sample, result);
  if (result == CUDA_SUCCESS || launch->grant == NULL || launch->debited == 0) return result;
  pace_correct(launch->grant->region.usage, launch->rate, clock_now(), -(int64_t)launch->debited);
  struct tessera_process *slot = region_slot(&launch->grant->region);
  if (slot != NULL) sub_relaxed(&slot->busy_ns, launch->debited);
  return result;
}
