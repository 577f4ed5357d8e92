/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <string.h>

#include "atomics.h"
#include "budget.h"
#include "card_clock.h"
#include "clock.h"
#include "hooks.h"
#include "limits.h"
#include "lock.h"
#include "spans.h"
#include "stays.h"
#include "usage.h"

#define SAMPLES 64
#define SHARERS_SEEN 64
#define LONGEST_WAIT_NS 16000000u /* for a turn on the card: of eight with 2 ms each */
#define LONGEST_DUE_NS 4000000u
#define LOOK_NS 100000u /* the least between two looks at a kernel that should have ended */

enum stage { STAGE_IDLE, STAGE_OPEN, STAGE_PENDING };

struct sample {
  CUcontext context; /* of the events; NULL: none made yet */
  CUevent start, end;
  uint64_t begun_ns;
  uint64_t running_ns; /* when it was last seen not to have ended */
  struct sample_of of;
  _Atomic int stage;
  uint32_t sharers; /* when it began */
  uint32_t others;  /* launches that others had timed when it began */
  uint32_t held;    /* calls under way that may end the context */
  bool is_resident; /* the others reckon with it */
};

static struct sample samples[SAMPLES];
static struct lock samples_lock; /* over stages, contexts and events; never held over a record */
_Atomic int samples_captures;
static _Atomic uint32_t pending_samples;

/* By the number of the grant; written under the lock. */
static uint64_t charged_until[GRANTS]; /* up to here the card's time is charged to this process */
static uint64_t waited_for[GRANTS];    /* what of others' turns is made good by turns to come */
static _Atomic uint32_t pending_long[GRANTS];

void samples_capture_begins(void) { atomic_fetch_add_explicit(&samples_captures, 1, memory_order_relaxed); }
void samples_capture_ended(void) { atomic_fetch_sub_explicit(&samples_captures, 1, memory_order_relaxed); }

/* Event queries and creation would end a capture that another stream of this thread, or with the global mode
   any thread, has begun or is about to begin; in relaxed mode they don't. */
