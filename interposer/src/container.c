/* SPDX-License-Identifier: Apache-2.0
 *
 * The kubelet mounts a file for the termination message into every container, out of
 * <root>/pods/<uid>/containers/<name>/<8 hexadecimal digits>; /proc/self/mountinfo shows that path, and only
 * who may mount can add another. Who does (a volume's subPath of that shape) makes the answer ambiguous, and
 * an ambiguous container has no name: it gets the tightest cap. */
#include "container.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fnv.h"

#define NAMELESS 1u
#define LONGEST 8192 /* of a line; longer ones are none of the kubelet's */

static uint64_t hash_of(const char *text, size_t length) {
  uint64_t hash = FNV_START;
  for (size_t i = 0; i < length; i++) hash = fnv_add(hash, (unsigned char)text[i]);
  return hash <= NAMELESS ? hash + 2 : hash;
}

static bool is_hex(char byte) { return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f'); }

static bool is_uid(const char *text, size_t length) {
  if (length != 32 && length != 36) return false; /* a static Pod's has no dashes */
  for (size_t i = 0; i < length; i++)
    if (!is_hex(text[i]) && text[i] != '-') return false;
  return true;
}

/* The last component before `*end`, which moves to the slash in front of it. */
static const char *last_component(const char *start, const char **end, size_t *length) {
  const char *at = *end;
  while (at > start && at[-1] != '/') at--;
  *length = (size_t)(*end - at);
  *end = at > start ? at - 1 : start;
  return at;
}

static bool is_word(const char *text, size_t length, const char *word) {
  return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* The fourth field of a line: the mounted path inside its file system. */
static const char *root_of(const char *line, const char **end) {
  for (int field = 0; field < 3; field++) {
    line = strchr(line, ' ');
    if (line == NULL) return NULL;
    line++;
  }
  *end = strchr(line, ' ');
  return *end != NULL && line[0] == '/' ? line : NULL;
}

int container_of_mount(const char *line, struct container *container) {
  const char *end, *start = root_of(line, &end);
  size_t length, name_length, uid_length;
  if (start == NULL) return 0;
  const char *suffix = last_component(start, &end, &length);
  if (length != 8) return 0;
  for (size_t i = 0; i < 8; i++)
    if (!is_hex(suffix[i])) return 0;
  const char *name = last_component(start, &end, &name_length);
  const char *word = last_component(start, &end, &length);
  if (!is_word(word, length, "containers")) return 0;
  const char *uid = last_component(start, &end, &uid_length);
  word = last_component(start, &end, &length);
  if (!is_word(word, length, "pods") || !is_uid(uid, uid_length)) return 0;
  if (name_length == 0 || name_length >= TESSERA_CONTAINER_SIZE) return 0;
  uint64_t tag = hash_of(uid, (size_t)(name + name_length - uid));
  if (container->name[0] != '\0') return container->tag == tag ? 1 : -1;
  memset(container->name, 0, sizeof container->name);
  memcpy(container->name, name, name_length);
  container->tag = tag;
  return 1;
}

static bool read_lines(int file, struct container *container) {
  char line[LONGEST];
  size_t filled = 0;
  for (;;) {
    ssize_t count = read(file, line + filled, sizeof line - 1 - filled);
    if (count <= 0) return count == 0 && container->name[0] != '\0';
    filled += (size_t)count;
    line[filled] = '\0';
    char *start = line;
    for (char *newline = strchr(start, '\n'); newline != NULL; newline = strchr(start, '\n')) {
      *newline = '\0';
      if (container_of_mount(start, container) < 0) return false;
      start = newline + 1;
    }
    filled = (size_t)(line + filled - start);
    if (filled == sizeof line - 1) filled = 0;
    memmove(line, start, filled);
  }
}

bool container_find(struct container *container) {
  memset(container, 0, sizeof *container);
  int file = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  bool found = file >= 0 && read_lines(file, container);
  if (file >= 0) close(file);
  if (!found) {
    memset(container, 0, sizeof *container);
    container->tag = NAMELESS;
  }
  return found;
}
