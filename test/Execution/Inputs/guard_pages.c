// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Preloaded: arrays (aligned_alloc of 64 bytes) end where a page begins that
// nobody may read, and begin as NaN.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kPage = 4096, kArrays = 4096 };
static struct {
  void *array, *pages;
  size_t bytes;
} known[kArrays];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void *aligned_alloc(size_t alignment, size_t bytes) {
  void *(*next)(size_t, size_t) =
      (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
  if (alignment != 64)
    return next(alignment, bytes);
  size_t room = (bytes + kPage - 1) / kPage * kPage + 2 * kPage;
  char *pages = mmap(NULL, room, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return NULL;
  memset(pages, 0xff, room - kPage);
  mprotect(pages, kPage, PROT_NONE);
  mprotect(pages + room - kPage, kPage, PROT_NONE);
  char *array = pages + room - kPage - bytes;
  array -= (uintptr_t)array % alignment;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < kArrays; ++i)
    if (!known[i].array) {
      known[i].array = array;
      known[i].pages = pages;
      known[i].bytes = room;
      break;
    }
  pthread_mutex_unlock(&mutex);
  return array;
}

void free(void *array) {
  static void (*next)(void *);
  // An array begins at a multiple of 64 bytes.
  if (array && (uintptr_t)array % 64 == 0) {
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < kArrays; ++i)
      if (known[i].array == array) {
        known[i].array = NULL;
        munmap(known[i].pages, known[i].bytes);
        pthread_mutex_unlock(&mutex);
        return;
      }
    pthread_mutex_unlock(&mutex);
  }
  if (!next)
    next = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  next(array);
}
