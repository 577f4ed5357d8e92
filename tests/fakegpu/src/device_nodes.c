/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the device nodes are: FAKEGPU_DEV, else /dev, else (no /dev/nvidiactl there) the dev directory of the
 * driver root that this very library was loaded from, which is how a node agent finds cards through
 * /driver-root.
 */
#define _GNU_SOURCE
#include "device_nodes.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool opens_for(int mode, const char *directory, const char *name) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) return false;
  int descriptor = open(path, mode | O_CLOEXEC);
  if (descriptor < 0) return false;
  close(descriptor);
  return true;
}

static bool opens(const char *directory, const char *name) { return opens_for(O_RDWR, directory, name); }

static bool exists(const char *directory) {
  char path[PATH_MAX];
  return snprintf(path, sizeof path, "%s/nvidiactl", directory) < (int)sizeof path && access(path, F_OK) == 0;
}

/* The nearest ancestor of this library that has dev/nvidiactl. */
static bool beside_library(char *directory) {
  Dl_info found;
  char path[PATH_MAX];
  if (dladdr((void *)&control_node_opens, &found) == 0 || realpath(found.dli_fname, path) == NULL)
    return false;
  for (char *slash = strrchr(path, '/'); slash != NULL; slash = strrchr(path, '/')) {
    *slash = '\0';
    if (snprintf(directory, PATH_MAX, "%s/dev", path) < PATH_MAX && exists(directory)) return true;
  }
  return false;
}

static void node_directory(char *directory) {
  const char *chosen = getenv("FAKEGPU_DEV");
  if (chosen != NULL && chosen[0] != '\0' && strlen(chosen) < PATH_MAX) {
    memcpy(directory, chosen, strlen(chosen) + 1);
    return;
  }
  memcpy(directory, "/dev", sizeof "/dev");
  char beside[PATH_MAX];
  if (!exists(directory) && beside_library(beside)) memcpy(directory, beside, strlen(beside) + 1);
}

bool control_node_opens(void) {
  char directory[PATH_MAX];
  node_directory(directory);
  return opens(directory, "nvidiactl");
}

bool uvm_node_opens(void) {
  char directory[PATH_MAX];
  node_directory(directory);
  return opens(directory, "nvidia-uvm");
}

bool card_node_opens(uint32_t minor) {
  char directory[PATH_MAX], name[32];
  node_directory(directory);
  snprintf(name, sizeof name, "nvidia%u", minor);
  return opens(directory, name);
}

/* Minor numbers of the capability nodes count through all instances that there could be, card after card, as
 * the driver lists them in /proc/driver/nvidia-caps/mig-minors: 1 and 2 are for configuring and monitoring.
 */
enum { FIRST_CAPABILITY = 3, GPU_INSTANCES = 15, COMPUTE_INSTANCES = 8 };

bool instance_nodes_open(uint32_t minor, uint32_t gpu_instance, uint32_t compute_instance) {
  char directory[PATH_MAX], name[64];
  node_directory(directory);
  uint32_t first = FIRST_CAPABILITY + (minor * GPU_INSTANCES + gpu_instance) * (COMPUTE_INSTANCES + 1u);
  const uint32_t needed[] = {first, first + 1u + compute_instance};
  for (int index = 0; index < 2; index++) {
    snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", needed[index]);
    if (!opens_for(O_RDONLY, directory, name)) return false;
  }
  return true;
}
