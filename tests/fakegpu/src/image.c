/* SPDX-License-Identifier: Apache-2.0
 *
 * What a module's code offers: the names of kernels and the sizes of variables.
 *
 *   PTX       read as text: `.entry NAME` and `.global ... .TYPE NAME[COUNT]`
 *   cubin     an ELF file: a kernel NAME has a section .text.NAME
 *   fat binary  its contents may be compressed, so every name is taken for a kernel (a guess on the lenient
 * side)
 */
#include "driver.h"

#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define FAT_MAGIC 0xba55ed50u
#define FAT_WRAPPER_MAGIC 0x466243b1u

enum image_kind { IMAGE_PTX, IMAGE_CUBIN, IMAGE_FAT };

struct image {
  enum image_kind kind;
  unsigned count;
  char **kernels;
  unsigned global_count;
  char **globals;
  uint64_t *global_bytes;
};

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$'; }

static char *copy_name(const char *text) {
  size_t length = 0;
  while (is_name(text[length])) length++;
  char *name = calloc(1, length + 1);
  if (name != NULL) memcpy(name, text, length);
  return name;
}

static bool add_kernel(struct image *image, char *name) {
  if (name == NULL) return false;
  char **kernels = realloc(image->kernels, (image->count + 1) * sizeof *kernels);
  if (kernels == NULL) {
    free(name);
    return false;
  }
  image->kernels = kernels;
  image->kernels[image->count++] = name;
  return true;
}

static const char *skip_space(const char *text) {
  while (isspace((unsigned char)*text)) text++;
  return text;
}

/* Bytes of a PTX type name such as u32, b8, f64; 0: none. */
static uint64_t type_bytes(const char *type) {
  if (strchr("busf", type[0]) == NULL) return 0;
  uint64_t bits = strtoull(type + 1, NULL, 10);
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 0;
}

/* ".global .align 4 .u32 NAME[16];": remember NAME and 64 bytes. */
static void add_global(struct image *image, const char *text) {
  uint64_t unit = 0;
  for (text = skip_space(text); *text == '.' || isdigit((unsigned char)*text); text = skip_space(text)) {
    if (*text == '.' && unit == 0) unit = type_bytes(text + 1);
    while (*text != '\0' && !isspace((unsigned char)*text)) text++;
  }
  char *name = copy_name(text);
  char **globals = realloc(image->globals, (image->global_count + 1) * sizeof *globals);
  if (globals != NULL) image->globals = globals;
  uint64_t *bytes = realloc(image->global_bytes, (image->global_count + 1) * sizeof *bytes);
  if (bytes != NULL) image->global_bytes = bytes;
  if (name == NULL || globals == NULL || bytes == NULL || unit == 0) {
    free(name);
    return;
  }
  uint64_t count = 1;
  text += strlen(name);
  for (const char *end = strchr(text, ']'); *text == '[' && end != NULL;
       text = end + 1, end = strchr(text, ']'))
    count *= strtoull(text + 1, NULL, 0);
  image->globals[image->global_count] = name;
  image->global_bytes[image->global_count++] = unit * count;
}

static bool read_ptx(struct image *image, const char *text) {
  bool versioned = false;
  for (const char *at = text; (at = strchr(at, '.')) != NULL; at++) {
    if (strncmp(at, ".version", 8) == 0) versioned = true;
    if (strncmp(at, ".entry", 6) == 0 && isspace((unsigned char)at[6]) &&
        !add_kernel(image, copy_name(skip_space(at + 6))))
      return false;
    if (strncmp(at, ".global", 7) == 0 && isspace((unsigned char)at[7])) add_global(image, at + 7);
  }
  return versioned;
}

static bool read_cubin(struct image *image, const unsigned char *bytes) {
  const Elf64_Ehdr *header = (const void *)bytes;
  const Elf64_Shdr *sections = (const void *)(bytes + header->e_shoff);
  const char *names = (const char *)bytes + sections[header->e_shstrndx].sh_offset;
  for (unsigned index = 0; index < header->e_shnum; index++) {
    const char *name = names + sections[index].sh_name;
    if (strncmp(name, ".text.", 6) == 0 && !add_kernel(image, copy_name(name + 6))) return false;
  }
  return true;
}

static bool read_any(struct image *image, const void *code) {
  const unsigned char *bytes = code;
  uint32_t magic = 0;
  while (isspace(bytes[0])) bytes++; /* PTX may begin with empty lines */
  if (bytes[0] == '.' || bytes[0] == '/') {
    image->kind = IMAGE_PTX;
    return read_ptx(image, (const char *)bytes);
  }
  if (bytes[0] == '\0') return false;
  memcpy(&magic, code, sizeof magic);
  image->kind = IMAGE_FAT;
  if (magic == FAT_MAGIC || magic == FAT_WRAPPER_MAGIC) return true;
  image->kind = IMAGE_CUBIN;
  return memcmp(code, ELFMAG, SELFMAG) == 0 && read_cubin(image, code);
}

struct image *image_read(const void *code) {
  struct image *image = calloc(1, sizeof *image);
  if (image == NULL) return NULL;
  if (read_any(image, code)) return image;
  image_free(image);
  return NULL;
}

void image_free(struct image *image) {
  for (unsigned index = 0; index < image->count; index++) free(image->kernels[index]);
  for (unsigned index = 0; index < image->global_count; index++) free(image->globals[index]);
  free(image->kernels);
  free(image->globals);
  free(image->global_bytes);
  free(image);
}

bool image_has_kernel(const struct image *image, const char *name) {
  if (image->kind == IMAGE_FAT) return true;
  for (unsigned index = 0; index < image->count; index++)
    if (strcmp(image->kernels[index], name) == 0) return true;
  return false;
}

uint64_t image_global_bytes(const struct image *image, const char *name) {
  for (unsigned index = 0; index < image->global_count; index++)
    if (strcmp(image->globals[index], name) == 0) return image->global_bytes[index];
  return 0;
}

const char *image_kernel_name(const struct image *image, unsigned index) { return image->kernels[index]; }
unsigned image_kernel_count(const struct image *image) { return image->count; }
