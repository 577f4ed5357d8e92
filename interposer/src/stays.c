/* SPDX-License-Identifier: Apache-2.0 */
#include "stays.h"

#include <string.h>

#include "grants.h"
#include "limits.h"
#include "spans.h"

#define SHORTEST_NS 1000000u /* a shorter one fits into a turn, and holds nobody up for long */
#define TOLD_NS 10000000u    /* one that goes on is told of so often */

struct stay {
  uint64_t until, told;  /* its end so far, and of what the agent was told */
  uint64_t length;       /* ns, without gaps */
  uint64_t due, charged; /* ns of the card's time */
};

/* By the number of the grant. */
static struct stay stays[GRANTS];

static void tell(struct tessera_usage *usage, uint32_t slot, struct stay *stay, uint64_t until) {
  if (until > stay->told && stay->length >= SHORTEST_NS) spans_note(usage, slot, stay->told, until);
  stay->told = until;
}

int64_t stays_add(struct tessera_usage *usage, const struct stay_part *part, uint32_t stretch) {
  struct stay *stay = &stays[part->grant];
  uint32_t slot = part->slot;
  if (part->from > stay->until) { /* the card's queue was empty: whoever waited has his turn */
    tell(usage, slot, stay, stay->until);
    *stay = (struct stay){.until = part->from, .told = part->from};
  }
  uint64_t from = stay->until;
  if (part->until > from) stay->until = part->until;
  stay->length += stay->until - from;
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
  if (stay->length < SHORTEST_NS) return 0;
  int64_t more = (int64_t)(stay->due - stay->charged);
  stay->charged = stay->due;
  return more;
}

void stays_reset(void) { memset(stays, 0, sizeof stays); }
