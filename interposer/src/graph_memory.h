/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that launches of a graph allocate. Which graphs have any is found out when they are instantiated,
 * and only in processes that ever made an allocation node.
 *
 *   struct pool_charge charge;
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

/* Reserves what the launch may need beyond what the device's graphs keep. false: refused. */
bool graph_memory_begin(struct pool_charge *charge, CUgraphExec exec);
void graph_memory_end(struct pool_charge *charge, CUgraphExec exec, CUresult result);

#endif
