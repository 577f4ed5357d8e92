/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs as such: nodes, what they need, copies. What nodes do is in cuda_graph_work.c.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct object *spare_graphs, *spare_nodes;
static unsigned graphs_made, nodes_made;

bool graph_alive(CUgraph graph) { return graph != NULL && graph->object.magic == MAGIC_GRAPH; }
bool node_alive(CUgraphNode node) { return node != NULL && node->object.magic == MAGIC_NODE; }

CUgraph graph_new(void) {
  CUgraph graph = object_new(&spare_graphs, sizeof *graph, MAGIC_GRAPH);
  if (graph != NULL) graph->id = ++graphs_made;
  return graph;
}

static void node_free(CUgraphNode node) {
  if (node->work.type == NODE_GRAPH) graph_free(node->work.params.graph);
  if (node->work.type == NODE_CONDITIONAL) conditional_drop(&node->work);
  if (node->work.memory != NULL) graph_memory_drop(node->work.memory);
  free(node->needs);
  object_drop(&spare_nodes, node);
}

void graph_free(CUgraph graph) {
  for (CUgraphNode node = graph->first; node != NULL;) {
    CUgraphNode next = node->next;
    node_free(node);
    node = next;
  }
  object_drop(&spare_graphs, graph);
}

static bool needs_already(CUgraphNode node, CUgraphNode needed) {
  for (size_t index = 0; index < node->need_count; index++)
    if (node->needs[index] == needed) return true;
  return false;
}

CUresult node_needs(CUgraphNode node, CUgraphNode needed) {
  if (!node_alive(needed) || needed->graph != node->graph || needed == node) return CUDA_ERROR_INVALID_VALUE;
  if (needs_already(node, needed)) return CUDA_SUCCESS;
  CUgraphNode *grown = realloc(node->needs, (node->need_count + 1) * sizeof(CUgraphNode));
  if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  node->needs = grown;
  node->needs[node->need_count++] = needed;
  return CUDA_SUCCESS;
}

CUgraphNode node_add(CUgraph graph, const CUgraphNode *needs, size_t need_count, const struct work *work) {
  CUgraphNode node = object_new(&spare_nodes, sizeof *node, MAGIC_NODE);
  if (node == NULL) return NULL;
  node->graph = graph;
  node->id = ++nodes_made;
  for (size_t index = 0; index < need_count; index++)
    if (node_needs(node, needs[index]) != CUDA_SUCCESS) {
      free(node->needs);
      object_drop(&spare_nodes, node);
      return NULL;
    }
  node->work = *work;
  if (graph->last != NULL)
    graph->last->next = node;
  else
    graph->first = node;
  graph->last = node;
  graph->count++;
  return node;
}

static CUgraphNode copy_of(CUgraph clone, CUgraphNode original) {
  CUgraphNode node = clone->first;
  while (node != NULL && node->origin != original) node = node->next;
  return node;
}

static bool copy_nodes(CUgraph clone, CUgraph original) {
  for (CUgraphNode node = original->first; node != NULL; node = node->next) {
    struct work work = node->work;
    if (work.memory != NULL || work.type == NODE_MEM_FREE)
      return false; /* the manual: not with memory nodes */
    if (work.type == NODE_CONDITIONAL) return false; /* a simplification */
    if (work.type == NODE_GRAPH) {
      work.params.graph = graph_copy(node->work.params.graph);
      if (work.params.graph == NULL) return false;
      work.params.graph->owned = true;
    }
    CUgraphNode made = node_add(clone, NULL, 0, &work);
    if (made == NULL) return false;
    made->origin = node;
  }
  for (CUgraphNode node = clone->first; node != NULL; node = node->next)
    for (size_t index = 0; index < node->origin->need_count; index++)
      if (node_needs(node, copy_of(clone, node->origin->needs[index])) != CUDA_SUCCESS) return false;
  return true;
}

CUgraph graph_copy(CUgraph original) {
  CUgraph clone = graph_new();
  if (clone == NULL || copy_nodes(clone, original)) return clone;
  graph_free(clone);
  return NULL;
}

static bool walk_from(CUgraphNode node, bool (*visit)(CUgraphNode node, void *argument), void *argument) {
  if (node->visit == 2) return true;
  if (node->visit == 1) return false; /* a circle */
  node->visit = 1;
  for (size_t index = 0; index < node->need_count; index++)
    if (!walk_from(node->needs[index], visit, argument)) return false;
  node->visit = 2;
  return visit(node, argument);
}

bool graph_walk(CUgraph graph, bool (*visit)(CUgraphNode node, void *argument), void *argument) {
  for (CUgraphNode node = graph->first; node != NULL; node = node->next) node->visit = 0;
  for (CUgraphNode node = graph->first; node != NULL; node = node->next)
    if (!walk_from(node, visit, argument)) return false;
  return true;
}

