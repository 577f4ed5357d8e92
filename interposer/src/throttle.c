/* SPDX-License-Identifier: Apache-2.0 */
#include "throttle.h"

#include "atomics.h"
#include "budget.h"
#include "clock.h"
#include "estimates.h"
#include "pace.h"
#include "samples.h"
#include "usage.h"

/* Nobody sleeps longer than this without looking at the limits and at what has ended. */
#define SLICE_NS 10000000u
/* How much later than the one before it a waiting process comes: longer than it takes to wake one. */
#define TURN_NS 200000u
#define MOST_BEFORE 64u
/* A kernel that was never timed is launched again only when its first run has ended, or after this long (it
   may be waiting for the one that comes now). */
#define UNKNOWN_NS 20000000u
#define UNKNOWN_NAP_NS 200000u

/* Of a card with several grants, the one whose debt is repaid first; their shares add up. */
static struct grant *choose(const struct card *card, uint64_t now) {
  struct grant *best = card->grants[0];
  for (uint32_t i = 1; i < card->count; i++) {
    struct grant *grant = card->grants[i];
    if (budget_is_free(budget_of(best, now))) break;
    if (budget_is_free(budget_of(grant, now)) ||
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

/* Of processes that wait the one goes first that has waited longest: every other one comes so much later for each
   that is before it. One that is stopped so delays the others, but takes nothing from them: what they don't have
   now they have saved up. */
static uint64_t behind_others(const struct grant *grant, const struct tessera_process *slot, uint64_t since) {
  const struct tessera_usage *usage = grant->region.usage;
  uint32_t high = usage_slots_high(usage), before = 0;
  for (uint32_t i = 0; slot != NULL && i < high && before < MOST_BEFORE; i++) {
    const struct tessera_process *other = &usage->process[i];
    before += other != slot && load_relaxed(&other->waiting) != 0 && slot_taken(other) &&
              load_relaxed(&other->last_launch_ns) < since;
  }
  return before * (uint64_t)TURN_NS;
}

/* Waits until the budget allows the launch and takes its cost. Returns the budget in force then; a free one:
   not limited any more. What has ended is settled first: it may move the moment, and an unsettled sample
   looks to the grant's other processes like a kernel on the card. */
static struct budget wait_for_budget(struct grant *grant, struct tessera_process *slot, struct budget budget,
                                     uint64_t cost) {
  uint64_t begun = clock_now(), now = begun;
  if (slot != NULL) {
    store_relaxed(&slot->last_launch_ns, begun);
    add_relaxed(&slot->waiting, 1u);
  }
  while (!budget_is_free(budget)) {
    uint64_t again = samples_settle(), late = behind_others(grant, slot, begun);
    uint64_t ready = budget_admit(grant, budget, now - late, cost);
    if (ready == 0) break;
    sleep_until(earliest(earliest(ready + late, again), now + SLICE_NS));
    now = clock_now();
    budget = budget_of(grant, now);
  }
  if (slot != NULL) {
    sub_relaxed(&slot->waiting, 1u);
    add_relaxed(&slot->waited_ns, now - begun);
  }
  return budget;
}

/* What a kernel that was never timed is taken to cost: twice what can be saved up. So the next one waits until more
   is known, and processes that start together don't each take their first kernel for nothing. */
static uint64_t presumed(struct budget budget) {
  uint32_t cores = budget.cores != 0 ? budget.cores : 100;
  if (budget.cap_cores != 0 && budget.cap_cores < cores) cores = budget.cap_cores;
  return 2 * (uint64_t)PACE_BURST_NS * cores / 100;
}

static void debit(struct launch *launch, struct budget budget, uint64_t now, struct estimate *estimate,
                  CUstream stream, bool per_thread) {
  struct grant *grant = launch->grant;
  struct tessera_process *slot = region_slot(&grant->region);
  if (atomic_load_explicit(&estimate->ns, memory_order_relaxed) == 0) await_first_run(estimate);
  uint64_t known = atomic_load_explicit(&estimate->ns, memory_order_relaxed);
  uint64_t cost = known != 0 ? known : presumed(budget);
  uint32_t launches = estimate_launch(estimate, now);
  /* The coarse clock is never ahead: if the time has come by it, it has come. */
  if (budget_admit(grant, budget, now - behind_others(grant, slot, now), cost * launches) != 0)
    budget = wait_for_budget(grant, slot, budget, cost * launches);
  if (budget_is_free(budget)) return;
  launch->budget = budget;
  launch->debited = cost;
  if (slot != NULL) {
    add_relaxed(&slot->launches, launches - 1);
    add_relaxed(&slot->busy_ns, cost * launches);
    if (launches != 1 && !grant->region.has_spans) add_relaxed(&slot->short_ns, cost * launches);
  }
  samples_settle();
  const struct sample_of of = {.grant = grant,
                               .estimate = estimate,
                               .debited = cost,
                               .launches = launches,
                               .stream = stream,
                               .per_thread = per_thread};
  launch->sample = sample_begin(&of);
}

_Atomic(struct grant *) throttle_only_grant;

bool throttle_is_due(CUstream stream) {
  struct card *card = card_of_stream(stream);
  for (uint32_t i = 0; card != NULL && i < card->count; i++)
    if (!budget_was_never(card->grants[i])) return true;
  return false;
}

bool throttle_is_paid(const void *function, uint64_t blocks) {
  return !samples_captures_go_on() && estimate_is_paid(estimate_of(function, blocks));
}

struct launch throttle_begin(const void *function, uint64_t blocks, CUstream stream, bool per_thread) {
  struct launch launch = {.grant = NULL, .debited = 0, .sample = -1};
  struct card *card = card_of_stream(stream);
  if (card == NULL) return launch;
  uint64_t now = clock_coarse();
  struct grant *grant = card->count == 1 ? card->grants[0] : choose(card, now);
  if (grants_are_one()) atomic_store_explicit(&throttle_only_grant, grant, memory_order_relaxed);
  struct budget budget = budget_of(grant, now);
  bool limited = !budget_is_free(budget) && !stream_captures(stream, per_thread);
  struct estimate *estimate = limited ? estimate_of(function, blocks) : NULL;
  if (limited && estimate_is_paid(estimate)) return launch; /* it came without having asked */
  struct tessera_process *slot = region_slot(&grant->region);
  if (slot != NULL) {
    throttle_count(slot);
    store_relaxed(&slot->last_launch_ns, now);
  }
  if (!limited) return launch;
  launch.grant = grant;
  debit(&launch, budget, now, estimate, stream, per_thread);
  return launch;
}

CUresult throttle_end(const struct launch *launch, CUresult result) {
  if (launch->sample >= 0) sample_end(launch->sample, result);
  if (result == CUDA_SUCCESS || launch->grant == NULL || launch->debited == 0) return result;
  budget_correct(launch->grant, launch->budget, clock_now(), -(int64_t)launch->debited);
  struct tessera_process *slot = region_slot(&launch->grant->region);
  if (slot != NULL) sub_relaxed(&slot->busy_ns, launch->debited);
  return result;
}
