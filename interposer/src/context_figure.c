/* SPDX-License-Identifier: Apache-2.0 */
#include "context_figure.h"

#include "atomics.h"

#define UNIT 512u /* bytes; 2^28 of them are more than any card has for a context */
#define UNIT_BITS 28u
#define BELIEVED 2u
#define TURN 64u

/* From the lowest bit on: units, kind, by_process, how often measured in a row (at most BELIEVED), whose turn. */
#define KIND_SHIFT UNIT_BITS
#define PROCESS_SHIFT (KIND_SHIFT + CONTEXT_KIND_BITS)
#define TIMES_SHIFT (PROCESS_SHIFT + 1)
#define TURN_SHIFT (TIMES_SHIFT + 2)
_Static_assert(UINT64_C(1) << (64 - TURN_SHIFT) >= TURN, "a turn fits in what is left of the word");

static uint64_t bits(uint64_t word, uint32_t shift, uint32_t count) {
  return word >> shift & ((UINT64_C(1) << count) - 1);
}

static uint32_t times_of(uint64_t word, uint32_t kind) {
  return bits(word, KIND_SHIFT, CONTEXT_KIND_BITS) == kind ? (uint32_t)bits(word, TIMES_SHIFT, 2) : 0;
}

static struct context_figure figure_of(uint64_t word, uint32_t kind) {
  uint32_t times = times_of(word, kind);
  return (struct context_figure){.bytes = times == 0 ? 0 : bits(word, 0, UNIT_BITS) * UNIT,
                                 .known = times != 0,
                                 .believed = times >= BELIEVED,
                                 .by_process = times != 0 && bits(word, PROCESS_SHIFT, 1) != 0};
}

static uint64_t word_of(uint64_t bytes, uint32_t kind, bool by_process, uint32_t times) {
  return bytes / UNIT | (uint64_t)kind << KIND_SHIFT | (uint64_t)by_process << PROCESS_SHIFT |
         (uint64_t)times << TIMES_SHIFT;
}

struct context_figure context_figure_read(const uint64_t *word, uint32_t kind) {
  return figure_of(load_acquire(word), kind);
}

bool context_figure_take(uint64_t *word, uint32_t kind, uint64_t *bytes) {
  uint64_t seen = load_acquire(word), turn;
  do {
    if (!figure_of(seen, kind).believed) return false;
    turn = (bits(seen, TURN_SHIFT, 64 - TURN_SHIFT) + 1) % TURN;
  } while (!swap_if(word, &seen, (seen & ((UINT64_C(1) << TURN_SHIFT) - 1)) | turn << TURN_SHIFT));
  *bytes = figure_of(seen, kind).bytes;
  return turn != 0;
}

void context_figure_doubt(uint64_t *word, uint32_t kind) {
  uint64_t seen = load_acquire(word), next;
  do {
    struct context_figure figure = figure_of(seen, kind);
    if (!figure.known) return;
    next = word_of(figure.bytes, kind, false, 1);
  } while (!swap_if(word, &seen, next));
}

uint64_t context_figure_measured(uint64_t *word, uint32_t kind, uint64_t bytes, bool by_process) {
  uint64_t seen = load_acquire(word), next, charged;
  uint64_t rounded = (bytes + UNIT - 1) / UNIT * UNIT;
  if (rounded / UNIT >= UINT64_C(1) << UNIT_BITS) return bytes;
  do {
    struct context_figure before = figure_of(seen, kind);
    bool same = before.known && before.bytes == rounded;
    bool odd = before.believed && !same && !by_process;
    charged = odd ? before.bytes : rounded;
    next = word_of(charged, kind, by_process, same ? BELIEVED : 1);
  } while (!swap_if(word, &seen, next));
  return charged;
}
