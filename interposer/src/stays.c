/* SPDX-License-Identifier: Apache-2.0 */
#include "stays.h"

#include <string.h>

#include "grants.h"
#include "limits.h"
#include "spans.h"

#define TOLD_FROM_NS 300000u /* of shorter ones there can be more than spans, between two looks of the agent */
#define TOLD_NS 10000000u    /* one that goes on is told of so often */
#define JUDGED_NS 1000000u   /* what a shorter one should have cost is too rough */

struct stay {
  uint64_t came, start;  /* start: of its first turn; others' may come in between */
  uint64_t until, told;  /* its end so far, and of what the agent was told */
  uint64_t due, charged; /* ns of the card's time */
};

/* By the number of the grant. */
static struct stay stays[GRANTS];

static void tell(struct tessera_usage *usage, uint32_t slot, struct stay *stay, uint64_t until) {
  if (until > stay->told && stay->until - stay->came >= TOLD_FROM_NS) spans_note(usage, slot, stay->told, until);
  stay->told = until;
}

/* By half: what is due is an estimate too, by how long kernels take on the average of late. */
static bool is_far_too_little(const struct stay *stay) {
  return stay->until - stay->start >= JUDGED_NS && stay->due > stay->charged + stay->charged / 2;
}

uint64_t stays_add(struct tessera_usage *usage, const struct stay_part *part, uint32_t stretch) {
  struct stay *stay = &stays[part->grant];
  uint32_t slot = part->slot;
  if (part->came > stay->until) { /* the card's queue was empty: whoever waited has his turn */
    tell(usage, slot, stay, stay->until);
    *stay = (struct stay){.came = part->came, .start = part->start, .until = part->start};
    stay->told = part->is_told ? part->start : part->came;
  }
  uint64_t from = stay->until;
  if (part->until > from) stay->until = part->until;
  stay->charged += part->charged;
  if (part->is_told || stretch == LIMITS_NO_STRETCH)
    stay->due += part->charged;
  else
    stay->due += spans_own_part(usage, slot, from, stay->until) * LIMITS_NO_STRETCH / stretch;
  if (part->is_told) {
    tell(usage, slot, stay, from);
    stay->told = stay->until;
  } else if (stay->until - stay->told >= TOLD_NS) {
    tell(usage, slot, stay, stay->until);
  }
  if (!is_far_too_little(stay)) return 0;
  uint64_t more = stay->due - stay->charged;
  stay->charged = stay->due;
  return more;
}

void stays_reset(void) { memset(stays, 0, sizeof stays); }
