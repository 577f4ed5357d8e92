/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph nodes that signal and wait for semaphores, work on words of memory, or depend on a condition;
 * attributes of kernel nodes; new contents for child graphs. Kernels compute nothing, so none changes a
 * condition: it has the value that it starts with, and what is repeated while it holds is run once.
 */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEMAPHORE_PARAMS_BYTES 144u /* of a signal or a wait, as in cuda.h */
#define MOST_CONDITIONS 4096u
enum { CONDITION_IF, CONDITION_WHILE, CONDITION_SWITCH };
enum { ASSIGN_DEFAULT = 1 };

/* Arrays that nodes were given: kept for good and shared by all that are the same, since steps and copies of
 * nodes point to them. */
struct kept {
  struct kept *next;
  size_t size;
  unsigned char bytes[];
};

static struct kept *kept_arrays;

static void *keep(const void *bytes, size_t size) {
  for (struct kept *found = kept_arrays; found != NULL; found = found->next)
    if (found->size == size && memcmp(found->bytes, bytes, size) == 0) return found->bytes;
  struct kept *made = malloc(sizeof *made + size);
  if (made == NULL) return NULL;
  made->size = size;
  memcpy(made->bytes, bytes, size);
  made->next = kept_arrays;
  kept_arrays = made;
  return made->bytes;
}

struct condition {
  CUgraph graph;
  unsigned graph_id, value;
};

