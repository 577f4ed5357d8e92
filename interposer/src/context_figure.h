/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process's first context takes of the card, learnt once for all processes of a grant: asking NVML costs a
 * process more than all else at its start. One word in the usage file, changed by compare-and-swap.
 *
 * A figure is believed when two processes in a row have measured the same for the same kind of context; of those
 * that come later every 16th measures all the same, and another result than the known one begins anew. Where it
 * had to be told from the card's free memory, a neighbour may have spoilt it: one odd result then only means that
 * the next processes measure again. */
#ifndef TESSERA_CONTEXT_FIGURE_H
#define TESSERA_CONTEXT_FIGURE_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds are numbers below 2^27; what may change a context's size changes its kind. 0: none. */
#define CONTEXT_KIND_BITS 27u

struct context_figure {
  uint64_t bytes;
  bool known;
  bool believed;
  bool by_process; /* measured by NVML's figure of the process */
};

struct context_figure context_figure_read(const uint64_t *word, uint32_t kind);

/* Counts a process; false: it has to measure, since nothing is believed, or since it is its turn. */
bool context_figure_take(uint64_t *word, uint32_t kind, uint64_t *bytes);

/* A process could not measure: NVML does not show it, as it showed others. The next ones do so by free memory. */
void context_figure_doubt(uint64_t *word, uint32_t kind);

/* A process has measured so many bytes. What is to be charged to it. */
uint64_t context_figure_measured(uint64_t *word, uint32_t kind, uint64_t bytes, bool by_process);

#endif