CUresult cuGraphCreate(CUgraph *made, unsigned flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (made == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  *made = graph_new();
  driver_unlock();
  return *made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Of every question about a graph or a node: whether it is one. */
static CUresult check(bool alive, const void *answer) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return alive && answer != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroy(CUgraph graph) {
  CUresult result = check(graph_alive(graph) && !graph->owned, graph);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  graph_free(graph);
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph original) {
  CUresult result = check(graph_alive(original), clone);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  *clone = graph_copy(original);
  driver_unlock();
  return *clone == NULL ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone) {
  CUresult result = check(graph_alive(clone) && node_alive(original), node);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  CUgraphNode found = copy_of(clone, original);
  driver_unlock();
  if (found == NULL) return CUDA_ERROR_INVALID_VALUE;
  *node = found;
  return CUDA_SUCCESS;
}

/* The manual's way of lists: without a place only the number is told; with one, at most *count are, what is
 * left of the room becomes NULL and *count says how many there were. */
struct list {
  CUgraphNode *nodes, *others;
  size_t room, found;
};

static void list_add(struct list *list, CUgraphNode node, CUgraphNode other) {
  if (list->nodes != NULL && list->found < list->room) {
    list->nodes[list->found] = node;
    if (list->others != NULL) list->others[list->found] = other;
  }
  list->found++;
}

static CUresult list_end(const struct list *list, size_t *count) {
  if (list->nodes == NULL) {
    *count = list->found;
    return CUDA_SUCCESS;
  }
  for (size_t index = list->found; index < list->room; index++) {
    list->nodes[index] = NULL;
    if (list->others != NULL) list->others[index] = NULL;
  }
  *count = list->found < list->room ? list->found : list->room;
  return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots_only) {
  CUresult result = check(graph_alive(graph), count);
  if (result != CUDA_SUCCESS) return result;
  struct list list = {.nodes = nodes, .room = *count};
  driver_lock();
  for (CUgraphNode node = graph->first; node != NULL; node = node->next)
    if (!roots_only || node->need_count == 0) list_add(&list, node, NULL);
  driver_unlock();
  return list_end(&list, count);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  return list_nodes(graph, nodes, count, false);
}
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  return list_nodes(graph, nodes, count, true);
}

static void plain_edges(CUgraphEdgeData *data, size_t count) {
  if (data != NULL) memset(data, 0, count * sizeof *data);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                            size_t *count) {
  CUresult result = check(graph_alive(graph), count);
  if (result != CUDA_SUCCESS) return result;
  if ((from == NULL) != (to == NULL)) return CUDA_ERROR_INVALID_VALUE;
  struct list list = {.nodes = from, .others = to, .room = *count};
  if (from != NULL) plain_edges(data, *count);
  driver_lock();
  for (CUgraphNode node = graph->first; node != NULL; node = node->next)
    for (size_t index = 0; index < node->need_count; index++) list_add(&list, node->needs[index], node);
  driver_unlock();
  return list_end(&list, count);
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
  return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                       size_t *count) {
  CUresult result = check(node_alive(node), count);
  if (result != CUDA_SUCCESS) return result;
  struct list list = {.nodes = nodes, .room = *count};
  if (nodes != NULL) plain_edges(data, *count);
  driver_lock();
  for (size_t index = 0; index < node->need_count; index++) list_add(&list, node->needs[index], NULL);
  driver_unlock();
  return list_end(&list, count);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
  return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                         size_t *count) {
  CUresult result = check(node_alive(node), count);
  if (result != CUDA_SUCCESS) return result;
  struct list list = {.nodes = nodes, .room = *count};
  if (nodes != NULL) plain_edges(data, *count);
  driver_lock();
  for (CUgraphNode other = node->graph->first; other != NULL; other = other->next)
    if (needs_already(other, node)) list_add(&list, other, NULL);
  driver_unlock();
  return list_end(&list, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
  return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count) {
  (void)data;
  CUresult result = check(graph_alive(graph), graph);
  if (result == CUDA_SUCCESS && count != 0 && (from == NULL || to == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  for (size_t index = 0; index < count && result == CUDA_SUCCESS; index++) {
    bool known = node_alive(to[index]) && to[index]->graph == graph && !needs_already(to[index], from[index]);
    result = known ? node_needs(to[index], from[index]) : CUDA_ERROR_INVALID_VALUE;
  }
  driver_unlock();
  return result;
}
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

static bool needs_no_more(CUgraphNode node, CUgraphNode needed) {
  for (size_t index = 0; index < node->need_count; index++)
    if (node->needs[index] == needed) {
      node->needs[index] = node->needs[--node->need_count];
      return true;
    }
  return false;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count) {
  (void)data;
  CUresult result = check(graph_alive(graph), graph);
  if (result == CUDA_SUCCESS && count != 0 && (from == NULL || to == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  for (size_t index = 0; index < count && result == CUDA_SUCCESS; index++)
    if (!node_alive(to[index]) || to[index]->graph != graph || !needs_no_more(to[index], from[index]))
      result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count) {
  return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
  CUresult result = check(node_alive(node), node);
  if (result != CUDA_SUCCESS) return result;
  if (node->work.memory != NULL || node->work.type == NODE_MEM_FREE)
    return CUDA_ERROR_NOT_SUPPORTED; /* the manual: memory nodes stay */
  driver_lock();
  CUgraph graph = node->graph;
  CUgraphNode before = NULL;
  for (CUgraphNode other = graph->first; other != NULL; other = other->next) {
    if (other->next == node) before = other;
    needs_no_more(other, node);
  }
  if (before != NULL)
    before->next = node->next;
  else
    graph->first = node->next;
  if (graph->last == node) graph->last = before;
  graph->count--;
  node_free(node);
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  CUresult result = check(node_alive(node), type);
  if (result == CUDA_SUCCESS) *type = node->work.type;
  return result;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
  CUresult result = check(node_alive(node) && node->work.type == NODE_GRAPH, graph);
  if (result == CUDA_SUCCESS) *graph = node->work.params.graph;
  return result;
}

CUresult cuGraphGetId(CUgraph graph, unsigned *id) {
  CUresult result = check(graph_alive(graph), id);
  if (result == CUDA_SUCCESS) *id = graph->id;
  return result;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph *graph) {
  CUresult result = check(node_alive(node), graph);
  if (result == CUDA_SUCCESS) *graph = node->graph;
  return result;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned *id) {
  CUresult result = check(node_alive(node), id);
  if (result == CUDA_SUCCESS) *id = node->id;
  return result;
}

CUresult cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long *id) {
  CUresult result = check(node_alive(node), id);
  if (result == CUDA_SUCCESS) *id = node->id;
  return result;
}
