/* SPDX-License-Identifier: Apache-2.0
 *
 * User objects: a destructor that is called when the last reference is gone. A graph's references are counted
 * with the others; they are not given back when the graph goes (a simplification).
 */
#include "graph.h"

struct CUuserObject_st {
  struct object object;
  void *data;
  CUhostFn destroy;
  unsigned references;
};

static struct object *spare;

static bool alive(CUuserObject object) { return object != NULL && object->object.magic == MAGIC_USER_OBJECT; }

CUresult cuUserObjectCreate(CUuserObject *made, void *data, CUhostFn destroy, unsigned references,
                            unsigned flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (made == NULL || destroy == NULL || references == 0 || flags != 1) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUuserObject object = object_new(&spare, sizeof *object, MAGIC_USER_OBJECT);
  if (object != NULL) {
    object->data = data;
    object->destroy = destroy;
    object->references = references;
    *made = object;
  }
  driver_unlock();
  return object == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(object) || count == 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  object->references += count;
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(object) || count == 0 || count > object->references) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  object->references -= count;
  bool last = object->references == 0;
  void *data = object->data;
  CUhostFn destroy = object->destroy;
  if (last) object_drop(&spare, object);
  driver_unlock();
  if (last) destroy(data);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  enum { MOVE = 1 };
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!graph_alive(graph) || flags > MOVE) return CUDA_ERROR_INVALID_VALUE;
  return flags == MOVE ? CUDA_SUCCESS : cuUserObjectRetain(object, count);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return graph_alive(graph) ? cuUserObjectRelease(object, count) : CUDA_ERROR_INVALID_VALUE;
}
