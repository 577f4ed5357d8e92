/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes do: made from parameters, added, asked for, changed.
 */
#include "graph.h"

#include <string.h>

/* Parameters of a kernel are looked at here and now: only its device time is kept of them. */
static CUresult kernel_from(const CUDA_KERNEL_NODE_PARAMS_v2 *asked, CUcontext context, struct work *work) {
  CUDA_KERNEL_NODE_PARAMS_v2 *kernel = &work->params.kernel;
  *kernel = *asked;
  if (kernel->function == NULL) kernel->function = kernel->kernel;
  if (context_alive(asked->context)) context = asked->context;
  struct launch_shape shape = {{asked->grid_x, asked->grid_y, asked->grid_z},
                               {asked->block_x, asked->block_y, asked->block_z},
                               asked->shared_bytes,
                               work->cooperative};
  CUresult result = kernel_check(context, kernel->function, &shape);
  if (result != CUDA_SUCCESS) return result;
  if (asked->params != NULL && asked->extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  work->duration_ns = kernel_duration(kernel->function, asked->params, asked->extra);
  kernel->kernel = NULL;
  kernel->context = context;
  kernel->params = kernel->extra = NULL;
  return CUDA_SUCCESS;
}

static CUresult child_from(CUgraph graph, struct work *work) {
  if (!graph_alive(graph)) return CUDA_ERROR_INVALID_VALUE;
  CUgraph copy = graph_copy(graph);
  if (copy == NULL) return CUDA_ERROR_NOT_SUPPORTED;
  copy->owned = true;
  work->params.graph = copy;
  return CUDA_SUCCESS;
}

CUresult work_from(const CUgraphNodeParams *params, CUcontext context, struct work *work) {
  work->type = params->type;
  work->memory = NULL;
  work->params = *params;
  switch (params->type) {
    case NODE_KERNEL:
      return kernel_from(&params->kernel, context, work);
    case NODE_MEMCPY:
      return params->copy.flags == 0 && params->copy.copy.source_type - 1u < 4 &&
                     params->copy.copy.target_type - 1u < 4
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case NODE_MEMSET:
      return params->fill.target != 0 && params->fill.width != 0 && params->fill.height != 0 &&
                     (params->fill.element_bytes == 1 || params->fill.element_bytes == 2 ||
                      params->fill.element_bytes == 4)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case NODE_HOST:
      return params->host.function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case NODE_GRAPH:
      return child_from(params->graph, work);
    case NODE_EMPTY:
      return CUDA_SUCCESS;
    case NODE_WAIT_EVENT:
    case NODE_EVENT_RECORD:
      return event_alive(params->event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case NODE_MEM_ALLOC:
      return graph_memory_new(&work->params.alloc, context, &work->memory);
    case NODE_MEM_FREE:
      return graph_memory_known(params->freed) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return more_from(work);
  }
}

static CUresult run_kernel(const struct work *work, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!function_valid(work->params.kernel.function)) return CUDA_ERROR_INVALID_HANDLE;
  return kernel_run(context, stream, work->duration_ns);
}

static CUresult run_fill(const CUDA_MEMSET_NODE_PARAMS_v1 *fill, CUstream stream) {
  if (fill->element_bytes == 1)
    return cuMemsetD2D8Async(fill->target, fill->pitch, (unsigned char)fill->value, fill->width, fill->height,
                             stream);
  if (fill->element_bytes == 2)
    return cuMemsetD2D16Async(fill->target, fill->pitch, (unsigned short)fill->value, fill->width,
                              fill->height, stream);
  return cuMemsetD2D32Async(fill->target, fill->pitch, fill->value, fill->width, fill->height, stream);
}

/* The real driver calls from a thread of its own; here the caller waits for the stream and does it. */
CUresult host_call(CUstream stream, CUhostFn function, void *data) {
  CUresult result = stream_wait(stream);
  if (result == CUDA_SUCCESS) function(data);
  return result;
}

CUresult work_run(const struct work *work, CUstream stream) {
  switch (work->type) {
    case NODE_KERNEL:
      return run_kernel(work, stream);
    case NODE_MEMCPY:
      return cuMemcpy3DAsync_v2(&work->params.copy.copy, stream);
    case NODE_MEMSET:
      return run_fill(&work->params.fill, stream);
    case NODE_HOST:
      return host_call(stream, work->params.host.function, work->params.host.data);
    case NODE_EVENT_RECORD:
      return cuEventRecord(work->params.event, stream);
    case NODE_WAIT_EVENT:
      return cuStreamWaitEvent(stream, work->params.event, 0);
    case NODE_SIGNAL:
      return cuSignalExternalSemaphoresAsync(work->params.semaphores.semaphores,
                                             work->params.semaphores.params, work->params.semaphores.count,
                                             stream);
    case NODE_WAIT:
      return cuWaitExternalSemaphoresAsync(work->params.semaphores.semaphores, work->params.semaphores.params,
                                           work->params.semaphores.count, stream);
    case NODE_BATCH:
      return cuStreamBatchMemOp_v2(stream, work->params.batch.count, work->params.batch.operations,
                                   work->params.batch.flags);
    default:
      return CUDA_SUCCESS;
  }
}

static CUresult add(CUgraphNode *made, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                    const CUgraphNodeParams *params, struct work *work) {
  CUcontext context = NULL;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (made == NULL || !graph_alive(graph) || (need_count != 0 && needs == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS && params->type == NODE_KERNEL) return result;
  for (size_t index = 0; index < need_count; index++)
    if (!node_alive(needs[index]) || needs[index]->graph != graph) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  *work = (struct work){0};
  result = work_from(params, context, work);
  if (result == CUDA_SUCCESS) graph_memory_reuse(work, needs, need_count);
  CUgraphNode node = result == CUDA_SUCCESS ? node_add(graph, needs, need_count, work) : NULL;
  if (result == CUDA_SUCCESS && node == NULL)
    result = CUDA_ERROR_INVALID_VALUE; /* a dependency named twice */
  if (node != NULL) *made = node;
  driver_unlock();
  return result;
}

CUresult node_new(CUgraphNode *made, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                  const CUgraphNodeParams *params) {
  struct work work;
  return add(made, graph, needs, need_count, params, &work);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                 size_t need_count, const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  return node_new(node, graph, needs, need_count,
                   &(CUgraphNodeParams){.type = NODE_KERNEL, .kernel = *params});
}

static CUDA_KERNEL_NODE_PARAMS_v2 widened(const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide = {0};
  memcpy(&wide, params, sizeof *params);
  return wide;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  return node_new(node, graph, needs, need_count,
                   &(CUgraphNodeParams){.type = NODE_KERNEL, .kernel = widened(params)});
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                              const CUDA_MEMCPY3D_v2 *copy, CUcontext context) {
  (void)context;
  if (copy == NULL) return CUDA_ERROR_INVALID_VALUE;
  return node_new(node, graph, needs, need_count,
                   &(CUgraphNodeParams){.type = NODE_MEMCPY, .copy.copy = *copy});
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                              const CUDA_MEMSET_NODE_PARAMS_v1 *fill, CUcontext context) {
  (void)context;
  if (fill == NULL) return CUDA_ERROR_INVALID_VALUE;
  return node_new(node, graph, needs, need_count, &(CUgraphNodeParams){.type = NODE_MEMSET, .fill = *fill});
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                            const CUDA_HOST_NODE_PARAMS_v1 *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  return node_new(node, graph, needs, need_count, &(CUgraphNodeParams){.type = NODE_HOST, .host = *params});
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                  size_t need_count, CUgraph child) {
  return node_new(node, graph, needs, need_count, &(CUgraphNodeParams){.type = NODE_GRAPH, .graph = child});
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count) {
  return node_new(node, graph, needs, need_count, &(CUgraphNodeParams){.type = NODE_EMPTY, .event = NULL});
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                   size_t need_count, CUevent event) {
  return node_new(node, graph, needs, need_count,
                   &(CUgraphNodeParams){.type = NODE_EVENT_RECORD, .event = event});
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                 size_t need_count, CUevent event) {
  return node_new(node, graph, needs, need_count,
                   &(CUgraphNodeParams){.type = NODE_WAIT_EVENT, .event = event});
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                               CUdeviceptr address) {
  return node_new(node, graph, needs, need_count,
                   &(CUgraphNodeParams){.type = NODE_MEM_FREE, .freed = address});
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  struct work work;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams general = {.type = NODE_MEM_ALLOC};
  general.alloc = *params;
  CUresult result = add(node, graph, needs, need_count, &general, &work);
  if (result == CUDA_SUCCESS) params->address = work.params.alloc.address;
  return result;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                           const CUgraphEdgeData *data, size_t need_count, CUgraphNodeParams *params) {
  struct work work;
  (void)data;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = add(node, graph, needs, need_count, params, &work);
  if (result != CUDA_SUCCESS) return result;
  if (params->type == NODE_MEM_ALLOC) params->alloc.address = work.params.alloc.address;
  if (params->type == NODE_GRAPH) params->graph = work.params.graph;
  if (params->type == NODE_CONDITIONAL) params->conditional.graphs = work.params.conditional.graphs;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count,
                        CUgraphNodeParams *params) {
  return cuGraphAddNode_v2(node, graph, needs, NULL, need_count, params);
}

/* New work for a node or a step of the same kind. */
static CUresult change(struct work *target, const CUgraphNodeParams *params) {
  CUcontext context = NULL;
  struct work work = {.cooperative = target->cooperative};
  if (target->type != params->type || params->type == NODE_MEM_ALLOC || params->type == NODE_MEM_FREE ||
      params->type == NODE_GRAPH || params->type == NODE_CONDITIONAL)
    return CUDA_ERROR_INVALID_VALUE;
  if (context_current(&context) != CUDA_SUCCESS) context = target->params.kernel.context;
  if (context == NULL && params->type == NODE_KERNEL) return CUDA_ERROR_INVALID_CONTEXT;
  driver_lock();
  CUresult result = work_from(params, context, &work);
  if (result == CUDA_SUCCESS) *target = work;
  driver_unlock();
  return result;
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return node_alive(node) && params != NULL ? change(&node->work, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams *params) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!node_alive(node) || params == NULL) return CUDA_ERROR_INVALID_VALUE;
  *params = node->work.params;
  params->type = node->work.type;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
  struct step *step = step_of(exec, node);
  return step != NULL && params != NULL ? change(&step->work, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  struct step *step = step_of(exec, node);
  if (step == NULL || step->work.type > NODE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
  step->disabled = enabled == 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled) {
  const struct step *step = step_of(exec, node);
  if (step == NULL || enabled == NULL || step->work.type > NODE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
  *enabled = !step->disabled;
  return CUDA_SUCCESS;
}

/* Get, set, and set in an instantiated graph, for one kind of node. */
#define ACCESS(getter, setter, exec_setter, kind, member, layout, exec_parameters)                         \
  CUresult getter(CUgraphNode node, layout *params) {                                                      \
    if (!node_alive(node) || node->work.type != (kind) || params == NULL) return CUDA_ERROR_INVALID_VALUE; \
    memcpy(params, &node->work.params.member, sizeof *params);                                             \
    return CUDA_SUCCESS;                                                                                   \
  }                                                                                                        \
  CUresult setter(CUgraphNode node, const layout *params) {                                                \
    CUgraphNodeParams general = {.type = (kind)};                                                          \
    if (params == NULL) return CUDA_ERROR_INVALID_VALUE;                                                   \
    memcpy(&general.member, params, sizeof *params);                                                       \
    return cuGraphNodeSetParams(node, &general);                                                           \
  }                                                                                                        \
  CUresult exec_setter exec_parameters {                                                                   \
    CUgraphNodeParams general = {.type = (kind)};                                                          \
    if (params == NULL) return CUDA_ERROR_INVALID_VALUE;                                                   \
    memcpy(&general.member, params, sizeof *params);                                                       \
    return cuGraphExecNodeSetParams(exec, node, &general);                                                 \
  }
#define IN_EXEC(type) (CUgraphExec exec, CUgraphNode node, const type *params)
#define IN_EXEC_OF(type) (CUgraphExec exec, CUgraphNode node, const type *params, CUcontext context)

ACCESS(cuGraphKernelNodeGetParams, cuGraphKernelNodeSetParams, cuGraphExecKernelNodeSetParams, NODE_KERNEL,
       kernel, CUDA_KERNEL_NODE_PARAMS_v1, IN_EXEC(CUDA_KERNEL_NODE_PARAMS_v1))
ACCESS(cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams_v2,
       NODE_KERNEL, kernel, CUDA_KERNEL_NODE_PARAMS_v2, IN_EXEC(CUDA_KERNEL_NODE_PARAMS_v2))
ACCESS(cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams, NODE_HOST, host,
       CUDA_HOST_NODE_PARAMS_v1, IN_EXEC(CUDA_HOST_NODE_PARAMS_v1))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ACCESS(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, NODE_MEMCPY,
       copy.copy, CUDA_MEMCPY3D_v2, IN_EXEC_OF(CUDA_MEMCPY3D_v2))
ACCESS(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, NODE_MEMSET,
       fill, CUDA_MEMSET_NODE_PARAMS_v1, IN_EXEC_OF(CUDA_MEMSET_NODE_PARAMS_v1))
#pragma GCC diagnostic pop

#define EVENT_ACCESS(getter, setter, exec_setter, kind)                                                   \
  CUresult getter(CUgraphNode node, CUevent *event) {                                                     \
    if (!node_alive(node) || node->work.type != (kind) || event == NULL) return CUDA_ERROR_INVALID_VALUE; \
    *event = node->work.params.event;                                                                     \
    return CUDA_SUCCESS;                                                                                  \
  }                                                                                                       \
  CUresult setter(CUgraphNode node, CUevent event) {                                                      \
    CUgraphNodeParams general = {.type = (kind)};                                                         \
    general.event = event;                                                                                \
    return cuGraphNodeSetParams(node, &general);                                                          \
  }                                                                                                       \
  CUresult exec_setter(CUgraphExec exec, CUgraphNode node, CUevent event) {                               \
    CUgraphNodeParams general = {.type = (kind)};                                                         \
    general.event = event;                                                                                \
    return cuGraphExecNodeSetParams(exec, node, &general);                                                \
  }
EVENT_ACCESS(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent,
             cuGraphExecEventRecordNodeSetEvent, NODE_EVENT_RECORD)
EVENT_ACCESS(cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent,
             NODE_WAIT_EVENT)

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  if (!node_alive(node) || node->work.type != NODE_MEM_ALLOC || params == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  *params = node->work.params.alloc;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address) {
  if (!node_alive(node) || node->work.type != NODE_MEM_FREE || address == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  *address = node->work.params.freed;
  return CUDA_SUCCESS;
}