static struct condition conditions[MOST_CONDITIONS];
static unsigned condition_count;

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
                                        unsigned value, unsigned flags) {
  (void)context;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == NULL || !graph_alive(graph) || flags > ASSIGN_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  bool room = condition_count < MOST_CONDITIONS;
  if (room) {
    /* Without the flag the value is undefined until a kernel sets it: 0 here. */
    conditions[condition_count] = (struct condition){graph, graph->id, flags == ASSIGN_DEFAULT ? value : 0};
    *handle = ++condition_count;
  }
  driver_unlock();
  return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void drop_branches(CUgraph *graphs, size_t count) {
  for (size_t index = 0; index < count; index++) graph_free(graphs[index]);
  free(graphs);
}

/* Empty graphs, to be filled by the program; NULL: no memory. */
static CUgraph *branches(size_t count) {
  CUgraph *graphs = malloc(count * sizeof(CUgraph));
  if (graphs == NULL) return NULL;
  for (size_t index = 0; index < count; index++) {
    graphs[index] = graph_new();
    if (graphs[index] == NULL) {
      drop_branches(graphs, index);
      return NULL;
    }
    graphs[index]->owned = true;
  }
  return graphs;
}

static CUresult conditional_from(CUDA_CONDITIONAL_NODE_PARAMS *params) {
  bool fits = params->type == CONDITION_SWITCH ? params->size >= 1
              : params->type == CONDITION_IF   ? params->size == 1 || params->size == 2
                                               : params->type == CONDITION_WHILE && params->size == 1;
  if (!fits || params->handle == 0 || params->handle > condition_count) return CUDA_ERROR_INVALID_VALUE;
  params->graphs = branches(params->size);
  return params->graphs == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void conditional_drop(const struct work *work) {
  drop_branches(work->params.conditional.graphs, work->params.conditional.size);
}

CUgraph conditional_branch(const struct work *work) {
  const CUDA_CONDITIONAL_NODE_PARAMS *params = &work->params.conditional;
  unsigned value = conditions[params->handle - 1].value;
  unsigned branch = params->type == CONDITION_SWITCH ? value : value != 0 ? 0 : 1;
  return branch < params->size ? params->graphs[branch] : NULL;
}

static CUresult semaphores_from(CUDA_EXT_SEM_NODE_PARAMS_v1 *params) {
  if (params->count == 0 || params->semaphores == NULL || params->params == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  params->semaphores = keep(params->semaphores, params->count * sizeof(CUexternalSemaphore));
  params->params = keep(params->params, (size_t)params->count * SEMAPHORE_PARAMS_BYTES);
  return params->semaphores == NULL || params->params == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult batch_from(CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
  if (params->count == 0 || params->operations == NULL || params->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  params->operations = keep(params->operations, params->count * sizeof *params->operations);
  return params->operations == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult more_from(struct work *work) {
  switch (work->type) {
    case NODE_SIGNAL:
    case NODE_WAIT:
      return semaphores_from(&work->params.semaphores);
    case NODE_BATCH:
      return batch_from(&work->params.batch);
    case NODE_CONDITIONAL:
      return conditional_from(&work->params.conditional);
    default:
      return CUDA_ERROR_NOT_SUPPORTED; /* batches of copies, external engines */
  }
}

/* Add, get, set, and set in an instantiated graph, for one kind of node. */
#define NODE(kind, member, layout, adder, getter, setter, exec_setter)                                     \
  CUresult adder(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,            \
                 const layout *params) {                                                                   \
    if (params == NULL) return CUDA_ERROR_INVALID_VALUE;                                                   \
    return node_new(node, graph, needs, need_count,                                                        \
                    &(CUgraphNodeParams){.type = (kind), .member = *params});                              \
  }                                                                                                        \
  CUresult getter(CUgraphNode node, layout *params) {                                                      \
    if (!node_alive(node) || node->work.type != (kind) || params == NULL) return CUDA_ERROR_INVALID_VALUE; \
    *params = node->work.params.member;                                                                    \
    return CUDA_SUCCESS;                                                                                   \
  }                                                                                                        \
  CUresult setter(CUgraphNode node, const layout *params) {                                                \
    if (params == NULL) return CUDA_ERROR_INVALID_VALUE;                                                   \
    return cuGraphNodeSetParams(node, &(CUgraphNodeParams){.type = (kind), .member = *params});            \
  }                                                                                                        \
  CUresult exec_setter(CUgraphExec exec, CUgraphNode node, const layout *params) {                         \
    if (params == NULL) return CUDA_ERROR_INVALID_VALUE;                                                   \
    return cuGraphExecNodeSetParams(exec, node, &(CUgraphNodeParams){.type = (kind), .member = *params});  \
  }
NODE(NODE_SIGNAL, semaphores, CUDA_EXT_SEM_NODE_PARAMS_v1, cuGraphAddExternalSemaphoresSignalNode,
     cuGraphExternalSemaphoresSignalNodeGetParams, cuGraphExternalSemaphoresSignalNodeSetParams,
     cuGraphExecExternalSemaphoresSignalNodeSetParams)
NODE(NODE_WAIT, semaphores, CUDA_EXT_SEM_NODE_PARAMS_v1, cuGraphAddExternalSemaphoresWaitNode,
     cuGraphExternalSemaphoresWaitNodeGetParams, cuGraphExternalSemaphoresWaitNodeSetParams,
     cuGraphExecExternalSemaphoresWaitNodeSetParams)
NODE(NODE_BATCH, batch, CUDA_BATCH_MEM_OP_NODE_PARAMS, cuGraphAddBatchMemOpNode,
     cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams)

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                           const CUgraphEdgeData *data, size_t need_count, CUgraphNodeParams *params) {
  return cuGraphAddNode_v2(node, graph, needs, data, need_count, params);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params) {
  return cuGraphNodeSetParams(node, params);
}

struct leaves {
  CUgraphNode *nodes;
  size_t count;
};

static bool collect(CUgraphNode node, void *argument) {
  struct leaves *leaves = argument;
  if (node->work.type == NODE_GRAPH) return graph_walk(node->work.params.graph, collect, leaves);
  CUgraphNode *grown = realloc(leaves->nodes, (leaves->count + 1) * sizeof *grown);
  if (grown == NULL) return false;
  leaves->nodes = grown;
  leaves->nodes[leaves->count++] = node;
  return true;
}

/* Under driver_lock. The steps are the old child's; the new one's must be of the same kinds in the same order.
 */
static CUresult take_over(CUgraphExec exec, const struct leaves *before, const struct leaves *now) {
  if (before->count != now->count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < now->count; index++) {
    CUgraphNodeType type = now->nodes[index]->work.type;
    if (step_of(exec, before->nodes[index]) == NULL || before->nodes[index]->work.type != type ||
        type == NODE_MEM_ALLOC || type == NODE_MEM_FREE)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t index = 0; index < now->count; index++)
    step_of(exec, before->nodes[index])->work = now->nodes[index]->work;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  struct leaves before = {0}, now = {0};
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!node_alive(node) || node->work.type != NODE_GRAPH || !graph_alive(child))
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (graph_walk(node->work.params.graph, collect, &before) && graph_walk(child, collect, &now))
    result = take_over(exec, &before, &now);
  driver_unlock();
  free(before.nodes);
  free(now.nodes);
  return result;
}

/* One attribute has an effect here; the others are accepted and read as 0. */
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, unsigned attribute,
                                       const CUlaunchAttributeValue *value) {
  if (!node_alive(node) || node->work.type != NODE_KERNEL || value == NULL || attribute == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) node->work.cooperative = value->cooperative != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, unsigned attribute, CUlaunchAttributeValue *value) {
  if (!node_alive(node) || node->work.type != NODE_KERNEL || value == NULL || attribute == 0)
    return CUDA_ERROR_INVALID_VALUE;
  memset(value, 0, sizeof *value);
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value->cooperative = node->work.cooperative;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode target, CUgraphNode source) {
  if (!node_alive(target) || target->work.type != NODE_KERNEL || !node_alive(source) ||
      source->work.type != NODE_KERNEL)
    return CUDA_ERROR_INVALID_VALUE;
  target->work.cooperative = source->work.cooperative;
  return CUDA_SUCCESS;
}

/* The shape alone, whatever details are asked for. */
CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags) {
  (void)flags;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!graph_alive(graph) || path == NULL) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "w");
  if (file == NULL) return CUDA_ERROR_OPERATING_SYSTEM;
  driver_lock();
  fprintf(file, "digraph graph_%u {\n", graph->id);
  for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
    fprintf(file, "  n%u [label=\"type %u\"];\n", node->id, node->work.type);
    for (size_t index = 0; index < node->need_count; index++)
      fprintf(file, "  n%u -> n%u;\n", node->needs[index]->id, node->id);
  }
  fprintf(file, "}\n");
  driver_unlock();
  return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
