/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that launches of a graph allocate. Which graphs have any is found out when they are instantiated,
 * and only in processes that ever made an allocation node.
 *
 *   struct graph_charge charge;
 *   if (!graph_memory_begin(&charge, exec)) return CUDA_ERROR_OUT_OF_MEMORY;
 *   result = …launch…;
 *   graph_memory_end(&charge, exec, result); */
#ifndef TESSERA_GRAPH_MEMORY_H
#define TESSERA_GRAPH_MEMORY_H

#include "cuda_types.h"
#include "pools.h"

/* An allocation became a node: from now on graphs are looked into. */
void graph_memory_begun(void);

/* An address was freed that is no block: perhaps a graph's. */
void graph_memory_freed(void);

/* One graph may allocate on so many devices that have a grant. */
#define GRAPH_DEVICES 8

struct graph_charge {
  uint32_t count;
  struct pool_charge pools[GRAPH_DEVICES];
};

/* Reserves what the launch may need beyond what each device's graphs keep. false: refused. */
bool graph_memory_begin(struct graph_charge *charge, CUgraphExec exec);
void graph_memory_end(struct graph_charge *charge, CUgraphExec exec, CUresult result);

#endif
