/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of sparse arrays, mapped and unmapped at random, against a grid that is looked at cell by cell: a
 * memory is held exactly as long as a cell is mapped to it. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* NOLINTNEXTLINE(bugprone-suspicious-include): its list is looked at through what it holds */
#include "../src/tiles.c"

#define SIDE 6u
#define MEMORIES 5u
#define RESOURCES 2u

struct memory {
  int holds;
};

static struct memory memories[MEMORIES];

void handles_hold_again(struct memory *memory) { memory->holds++; }
void handles_let_go(struct memory *memory) { memory->holds--; }
struct memory *handles_hold(CUmemHandle handle) {
  if (handle >= MEMORIES) return NULL; /* of a neighbour */
  memories[handle].holds++;
  return &memories[handle];
}

static uint8_t cells[RESOURCES][SIDE][SIDE][SIDE]; /* 0: none; else 1 + the memory */

static unsigned int below(unsigned int most) { return (unsigned int)rand() % most; }

static struct cuda_array_map change_at_random(unsigned int resource) {
  struct cuda_array_map map = {.resource = (void *)(uintptr_t)(resource + 1),
                               .operation = CU_MEM_OPERATION_TYPE_MAP + (int)below(2),
                               .handle = below(MEMORIES + 1)};
  for (int axis = 0; axis < 3; axis++) {
    map.part.tile.start[axis] = below(SIDE);
    map.part.tile.size[axis] = 1 + below(SIDE - map.part.tile.start[axis]);
  }
  return map;
}

static void change_cells(const struct cuda_array_map *map, unsigned int resource) {
  const unsigned int *start = map->part.tile.start, *size = map->part.tile.size;
  bool maps = map->operation == CU_MEM_OPERATION_TYPE_MAP && map->handle < MEMORIES;
  for (unsigned int x = start[0]; x < start[0] + size[0]; x++)
    for (unsigned int y = start[1]; y < start[1] + size[1]; y++)
      for (unsigned int z = start[2]; z < start[2] + size[2]; z++)
        cells[resource][x][y][z] = maps ? (uint8_t)(map->handle + 1) : 0;
}

static bool is_mapped(unsigned int memory) {
  const uint8_t *cell = &cells[0][0][0][0];
  for (size_t i = 0; i < sizeof cells; i++)
    if (cell[i] == memory + 1) return true;
  return false;
}

static void check_holds(void) {
  for (unsigned int i = 0; i < MEMORIES; i++) {
    CHECK(memories[i].holds >= 0);
    CHECK((memories[i].holds > 0) == is_mapped(i));
  }
}

static void test_boxes(void) {
  srand(7);
  for (int round = 0; round < 20000; round++) {
    unsigned int resource = below(RESOURCES);
    if (below(50) == 0) {
      tiles_gone((void *)(uintptr_t)(resource + 1));
      memset(cells[resource], 0, sizeof cells[resource]);
    } else {
      struct cuda_array_map map = change_at_random(resource);
      tiles_changed(&map);
      change_cells(&map, resource);
    }
    check_holds();
  }
  for (unsigned int i = 0; i < RESOURCES; i++) tiles_gone((void *)(uintptr_t)(i + 1));
  CHECK(!tiles_any());
}

/* A tail is none of the levels, and the level of one layer is none of another. */
static void test_parts(void) {
  struct cuda_array_map level = {.resource = &level, .operation = CU_MEM_OPERATION_TYPE_MAP, .handle = 0};
  struct cuda_array_map other = level, tail = level;
  other.part.tile.layer = 1;
  other.handle = 1;
  tail.subresource_type = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  tail.part.tail.layer = 0;
  tail.part.tail.start = 0;
  tail.part.tail.size = 65536;
  tail.handle = 2;
  tiles_changed(&level);
  tiles_changed(&other);
  tiles_changed(&tail);
  CHECK(memories[0].holds == 1 && memories[1].holds == 1 && memories[2].holds == 1);
  tail.operation = CU_MEM_OPERATION_TYPE_UNMAP;
  tiles_changed(&tail);
  CHECK(memories[0].holds == 1 && memories[1].holds == 1 && memories[2].holds == 0);
  tiles_gone(&level);
  CHECK(memories[0].holds == 0 && memories[1].holds == 0 && !tiles_any());
}

int main(void) {
  memset(cells, 0, sizeof cells);
  test_boxes();
  test_parts();
  puts("tiles: ok");
}
