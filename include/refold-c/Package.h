/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads and runs packages (docs/packages.md) without a compiler: librefold_run.
   Every function that can fail returns null, or an error that its caller frees.
   A package is used by one thread at a time. */
#ifndef REFOLD_C_PACKAGE_H
#define REFOLD_C_PACKAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct refold_error refold_error;
typedef struct refold_package refold_package;
typedef struct refold_plan refold_plan;

/* The exit code that a tool would end with: 1 model, 2 usage, 4 unsupported, 5
 * limit, 70 internal. */
int refold_error_code(const refold_error *error);
/* Lives as long as the error. */
const char *refold_error_message(const refold_error *error);
void refold_error_free(refold_error *error);

typedef struct refold_open_options {
  size_t size;      /* sizeof(refold_open_options) */
  int gpu;          /* number of the GPU */
  int compiles;     /* not 0: text is compiled by NVRTC where the package has no
                       code for the GPU */
  unsigned threads; /* of the CPU; 0: one */
  const char *tuned;   /* the file that refold-run --tune made on this machine;
                          null: launches are those of the shapes alone. One that
                          holds nothing for the GPU, or is damaged, is an error */
  const char *weights; /* the folder of the files that the package leaves its
                          weights in; null or empty: where it says */
} refold_open_options;

/* Reads a package, and loads its code onto the machine that it is for.
 * `options` may be null. */
refold_error *refold_package_open(const char *path,
                                  const refold_open_options *options,
                                  refold_package **result);
void refold_package_free(refold_package *package);

/* 1 where arrays of refold_package_enqueue are those of a GPU. */
int refold_package_is_for_gpu(const refold_package *package);
size_t refold_package_num_inputs(const refold_package *package);
size_t refold_package_num_outputs(const refold_package *package);
/* Names and types ("f32", "bf16", ...) live as long as the package. Requires i
 * below the number. */
const char *refold_package_input_name(const refold_package *package, size_t i);
const char *refold_package_output_name(const refold_package *package, size_t i);
const char *refold_package_input_type(const refold_package *package, size_t i);
const char *refold_package_output_type(const refold_package *package, size_t i);
size_t refold_package_input_rank(const refold_package *package, size_t i);
size_t refold_package_output_rank(const refold_package *package, size_t i);
/* The extent of a dimension, or -1 where the input decides it; its name, or "".
 */
int64_t refold_package_input_extent(const refold_package *package, size_t i,
                                    size_t dim);
const char *refold_package_input_dim_name(const refold_package *package,
                                          size_t i, size_t dim);

/* Prepares runs for inputs of these shapes: after it, runs allocate nothing. A
   plan is kept until the package is freed, or until 64 other shapes have been
   used since; its use afterwards is an error. One that was captured in a graph
   is kept until the package is freed: so long the graph may be launched. */
refold_error *refold_package_plan(refold_package *package,
                                  const int64_t *const *input_shapes,
                                  const refold_plan **result);
/* Writes as many extents as the output has dimensions. */
refold_error *refold_package_output_shape(refold_package *package,
                                          const refold_plan *plan, size_t i,
                                          int64_t *extents);

/* Runs on row-major arrays of the host; returns when the outputs are there. */
refold_error *refold_package_run(refold_package *package,
                                 const refold_plan *plan,
                                 const void *const *inputs,
                                 void *const *outputs);
/* For a GPU: on row-major arrays of the GPU, in the caller's stream (a
   CUstream, null is the default one). Waits for nothing and allocates nothing,
   so that it may be captured in a graph; refold_package_check tells of checks.
   Plans of a package share memory: who
   uses several streams lets one run end before the next begins, or opens the
   package once a stream. */
refold_error *refold_package_enqueue(refold_package *package,
                                     const refold_plan *plan,
                                     const uint64_t *inputs,
                                     const uint64_t *outputs, void *stream);
/* Whether a check of the data of enqueued runs, or of graphs that hold them,
   has failed since the last call: one that did. The streams have to have ended.
   Their outputs are then no result, but nothing outside an array was read. */
refold_error *refold_package_check(refold_package *package);

#ifdef __cplusplus
}
#endif

#endif /* REFOLD_C_PACKAGE_H */
