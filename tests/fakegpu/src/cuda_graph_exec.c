/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs made ready to run: a list of steps, child graphs opened out, in launch order.
 */
#include "graph.h"

#include <stdlib.h>

enum { UPDATE_ERROR = 1, UPDATE_TOPOLOGY_CHANGED = 2, UPDATE_TYPE_CHANGED = 3, UPDATE_NOT_SUPPORTED = 6 };
#define INSTANTIATE_FLAGS 0xfull
#define INSTANTIATE_AND_UPLOAD 2ull

static struct object *spare;
static unsigned execs_made;

static bool alive(CUgraphExec exec) { return exec != NULL && exec->object.magic == MAGIC_EXEC; }

struct step *step_of(CUgraphExec exec, CUgraphNode node) {
  if (driver_ready() != CUDA_SUCCESS || !alive(exec) || !node_alive(node)) return NULL;
  for (size_t index = 0; index < exec->count; index++)
    if (exec->steps[index].node == node && exec->steps[index].node_id == node->id) return &exec->steps[index];
  return NULL;
}

static bool append(CUgraphNode node, void *argument) {
  CUgraphExec exec = argument;
  if (node->work.type == NODE_GRAPH) return graph_walk(node->work.params.graph, append, exec);
  if (node->work.type == NODE_CONDITIONAL) {
    CUgraph branch = conditional_branch(&node->work);
    return branch == NULL || graph_walk(branch, append, exec);
  }
  struct step *grown = realloc(exec->steps, (exec->count + 1) * sizeof *grown);
  if (grown == NULL) return false;
  exec->steps = grown;
  exec->steps[exec->count++] = (struct step){.node = node, .node_id = node->id, .work = node->work};
  if (node->work.memory != NULL) node->work.memory->references++;
  return true;
}

static void drop(CUgraphExec exec) {
  for (size_t index = 0; index < exec->count; index++)
    if (exec->steps[index].work.memory != NULL) graph_memory_drop(exec->steps[index].work.memory);
  free(exec->steps);
  object_drop(&spare, exec);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, uint64_t flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (made == NULL || !graph_alive(graph) || (flags & ~INSTANTIATE_FLAGS) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUgraphExec exec = object_new(&spare, sizeof *exec, MAGIC_EXEC);
  CUresult result = exec == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (exec != NULL) {
    exec->flags = flags;
    exec->id = ++execs_made;
    if (graph_walk(graph, append, exec)) {
      *made = exec;
    } else {
      drop(exec);
      result = CUDA_ERROR_INVALID_VALUE; /* nodes that need each other in a circle */
    }
  }
  driver_unlock();
  return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t size) {
  if (error_node != NULL) *error_node = NULL;
  if (log != NULL && size > 0) log[0] = '\0';
  return cuGraphInstantiateWithFlags(made, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t size) {
  return cuGraphInstantiate_v2(made, graph, error_node, log, size);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuGraphInstantiateWithFlags(made, graph, params->flags);
  if (result == CUDA_SUCCESS && (params->flags & INSTANTIATE_AND_UPLOAD) != 0) {
    result = cuGraphUpload(*made, params->upload_stream);
    if (result != CUDA_SUCCESS) cuGraphExecDestroy(*made);
  }
  params->error_node = NULL;
  params->result = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(exec)) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  drop(exec);
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, uint64_t *flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(exec) || flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec exec, unsigned *id) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(exec) || id == NULL) return CUDA_ERROR_INVALID_VALUE;
  *id = exec->id;
  return CUDA_SUCCESS;
}

/* Puts the graph on the card ahead of its launch. */
CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!alive(exec)) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  result = steps_reserve_memory(exec);
  driver_unlock();
  return result;
}

static CUresult run(CUgraphExec exec, CUstream stream) {
  driver_lock();
  CUresult result = steps_take_memory(exec);
  driver_unlock();
  for (size_t index = 0; index < exec->count && result == CUDA_SUCCESS; index++)
    if (!exec->steps[index].disabled) result = work_run(&exec->steps[index].work, stream);
  return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!alive(exec)) return CUDA_ERROR_INVALID_VALUE;
  bool captured = false;
  result = capture_exec(context, stream, exec, &captured);
  return result != CUDA_SUCCESS || captured ? result : run(exec, handle);
}

struct comparison {
  CUgraphExec exec, fresh;
  CUgraphExecUpdateResult result;
  CUgraphNode node;
};

static void compare(struct comparison *comparison) {
  if (comparison->fresh->count != comparison->exec->count) comparison->result = UPDATE_TOPOLOGY_CHANGED;
  for (size_t index = 0; index < comparison->fresh->count && comparison->result == 0; index++) {
    const struct step *step = &comparison->fresh->steps[index];
    CUgraphNodeType before = comparison->exec->steps[index].work.type;
    if (step->work.type != before)
      comparison->result = UPDATE_TYPE_CHANGED;
    else if (before == NODE_MEM_ALLOC || before == NODE_MEM_FREE)
      comparison->result = UPDATE_NOT_SUPPORTED;
    if (comparison->result != 0) comparison->node = step->node;
  }
}

/* Same steps of the same kinds in the same order: their work is taken over. */
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(exec) || !graph_alive(graph) || info == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct comparison comparison = {.exec = exec};
  CUresult result = cuGraphInstantiateWithFlags(&comparison.fresh, graph, exec->flags);
  if (result != CUDA_SUCCESS) {
    *info = (CUgraphExecUpdateResultInfo){.result = UPDATE_ERROR};
    return result;
  }
  driver_lock();
  compare(&comparison);
  for (size_t index = 0; index < exec->count && comparison.result == 0; index++)
    exec->steps[index].work = comparison.fresh->steps[index].work;
  drop(comparison.fresh);
  driver_unlock();
  *info = (CUgraphExecUpdateResultInfo){.result = comparison.result, .error_node = comparison.node};
  return comparison.result == 0 ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                           CUgraphExecUpdateResult *result_out) {
  CUgraphExecUpdateResultInfo info = {0};
  CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
  if (error_node != NULL) *error_node = info.error_node;
  if (result_out != NULL) *result_out = info.result;
  return result;
}
