/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of boxes, since parts may be unmapped in other pieces than they were mapped in: what is left of a box
 * is up to six smaller ones. Programs that stream textures have some hundred; nobody else has any. */
#include "tiles.h"

#include <stdlib.h>

#include "handles.h"

struct box {
  uint64_t start[3], end[3];
};

struct tile {
  struct tile *next;
  const void *resource;
  uint64_t part; /* level and layer; a tail is a level of its own */
  struct box box;
  struct memory *memory;
};

static struct tile *tiles;

bool tiles_any(void) { return __atomic_load_n(&tiles, __ATOMIC_RELAXED) != NULL; }

/* Without memory for the book-keeping it stays held: too much, never too little. */
static void add(const struct tile *tile) {
  struct tile *made = malloc(sizeof *made);
  handles_hold_again(tile->memory);
  if (made == NULL) return;
  *made = *tile;
  made->next = tiles;
  __atomic_store_n(&tiles, made, __ATOMIC_RELAXED);
}

static bool overlap(const struct box *left, const struct box *right) {
  for (int axis = 0; axis < 3; axis++)
    if (left->start[axis] >= right->end[axis] || right->start[axis] >= left->end[axis]) return false;
  return true;
}

/* Adds what of the tile is outside of the box. */
static void add_rest(struct tile rest, const struct box *box) {
  for (int axis = 0; axis < 3; axis++) {
    struct tile piece = rest;
    if (rest.box.start[axis] < box->start[axis]) {
      piece.box.end[axis] = rest.box.start[axis] = box->start[axis];
      add(&piece);
    }
    piece = rest;
    if (rest.box.end[axis] > box->end[axis]) {
      piece.box.start[axis] = rest.box.end[axis] = box->end[axis];
      add(&piece);
    }
  }
}

static void remove_at(struct tile **link) {
  struct tile *gone = *link;
  __atomic_store_n(link, gone->next, __ATOMIC_RELAXED);
  handles_let_go(gone->memory);
  free(gone);
}

static void take_out(const struct tile *wanted) {
  struct tile **link = &tiles;
  while (*link != NULL) {
    struct tile old = **link;
    if (old.resource != wanted->resource || old.part != wanted->part || !overlap(&old.box, &wanted->box)) {
      link = &(*link)->next;
      continue;
    }
    handles_hold_again(old.memory); /* it must not end before its pieces are there */
    remove_at(link);
    struct tile *before = tiles;
    add_rest(old, &wanted->box);
    handles_let_go(old.memory);
    if (link == &tiles && tiles != before) /* the pieces are in front, and outside of the box */
      while (*link != before) link = &(*link)->next;
  }
}

static struct tile tile_of(const struct cuda_array_map *map) {
  struct tile tile = {.resource = map->resource};
  if (map->subresource_type == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    tile.part = UINT64_MAX << 32 | map->part.tail.layer;
    tile.box = (struct box){{map->part.tail.start, 0, 0},
                            {map->part.tail.start + map->part.tail.size, 1, 1}};
    return tile;
  }
  tile.part = (uint64_t)map->part.tile.level << 32 | map->part.tile.layer;
  for (int axis = 0; axis < 3; axis++) {
    uint64_t start = map->part.tile.start[axis], size = map->part.tile.size[axis];
    tile.box.start[axis] = start;
    tile.box.end[axis] = start + (size == 0 ? 1 : size);
  }
  return tile;
}

void tiles_changed(const struct cuda_array_map *map) {
  struct tile tile = tile_of(map);
  take_out(&tile);
  if (map->operation != CU_MEM_OPERATION_TYPE_MAP) return;
  tile.memory = handles_hold(map->handle);
  if (tile.memory == NULL) return;
  add(&tile);
  handles_let_go(tile.memory);
}

void tiles_gone(const void *resource) {
  for (struct tile **link = &tiles; *link != NULL;)
    if ((*link)->resource == resource)
      remove_at(link);
    else
      link = &(*link)->next;
}

/* The parent's are left where they are. */
void tiles_reset(void) { tiles = NULL; }
