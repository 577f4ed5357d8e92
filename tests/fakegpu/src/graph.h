/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libcuda: graphs, their nodes, what is instantiated from them, and captures in progress.
 *
 * A node's work is what a launch does at its place. Launching walks through an instantiated graph in an order
 * in which every node comes after those that it needs, in the one stream: work of a process runs in launch
 * order anyway.
 */
#ifndef FAKEGPU_GRAPH_H
#define FAKEGPU_GRAPH_H

#include "driver.h"

/* Memory of an allocation node: the address is fixed when the node is made, the card pays while it is live.
 */
struct graph_memory {
  struct block *block;
  CUmemoryPool pool;
  uint64_t bytes;      /* rounded */
  unsigned references; /* of nodes and instantiated graphs */
  bool live;
};

struct work {
  CUgraphNodeType type;
  uint64_t duration_ns; /* of a kernel */
  bool cooperative;
  struct graph_memory *memory; /* of an allocation node */
  CUgraphNodeParams params;    /* pointers to parameters in it are not kept beyond the call: NULL */
};

struct CUgraphNode_st {
  struct object object;
  CUgraph graph;
  CUgraphNode next;   /* in the graph, in the order of making */
  CUgraphNode origin; /* in a clone: the node that it is a copy of */
  unsigned id;
  unsigned visit; /* 0: not yet, 1: on the way, 2: done */
  CUgraphNode *needs;
  size_t need_count;
  struct work work;
};

struct CUgraph_st {
  struct object object;
  CUgraphNode first, last;
  size_t count;
  unsigned id;
  bool owned; /* by a node whose child it is */
};

struct step {
  CUgraphNode node; /* where it came from; only compared */
  unsigned node_id;
  bool disabled;
  struct work work;
};

struct CUgraphExec_st {
  struct object object;
  struct step *steps;
  size_t count;
  uint64_t flags;
  unsigned id;
};

/* cuda_graph.c, under driver_lock */
bool graph_alive(CUgraph graph);
bool node_alive(CUgraphNode node);
CUgraph graph_new(void);
void graph_free(CUgraph graph);
CUgraph graph_copy(CUgraph original); /* NULL: no memory, or it has memory nodes */
CUgraphNode node_add(CUgraph graph, const CUgraphNode *needs, size_t need_count, const struct work *work);
CUresult node_needs(CUgraphNode node, CUgraphNode needed); /* harmless if it does already */

/* The nodes in launch order: calls visit for each; false: they need each other in a circle, or visit said so.
 */
bool graph_walk(CUgraph graph, bool (*visit)(CUgraphNode node, void *argument), void *argument);

/* cuda_graph_exec.c: the step of an instantiated graph that came from the node; NULL: none did */
struct step *step_of(CUgraphExec exec, CUgraphNode node);

/* cuda_graph_more.c, under driver_lock: semaphores, batches, conditions */
CUresult more_from(struct work *work); /* what work.params point to is the driver's own from then on */
CUgraph conditional_branch(const struct work *work); /* what is run of it; NULL: nothing */
void conditional_drop(const struct work *work);

/* cuda_graph_work.c */
CUresult node_new(CUgraphNode *made, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                  const CUgraphNodeParams *params);
CUresult work_from(const CUgraphNodeParams *params, CUcontext context, struct work *work);
CUresult work_run(const struct work *work, CUstream stream); /* without the lock; all but memory nodes */

/* cuda_graph_memory.c, under driver_lock */
CUresult graph_memory_new(CUDA_MEM_ALLOC_NODE_PARAMS *params, CUcontext context,
                          struct graph_memory **memory);
void graph_memory_drop(struct graph_memory *memory);
void graph_memory_reuse(struct work *work, const CUgraphNode *needs, size_t need_count);
CUresult steps_take_memory(CUgraphExec exec);
CUresult steps_reserve_memory(CUgraphExec exec);

#endif