static int relax_captures(void) {
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (!driver_has(CALL_cuThreadExchangeStreamCaptureMode)) return -1;
  return DRIVER(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS ? mode : -1;
}

static void restore_captures(int mode) {
  if (mode >= 0) DRIVER(cuThreadExchangeStreamCaptureMode)(&mode);
}

bool stream_captures(CUstream stream, bool per_thread) {
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!samples_captures_go_on()) return false;
  CUresult result = per_thread && driver_has(CALL_cuStreamIsCapturing_ptsz)
                        ? DRIVER(cuStreamIsCapturing_ptsz)(stream, &status)
                        : DRIVER(cuStreamIsCapturing)(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool make_event(CUevent *event) {
  if (*event == NULL && DRIVER(cuEventCreate)(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) *event = NULL;
  return *event != NULL;
}

static void destroy_event(CUevent *event) {
  if (*event != NULL) DRIVER(cuEventDestroy_v2)(*event);
  *event = NULL;
}

/* Events work in one context only, here the current one. */
static bool make_events(struct sample *sample, CUcontext context) {
  if (sample->context != context) {
    destroy_event(&sample->start);
    destroy_event(&sample->end);
  }
  sample->context = context;
  return make_event(&sample->start) && make_event(&sample->end);
}

static struct sample *open_sample(CUcontext context) {
  struct sample *best = NULL;
  lock_take(&samples_lock);
  for (int i = 0; i < SAMPLES; i++) {
    bool is_idle = atomic_load_explicit(&samples[i].stage, memory_order_relaxed) == STAGE_IDLE;
    if (!is_idle || samples[i].held != 0) continue;
    if (best == NULL || (best->context != context && samples[i].context == NULL)) best = &samples[i];
    if (samples[i].context != context) continue;
    best = &samples[i];
    break;
  }
  if (best != NULL && !make_events(best, context)) best = NULL;
  if (best != NULL) atomic_store_explicit(&best->stage, STAGE_OPEN, memory_order_relaxed);
  lock_leave(&samples_lock);
  return best;
}

/* The stream's context, made current if it is not: events of another don't go into it. NULL: there is none. */
static CUcontext enter_context(CUstream stream, bool *has_pushed) {
  CUcontext current = NULL, own = NULL;
  *has_pushed = false;
  if (DRIVER(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current == NULL) return NULL;
  if (is_default_stream(stream) || !driver_has(CALL_cuStreamGetCtx)) return current;
  if (DRIVER(cuStreamGetCtx)(stream, &own) != CUDA_SUCCESS || own == NULL || own == current) return current;
  *has_pushed = DRIVER(cuCtxPushCurrent_v2)(own) == CUDA_SUCCESS;
  return *has_pushed ? own : current;
}

static void leave_context(bool has_pushed) {
  CUcontext popped;
  if (has_pushed) DRIVER(cuCtxPopCurrent_v2)(&popped);
}

static CUresult record(CUevent event, const struct sample_of *of) {
  return of->per_thread && driver_has(CALL_cuEventRecord_ptsz) ? DRIVER(cuEventRecord_ptsz)(event, of->stream)
                                                               : DRIVER(cuEventRecord)(event, of->stream);
}

/* Processes of the grant that time a kernel at this moment; looks at no more than SHARERS_SEEN slots. */
static uint32_t sharers_now(const struct tessera_usage *usage) {
  uint32_t high = usage_slots_high(usage), sharers = 0;
  for (uint32_t i = 0; i < high && i < SHARERS_SEEN; i++)
    sharers += load_relaxed(&usage->process[i].timed) != 0 && slot_taken(&usage->process[i]);
  return sharers != 0 ? sharers : 1;
}

/* Launches that the grant's other processes have timed so far. */
static uint32_t timed_by_others(struct grant *grant) {
  return load_relaxed(&grant->region.usage->timings) -
         atomic_load_explicit(&grant->timings, memory_order_relaxed);
}

/* A kernel comes that may be long: until its time is known, the other processes reckon with it. */
static void enter(struct sample *sample) {
  struct grant *grant = sample->of.grant;
  struct tessera_process *slot = region_slot(&grant->region);
  uint64_t apart = atomic_load_explicit(&sample->of.estimate->apart_ns, memory_order_relaxed);
  sample->is_resident = slot != NULL && sample->of.launches == 1;
  if (!sample->is_resident) return;
  uint64_t until = load_relaxed(&slot->resident_until), from = sample->begun_ns;
  if (atomic_fetch_add_explicit(&pending_long[grant_number(grant)], 1, memory_order_relaxed) == 0)
    store_relaxed(&slot->resident_ns, from);
  else if (until > from)
    from = until;
  uint64_t expected = apart + apart / 4;
  store_relaxed(&slot->resident_until,
                from + (expected > sample->of.debited ? expected : sample->of.debited));
}

/* With the lock: up to `charged_until` it is told by spans. */
static void leave(const struct sample *sample) {
  struct grant *grant = sample->of.grant;
  struct tessera_process *slot = region_slot(&grant->region);
  uint32_t number = grant_number(grant);
  if (!sample->is_resident) return;
  uint32_t before = atomic_fetch_sub_explicit(&pending_long[number], 1, memory_order_relaxed);
  if (slot != NULL) store_relaxed(&slot->resident_ns, before == 1 ? 0 : charged_until[number]);
}

/* Only on the slot where it was counted: one that was lost meanwhile began anew. */
static void count_timed(const struct sample *sample, uint64_t change) {
  struct tessera_process *slot = region_slot(&sample->of.grant->region);
  if (slot != NULL && (change == 1 || load_relaxed(&slot->timed) != 0)) add_relaxed(&slot->timed, change);
}

int sample_begin(const struct sample_of *of) {
  bool has_pushed;
  CUcontext context = enter_context(of->stream, &has_pushed);
  int mode = relax_captures();
  struct sample *sample = context != NULL ? open_sample(context) : NULL;
  restore_captures(mode);
  leave_context(has_pushed);
  if (sample == NULL) return -1;
  sample->of = *of;
  sample->begun_ns = sample->running_ns = clock_now();
  if (record(sample->start, of) != CUDA_SUCCESS) {
    atomic_store_explicit(&sample->stage, STAGE_IDLE, memory_order_release);
    return -1;
  }
  atomic_fetch_add_explicit(&of->estimate->pending, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&pending_samples, 1, memory_order_relaxed);
  count_timed(sample, 1);
  add_relaxed(&of->grant->region.usage->timings, 1u);
  atomic_fetch_add_explicit(&of->grant->timings, 1, memory_order_relaxed);
  sample->others = timed_by_others(of->grant);
  sample->sharers = sharers_now(of->grant->region.usage);
  enter(sample);
  return (int)(sample - samples);
}

/* With the lock. */
static void close_sample(struct sample *sample) {
  atomic_fetch_sub_explicit(&sample->of.estimate->pending, 1, memory_order_relaxed);
  atomic_fetch_sub_explicit(&pending_samples, 1, memory_order_relaxed);
  count_timed(sample, (uint64_t)-1);
  leave(sample);
  atomic_store_explicit(&sample->stage, STAGE_IDLE, memory_order_release);
}

void sample_end(int number, CUresult launched) {
  struct sample *sample = &samples[number];
  if (launched == CUDA_SUCCESS && record(sample->end, &sample->of) == CUDA_SUCCESS) {
    atomic_store_explicit(&sample->stage, STAGE_PENDING, memory_order_release);
    return;
  }
  lock_take(&samples_lock);
  close_sample(sample);
  lock_leave(&samples_lock);
}

/* Whether other processes of the grant had kernels on the card too, at least one of them timed. */
static bool contended(const struct sample *sample) {
  struct grant *grant = sample->of.grant;
  return sample->sharers > 1 || sharers_now(grant->region.usage) > 1 ||
         timed_by_others(grant) != sample->others;
}

static uint64_t later(uint64_t left, uint64_t right) { return left > right ? left : right; }
static uint64_t smaller(uint64_t left, uint64_t right) { return left < right ? left : right; }

/* What of a kernel's time is charged: not twice where kernels of several streams overlap, and not what other
   processes had. It came at `begun_ns`, its turn at `end - elapsed`. */
static uint64_t own_time(const struct sample *sample, uint64_t elapsed, uint64_t end, uint32_t stretch) {
  struct grant *grant = sample->of.grant;
  struct tessera_process *slot = region_slot(&grant->region);
  uint32_t known = grant_number(grant);
  uint64_t before = smaller(later(charged_until[known], sample->begun_ns), end);
  elapsed = smaller(elapsed, end - before);
  uint64_t start = end - elapsed, came = later(before, start - smaller(start, LONGEST_WAIT_NS));
  charged_until[known] = later(charged_until[known], end);
  if (elapsed < ESTIMATE_LONG_NS) return elapsed; /* it fits into one turn */
  if (slot == NULL || !grant->region.has_spans) return elapsed * LIMITS_NO_STRETCH / stretch;
  const struct tessera_usage *usage = grant->region.usage;
  uint32_t number = (uint32_t)(slot - usage->process);
  spans_note(grant->region.usage, number, came, end);
  /* Who has waited for his turn has it then: of what is his by then he can't have had more than `elapsed`. */
  uint64_t due = stretch != LIMITS_NO_STRETCH ? spans_own_part(usage, number, came, start)
                                              : spans_part_of_wait(usage, number, came, start);
  due = waited_for[known] + (due + spans_own_part(usage, number, start, end)) * LIMITS_NO_STRETCH / stretch;
  uint64_t own = smaller(due, elapsed);
  waited_for[known] = smaller(due - own, LONGEST_DUE_NS);
  return own;
}

/* What is to be charged in addition for the sample, which ended at `end`, and those that it stands for. */
static int64_t charge(const struct sample *sample, uint64_t elapsed, uint64_t end, uint32_t stretch) {
  const struct sample_of *of = &sample->of;
  bool has_siblings = contended(sample), shared = has_siblings || stretch != LIMITS_NO_STRETCH;
  /* One of the grant's own processes would show by its spans. */
  bool is_cut = stretch != LIMITS_NO_STRETCH && elapsed < LONGEST_WAIT_NS &&
                estimate_seems_cut(of->estimate, elapsed, of->debited);
  bool is_told = of->launches == 1 && elapsed >= ESTIMATE_LONG_NS && !is_cut;
  uint64_t start = later(end - elapsed, sample->begun_ns);
  if (of->launches == 1 && !is_cut) {
    atomic_store_explicit(&of->estimate->apart_ns, elapsed, memory_order_relaxed);
    elapsed = own_time(sample, elapsed, end, stretch);
  }
  int64_t more = is_cut ? 0 : estimate_settle(of->estimate, elapsed, shared, of->debited, of->launches);
  struct tessera_process *slot = region_slot(&of->grant->region);
  if (slot == NULL || !of->grant->region.has_spans) return more;
  struct tessera_usage *usage = of->grant->region.usage;
  uint64_t charged = of->debited * of->launches + (uint64_t)more;
  const struct stay_part part = {.grant = grant_number(of->grant),
                                 .slot = (uint32_t)(slot - usage->process),
                                 .came = sample->begun_ns,
                                 .start = start,
                                 .until = end + charged - charged / of->launches, /* the others come behind */
                                 .charged = charged,
                                 .is_told = is_told};
  /* When the grant's other processes have short kernels on the card is told too late to reckon with. */
  return more + (int64_t)stays_add(usage, &part,
                                   has_siblings && of->launches != 1 ? LIMITS_NO_STRETCH : stretch);
}

static void settle(struct sample *sample, uint64_t elapsed, uint64_t now) {
  struct grant *grant = sample->of.grant;
  bool is_short = sample->of.launches != 1;
  uint64_t earliest = later(sample->begun_ns + elapsed, sample->running_ns);
  uint64_t end = card_clock_place(sample->context, &sample->end, earliest, now);
  int64_t more = charge(sample, elapsed, end, limits_pace(grant->limits, now).stretch);
  budget_correct(grant, budget_of(grant, now), now, more);
  struct tessera_process *slot = region_slot(&grant->region);
  if (slot == NULL) return;
  add_relaxed(&slot->busy_ns, (uint64_t)more);
  if (is_short && !grant->region.has_spans) add_relaxed(&slot->short_ns, (uint64_t)more);
}

/* Settles the sample if its kernel has ended; else returns when to look again. */
static uint64_t look_at(struct sample *sample, uint64_t now) {
  float milliseconds = 0;
  uint64_t estimate = atomic_load_explicit(&sample->of.estimate->ns, memory_order_relaxed);
  uint64_t ran = now - sample->begun_ns;
  /* It can't have ended yet: spare the driver the question. */
  if (ran < estimate) return sample->begun_ns + estimate;
  CUresult result = DRIVER(cuEventQuery)(sample->end);
  if (result == CUDA_ERROR_NOT_READY) {
    sample->running_ns = now;
    return now + later(ran / 8, LOOK_NS);
  }
  if (result == CUDA_SUCCESS) result = DRIVER(cuEventElapsedTime)(&milliseconds, sample->start, sample->end);
  if (result == CUDA_SUCCESS && milliseconds >= 0)
    settle(sample, (uint64_t)((double)milliseconds * 1e6), now);
  close_sample(sample);
  return UINT64_MAX;
}

/* What is pending, the oldest first, so that each is charged from the end of the one before. */
static int pending_in_order(struct sample *found[SAMPLES]) {
  int count = 0;
  for (int i = 0; i < SAMPLES; i++) {
    bool is_pending = atomic_load_explicit(&samples[i].stage, memory_order_acquire) == STAGE_PENDING;
    if (!is_pending || samples[i].held != 0) continue;
    int at = count++;
    for (; at > 0 && found[at - 1]->begun_ns > samples[i].begun_ns; at--) found[at] = found[at - 1];
    found[at] = &samples[i];
  }
  return count;
}

uint64_t samples_settle(void) {
  struct sample *pending[SAMPLES];
  uint64_t again = UINT64_MAX;
  if (atomic_load_explicit(&pending_samples, memory_order_acquire) == 0 || !lock_try(&samples_lock))
    return again;
  uint64_t now = clock_now();
  int mode = relax_captures(), count = pending_in_order(pending);
  for (int i = 0; i < count; i++) {
    uint64_t next = look_at(pending[i], now);
    if (next < again) again = next;
  }
  restore_captures(mode);
  lock_leave(&samples_lock);
  return again;
}

void samples_context_may_end(CUcontext context) {
  /* Without grants no lock is taken, which a child of a fork could wait for. */
  if (context == NULL || grants_are_none()) return;
  lock_take(&samples_lock);
  card_clock_context_ends(context);
  for (int i = 0; i < SAMPLES; i++)
    if (samples[i].context == context) samples[i].held++;
  lock_leave(&samples_lock);
}

/* Its events have gone with it. */
static void forget_events(struct sample *sample) {
  sample->context = NULL;
  sample->start = sample->end = NULL;
  sample->held = 0;
  if (atomic_load_explicit(&sample->stage, memory_order_acquire) == STAGE_PENDING) close_sample(sample);
}

void samples_context_looked(CUcontext context, bool has_ended) {
  if (context == NULL || grants_are_none()) return;
  lock_take(&samples_lock);
  for (int i = 0; i < SAMPLES; i++) {
    struct sample *sample = &samples[i];
    /* What isn't held is of another context, which has the handle by now. */
    if (sample->context != context || sample->held == 0) continue;
    if (has_ended)
      forget_events(sample);
    else
      sample->held--;
  }
  lock_leave(&samples_lock);
}

void samples_reset(void) {
  memset(samples, 0, sizeof samples);
  samples_lock.word = 0;
  pending_samples = 0;
  memset(charged_until, 0, sizeof charged_until);
  memset(waited_for, 0, sizeof waited_for);
  memset(pending_long, 0, sizeof pending_long);
  card_clock_reset();
  stays_reset();
  estimates_reset();
}
