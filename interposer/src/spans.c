/* SPDX-License-Identifier: Apache-2.0 */
#include "spans.h"

#include "atomics.h"
#include "usage.h"

#define BINS 64u /* that a span is cut into */
#define SLOTS_SEEN 64u

struct bins {
  uint64_t start, width; /* ns */
  uint64_t others[BINS]; /* ns that other processes were there, added up */
};

void spans_note(struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end) {
  uint64_t length = (end - start + 500) / 1000;
  uint32_t number = __atomic_fetch_add(&usage->span_next, 1u, __ATOMIC_RELAXED);
  struct tessera_span *span = &usage->spans[number % TESSERA_SPANS];
  store_relaxed(&span->length_us, 0u);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  store_relaxed(&span->start_ns, start);
  store_relaxed(&span->slot, slot);
  store_release(&span->length_us, length < UINT32_MAX ? (uint32_t)length : UINT32_MAX);
}

static void add(struct bins *bins, uint64_t start, uint64_t end) {
  uint64_t last = bins->start + BINS * bins->width;
  if (start < bins->start) start = bins->start;
  if (end > last) end = last;
  while (start < end) {
    uint64_t bin = (start - bins->start) / bins->width, next = bins->start + (bin + 1) * bins->width;
    if (next > end) next = end;
    bins->others[bin] += next - start;
    start = next;
  }
}

static void add_spans(struct bins *bins, const struct tessera_usage *usage, uint32_t slot) {
  for (uint32_t i = 0; i < TESSERA_SPANS; i++) {
    const struct tessera_span *span = &usage->spans[i];
    uint64_t length = load_acquire(&span->length_us) * (uint64_t)1000, start = load_relaxed(&span->start_ns);
    if (length != 0 && load_relaxed(&span->slot) != slot) add(bins, start, start + length);
  }
}

/* What others have on the card by now, and no span tells of yet. */
static void add_residents(struct bins *bins, const struct tessera_usage *usage, uint32_t slot) {
  uint32_t high = usage_slots_high(usage);
  for (uint32_t i = 0; i < high && i < SLOTS_SEEN; i++) {
    const struct tessera_process *process = &usage->process[i];
    uint64_t since = load_relaxed(&process->resident_ns);
    if (i != slot && since != 0 && slot_taken(process)) add(bins, since, load_relaxed(&process->resident_until));
  }
}

uint64_t spans_uncharged(const struct tessera_usage *usage, uint64_t now) {
  uint32_t high = usage_slots_high(usage), present = 0;
  uint64_t overdue = 0;
  for (uint32_t i = 0; i < high && i < SLOTS_SEEN; i++) {
    const struct tessera_process *process = &usage->process[i];
    uint64_t since = load_relaxed(&process->resident_ns), until = load_relaxed(&process->resident_until);
    if (since == 0 || !slot_taken(process)) continue;
    if (until < since) until = since;
    if (now > until && now - until >= SPANS_OVERDUE_NS) continue;
    present++;
    if (now > until) overdue += now - until;
  }
  return present != 0 ? overdue / present : 0;
}

/* One of 1 + others / width, straight between whole numbers: exact where the others come and go in a bin. */
static uint64_t own(uint64_t width, uint64_t others) {
  uint64_t whole = others / width, rest = others % width;
  return (width - rest) / (whole + 1) + rest / (whole + 2);
}

static struct bins filled(const struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end) {
  struct bins bins = {.start = start, .width = (end - start) / BINS};
  add_spans(&bins, usage, slot);
  add_residents(&bins, usage, slot);
  return bins;
}

uint64_t spans_own_part(const struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end) {
  if (end <= start || end - start < BINS) return end > start ? end - start : 0;
  struct bins bins = filled(usage, slot, start, end);
  uint64_t part = end - start - BINS * bins.width;
  for (uint32_t i = 0; i < BINS; i++) part += own(bins.width, bins.others[i]);
  return part;
}

uint64_t spans_part_of_wait(const struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end) {
  if (end <= start || end - start < BINS) return 0;
  struct bins bins = filled(usage, slot, start, end);
  uint64_t part = 0;
  for (uint32_t i = 0; i < BINS; i++)
    if (bins.others[i] != 0) part += own(bins.width, bins.others[i]);
  return part;
}
